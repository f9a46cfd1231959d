// Package notify tells webhooks the events of sources, in the format of the
// reference (reference A3).
package notify

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A Receiver is a webhook that is told events.
type Receiver struct {
	URL      string `json:"url"`                // http or https
	Severity string `json:"severity,omitempty"` // info (default) or error: the least that is told
	Secret   string `json:"secretRef,omitempty"`
}

// A Config says who is told what.
type Config struct {
	Receivers []Receiver
	Instance  string        // reportingInstance of the events, the name of the host
	Repeat    time.Duration // within which an event equal to the last of its object is not told again; default 5m
	Timeout   time.Duration // of one post; default 5s
	Report    func(error)   // told of each event that was not delivered at the first attempt, and of each that is given up
}

// A Dispatcher tells receivers the events of sources.
type Dispatcher struct{}

// Start returns a dispatcher. Its owner calls Close.
func Start(c Config) (*Dispatcher, error) { return nil, errors.New("not written yet") }

// Emit queues an event for each receiver that is to be told. It does not wait.
func (d *Dispatcher) Emit(e source.Event) {}

// Close delivers what is queued, until ctx ends.
func (d *Dispatcher) Close(ctx context.Context) error { return nil }
