// Package notify delivers events to receivers over HTTP. Its rules:
//
//   - Emit does not block: a receiver that hangs delays neither the caller nor other receivers.
//   - Each receiver gets its events in order, and each event at least once.
//   - A failed delivery that may succeed later is retried for 5m. The delays are 1s, 2s, 4s and so
//     on up to 30s, or the time that the receiver asks for, at most 1m, each lengthened at random
//     by up to a tenth.
//   - At most 256 events wait for each receiver. If there are more, the oldest event of the lowest
//     rank is dropped.
//   - Every loss is reported. The next delivery gets the number of lost events, and Close returns
//     it in its error.
//   - Close waits for all goroutines.
//
// A [Dispatcher] implements these rules for events of any type. A [Webhook] posts one event as
// JSON, with the credentials of its Secret. URLs and credentials are secrets: errors contain only
// scheme and host.
package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
)

const (
	maxWaiting    = 256         // events for one receiver
	firstPause    = time.Second // before the second attempt; doubles with each attempt
	lastPause     = 30 * time.Second
	maxRetryAfter = time.Minute     // longest delay that a receiver may ask for
	retryPeriod   = 5 * time.Minute // from the first to the last attempt for one event
)

// A Dispatcher delivers events to receivers. Its exported fields must be set before Start. It is safe
// for concurrent use.
type Dispatcher[T any] struct {
	Receivers []*Receiver[T]

	// Report is called with the error of each event whose first delivery failed, and for lost
	// events. Several goroutines may call it at once, and deliveries wait for it.
	Report func(err error, lost bool)
	// Delivered is called with each event that a receiver accepted; nil for none.
	Delivered func(T)

	running context.Context // ends when deliveries must stop
	stop    context.CancelFunc
	closing context.Context // ends with Close
	close   context.CancelFunc
	workers sync.WaitGroup

	mu    sync.Mutex // guards the receivers
	ready *sync.Cond // signals that an event waits, or that Close was called
}

// A Receiver gets events one after the other.
type Receiver[T any] struct {
	Name    string // for errors
	MinRank int    // events of a lower rank are not delivered
	// Deliver makes one attempt to deliver an event. Lost is the number of events that were lost since
	// the last delivery.
	Deliver func(ctx context.Context, event T, lost int) error

	waiting           []item[T]
	dropped           int   // events dropped from the full queue since the last report
	lostSinceDelivery int   // events lost since the last delivery
	lost              int   // events lost since Start
	cause             error // of the last loss
}

// An item is an event in the queue.
type item[T any] struct {
	event T
	name  string
	rank  int
}

// Start starts the deliveries. The caller calls Close at the end.
func (d *Dispatcher[T]) Start() {
	d.ready = sync.NewCond(&d.mu)
	d.running, d.stop = context.WithCancel(context.Background())
	d.closing, d.close = context.WithCancel(d.running)
	for _, r := range d.Receivers {
		d.workers.Go(func() { d.work(r) })
	}
}

// Emit queues an event for each receiver that accepts its rank. Name is the name of the event in reports. An event
// after Close is lost.
func (d *Dispatcher[T]) Emit(event T, name string, rank int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.Receivers {
		switch {
		case rank < r.MinRank:
		case d.closing.Err() != nil:
			r.countLost(1, errClosed)
		default:
			r.waiting = append(r.waiting, item[T]{event, name, rank})
			if len(r.waiting) > maxWaiting {
				r.drop()
			}
		}
	}
	d.ready.Broadcast()
}

// Close delivers the queued events until ctx ends, and waits for all goroutines. An event that waits for a retry is
// retried at once, and then with delays that begin at 1s again. The error says for each receiver how many events were
// lost since Start.
func (d *Dispatcher[T]) Close(ctx context.Context) error {
	d.mu.Lock()
	d.close()
	d.mu.Unlock()
	d.ready.Broadcast()
	unwatch := context.AfterFunc(ctx, d.stop)
	d.workers.Wait()
	unwatch()
	d.stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, r := range d.Receivers {
		if r.lost > 0 {
			errs = append(errs, r.lossError(r.lost, r.cause))
		}
	}
	return errors.Join(errs...)
}

