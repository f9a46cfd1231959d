// Package notify tells webhooks the events of sources, in the format of the
// reference (reference A3): a POST of JSON that a notification-controller
// takes. Its rules:
//
//   - Events of severity trace are not told. A receiver of severity error is
//     told errors only.
//   - Emit returns at once; a receiver that hangs holds up neither the sources
//     nor another receiver. Each receiver is told in order, and at least once.
//   - When there is no answer within Config.Timeout, no connection, or a status from 500 on other than
//     501, the post is repeated after 1s, 2s, 4s and so on up to 30s, or as long as
//     Retry-After asks for, at most 1m, for 5m. Status 429 means that the receiver knows the event:
//     it is dropped. Any other status than 200 to 299 is final, as is a redirect to another origin.
//   - 256 events and 4 MiB wait for each receiver; when that is full, the oldest
//     information is dropped, or the oldest error when all are.
//   - Nothing is lost in silence: what was not delivered is reported, the next
//     event that is delivered has the number in its metadata ([LostKey]), and Close returns it.
//   - The URL of a receiver and its credentials are secrets: errors show a
//     scheme and a host. Secrets are read anew for each post.
//   - After Close no goroutine is left.
package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/source"
)

// LostKey is the key of event metadata that says how many events before this one
// the receiver was not told.
const LostKey = "event.headgate.dev/lost"

// A Config says who is told what.
type Config struct {
	Receivers []Receiver
	Secrets   source.Secrets                        // nil: a receiver that names a Secret is an error
	Proxy     func(*http.Request) (*url.URL, error) // for receivers without one, as in [http.Transport]; nil for none
	Instance  string                                // reportingInstance of the events, the name of the host
	Timeout   time.Duration                         // of one post; default 5s

	// Report is told of each event that was not delivered at the first attempt,
	// and of each that is given up, as a [*DeliveryError]; of those that were dropped
	// because too many waited, as a [*LostError]. Several goroutines may call it at
	// once; its receiver waits for it. Nil for nobody.
	Report func(error)
	// Delivered is told of each event that a receiver took. Several goroutines
	// may call it at once; nil for nobody.
	Delivered func(source.Event)
}

// A Dispatcher tells receivers the events of sources. It is safe for concurrent use.
type Dispatcher struct {
	instance string
	queues   deliver.Dispatcher[source.Event]
}

// ranks orders severities; what has none is not told.
var ranks = map[string]int{"info": 1, "error": 2}

// Start returns a dispatcher. It posts nothing and reads no Secrets; the error joins
// what is wrong with the receivers. Its owner calls Close.
func Start(c Config) (*Dispatcher, error) {
	if c.Report == nil {
		c.Report = func(error) {}
	}
	d := &Dispatcher{instance: c.Instance}
	var errs []error
	for i := range c.Receivers {
		r := &c.Receivers[i]
		for _, defect := range r.defects() {
			errs = append(errs, fmt.Errorf("receivers[%d].%s %s", i, defect.field, defect.rule))
		}
		h := &webhook{Receiver: *r, config: &c, instance: c.Instance}
		d.queues.Receivers = append(d.queues.Receivers, &deliver.Receiver[source.Event]{
			Name: h.name(), Least: ranks[cmp.Or(r.Severity, "info")], Deliver: h.deliver, End: h.poster.Close,
		})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	d.queues.Rank = func(e *source.Event) int { return ranks[e.Severity] }
	d.queues.Size = size
	d.queues.Judge = judge
	d.queues.Failed = func(receiver string, e source.Event, lost bool, err error) {
		c.Report(&DeliveryError{Receiver: receiver, Event: e, Lost: lost, Err: err})
	}
	if c.Delivered != nil {
		d.queues.Delivered = func(_ string, e source.Event) { c.Delivered(e) }
	}
	d.queues.Full = func(lost *LostError) { c.Report(lost) }
	d.queues.Start(context.Background())
	return d, nil
}

// size returns the bytes that an event takes, more or less.
func size(e *source.Event) int {
	n := 512 + len(e.Message)
	for key, value := range e.Metadata {
		n += len(key) + len(value)
	}
	return n
}

// Emit queues an event for each receiver that is to be told. It does not wait,
// and keeps the event: its metadata must not be changed.
func (d *Dispatcher) Emit(e source.Event) {
	if ranks[e.Severity] == 0 || len(d.queues.Receivers) == 0 {
		return
	}
	d.queues.Emit(e)
}

// Close delivers what is queued, until ctx ends. What waits for another attempt has
// it at once. The error joins a [*LostError] for each receiver that was not told
// everything since Start.
func (d *Dispatcher) Close(ctx context.Context) error { return d.queues.Close(ctx) }
