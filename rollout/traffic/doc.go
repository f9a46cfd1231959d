// Package traffic divides requests between a primary and a canary: by a reverse proxy of its own, by a command, or by HTTP requests.
package traffic
