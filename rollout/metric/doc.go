// Package metric answers the metric queries of an analysis: from Prometheus, from HTTP endpoints and from commands.
package metric