var (
	errClosed = errors.New("it came after the end")
	errFull   = errors.New("more was waiting than is kept")
	errEnded  = errors.New("there was no time left")
)

// drop removes the oldest event of the lowest rank from the queue, and counts it as lost.
func (r *Receiver[T]) drop() {
	lowest := 0
	for i := range r.waiting {
		if r.waiting[i].rank < r.waiting[lowest].rank {
			lowest = i
		}
	}
	r.waiting = slices.Delete(r.waiting, lowest, lowest+1)
	r.dropped++
	r.countLost(1, errFull)
}

// countLost counts n lost events.
func (r *Receiver[T]) countLost(n int, cause error) {
	r.lostSinceDelivery += n
	r.lost += n
	if cause != errEnded || !errors.Is(r.cause, errEnded) { // an earlier cause of that kind has more details
		r.cause = cause
	}
}

// lossError returns an error about n lost events.
func (r *Receiver[T]) lossError(n int, cause error) error {
	subject := "1 event is"
	if n > 1 {
		subject = fmt.Sprintf("%d events are", n)
	}
	return fmt.Errorf("tell %s: %s lost, the last because: %w", r.Name, subject, cause)
}

// work delivers the events of one receiver until Close was called and the queue is empty.
func (d *Dispatcher[T]) work(r *Receiver[T]) {
	for {
		d.mu.Lock()
		for len(r.waiting) == 0 && d.closing.Err() == nil {
			d.ready.Wait()
		}
		if n := len(r.waiting); d.running.Err() != nil && n > 0 {
			r.countLost(n, errEnded)
			r.waiting = nil
		}
		dropped, lost, waiting := r.dropped, r.lostSinceDelivery, r.waiting
		r.dropped, r.waiting = 0, waiting[min(1, len(waiting)):]
		d.mu.Unlock()
		if dropped > 0 {
			d.Report(r.lossError(dropped, errFull), true)
		}
		if len(waiting) == 0 {
			return
		}
		err := d.deliver(r, waiting[0], lost)
		d.mu.Lock()
		if err == nil {
			r.lostSinceDelivery -= lost
		} else {
			r.countLost(1, err)
		}
		d.mu.Unlock()
	}
}

// deliver delivers one event, and retries until retryPeriod is over. It reports the first and the last
// failure.
func (d *Dispatcher[T]) deliver(r *Receiver[T], next item[T], lost int) error {
	until, pause := time.Now().Add(retryPeriod), firstPause
	for first := true; ; first = false {
		err := r.Deliver(d.running, next.event, lost)
		switch {
		case err == nil:
			if d.Delivered != nil {
				d.Delivered(next.event)
			}
			return nil
		case d.running.Err() != nil:
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		again, retryAfter := retryable(err)
		wait := max(pause, min(retryAfter, maxRetryAfter))
		wait += rand.N(wait / 10)
		if !again || time.Now().Add(wait).After(until) {
			d.Report(fmt.Errorf("tell %s of %s, it is lost: %w", r.Name, next.name, err), true)
			return err
		}
		if first {
			d.Report(fmt.Errorf("tell %s of %s, it is tried again: %w", r.Name, next.name, err), false)
		}
		closed := d.closing.Done() // Close cuts the current pause short, but not later ones
		if d.closing.Err() != nil {
			closed = nil
		}
		select {
		case <-time.After(wait):
			pause = min(2*pause, lastPause)
		case <-closed:
			pause = firstPause
		case <-d.running.Done():
			return fmt.Errorf("%w: %w", errEnded, err)
		}
	}
}

// A Refusal is an error that is not retried, unless Code is 429, or 500 or more other than 501.
type Refusal struct {
	Code  int           // status of the answer; 0 if a retry cannot succeed
	After time.Duration // delay that the receiver asks for, 0 for none
	Err   error
}

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// retryable reports whether another attempt may succeed, and returns the delay that the receiver asks for.
func retryable(err error) (again bool, after time.Duration) {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return retry.IsRetryable(r.Code), r.After
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return !untrusted, 0
}
