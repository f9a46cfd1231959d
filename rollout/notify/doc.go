// Package notify tells people and programs the events of an analysis: chat services, and webhooks of type event.
package notify
