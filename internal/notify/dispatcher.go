// Package notify tells receivers events over HTTP. Its rules:
//
//   - Emit returns at once: a receiver that hangs delays neither the caller nor
//     another receiver.
//   - Each receiver is told in order, and at least once.
//   - A delivery that failed and may succeed later is repeated after 1s, 2s, 4s and so
//     on up to 30s, or as long as the receiver asks for, at most 1m, each time plus up to
//     a tenth of that. It is given up 5m after the first attempt.
//   - 256 events wait for a receiver. When there are more, the oldest of the
//     lowest rank is dropped.
//   - Every loss is reported, the next delivery is told how many events were
//     lost, and Close returns their number.
//   - After Close no goroutine is left.
//
// A [Dispatcher] does this for events of any type. A [Webhook] posts one event as
// JSON, with the credentials of its Secret. URLs and credentials are secrets:
// errors show a scheme and a host.
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
	maxWaiting = 256         // events for one receiver
	firstPause = time.Second // before the second attempt; it doubles
	lastPause  = 30 * time.Second
	maxAsked   = time.Minute     // that a receiver may ask to wait
	patience   = 5 * time.Minute // from the first attempt to the last for one event
)

// A Dispatcher tells receivers events. Its exported fields are set before Start.
// It is safe for concurrent use.
type Dispatcher[T any] struct {
	Receivers []*Receiver[T]

	// Report is told of each event whose first delivery failed, and of events that
	// are lost. Several goroutines may call it at once, and deliveries wait for it.
	Report func(err error, lost bool)
	// Delivered is told of each event that a receiver accepted; nil for nothing.
	Delivered func(T)

	running context.Context // until deliveries have to end
	stop    context.CancelFunc
	closing context.Context // until Close
	close   context.CancelFunc
	workers sync.WaitGroup

	mu    sync.Mutex // of the receivers
	ready *sync.Cond // an event waits, or Close was called
}

// A Receiver is told events one after the other.
type Receiver[T any] struct {
	Name  string // for errors
	Least int    // rank below which it is told nothing
	// Deliver tells it an event: one attempt. Lost is how many events were lost since
	// the last that was delivered.
	Deliver func(ctx context.Context, event T, lost int) error

	waiting []item[T]
	dropped int   // events that were one too many, since that was reported
	untold  int   // events lost since the last that was delivered
	lost    int   // events lost since Start
	cause   error // of the last loss
}

// An item is an event that waits.
type item[T any] struct {
	event T
	name  string
	rank  int
}

// Start makes the dispatcher ready. Its owner calls Close.
func (d *Dispatcher[T]) Start() {
	d.ready = sync.NewCond(&d.mu)
	d.running, d.stop = context.WithCancel(context.Background())
	d.closing, d.close = context.WithCancel(d.running)
	for _, r := range d.Receivers {
		d.workers.Go(func() { d.work(r) })
	}
}

// Emit queues an event for each receiver that is to be told. Name is what
// reports call the event. An event after Close is lost.
func (d *Dispatcher[T]) Emit(event T, name string, rank int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.Receivers {
		switch {
		case rank < r.Least:
		case d.closing.Err() != nil:
			r.lose(1, errClosed)
		default:
			r.waiting = append(r.waiting, item[T]{event, name, rank})
			if len(r.waiting) > maxWaiting {
				r.drop()
			}
		}
	}
	d.ready.Broadcast()
}

// Close delivers what waits, until ctx ends. An event that waits for another attempt
// has it at once, and further attempts from 1s on. The error says for each
// receiver how many events were lost since Start.
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
			errs = append(errs, r.loss(r.lost, r.cause))
		}
	}
	return errors.Join(errs...)
}

var (
	errClosed = errors.New("it came after the end")
	errFull   = errors.New("more was waiting than is kept")
	errEnded  = errors.New("there was no time left")
)

// drop drops the oldest event of the lowest rank.
func (r *Receiver[T]) drop() {
	lowest := 0
	for i := range r.waiting {
		if r.waiting[i].rank < r.waiting[lowest].rank {
			lowest = i
		}
	}
	r.waiting = slices.Delete(r.waiting, lowest, lowest+1)
	r.dropped++
	r.lose(1, errFull)
}

// lose counts n events that are not delivered.
func (r *Receiver[T]) lose(n int, cause error) {
	r.untold += n
	r.lost += n
	if cause != errEnded || !errors.Is(r.cause, errEnded) { // which says more
		r.cause = cause
	}
}

// loss is the error that n events are lost.
func (r *Receiver[T]) loss(n int, cause error) error {
	what := "1 event is"
	if n > 1 {
		what = fmt.Sprintf("%d events are", n)
	}
	return fmt.Errorf("tell %s: %s lost, the last because: %w", r.Name, what, cause)
}

// work delivers the events of one receiver until Close was called and none waits.
func (d *Dispatcher[T]) work(r *Receiver[T]) {
	for {
		d.mu.Lock()
		for len(r.waiting) == 0 && d.closing.Err() == nil {
			d.ready.Wait()
		}
		if n := len(r.waiting); d.running.Err() != nil && n > 0 {
			r.lose(n, errEnded)
			r.waiting = nil
		}
		dropped, lost, waiting := r.dropped, r.untold, r.waiting
		r.dropped, r.waiting = 0, waiting[min(1, len(waiting)):]
		d.mu.Unlock()
		if dropped > 0 {
			d.Report(r.loss(dropped, errFull), true)
		}
		if len(waiting) == 0 {
			return
		}
		err := d.deliver(r, waiting[0], lost)
		d.mu.Lock()
		if err == nil {
			r.untold -= lost
		} else {
			r.lose(1, err)
		}
		d.mu.Unlock()
	}
}

// deliver delivers one event, with as many attempts as are allowed. It reports the first
// failure and the last.
func (d *Dispatcher[T]) deliver(r *Receiver[T], next item[T], lost int) error {
	until, pause := time.Now().Add(patience), firstPause
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
		again, asked := retryable(err)
		wait := max(pause, min(asked, maxAsked))
		wait += rand.N(wait / 10)
		if !again || time.Now().Add(wait).After(until) {
			d.Report(fmt.Errorf("tell %s of %s, it is lost: %w", r.Name, next.name, err), true)
			return err
		}
		if first {
			d.Report(fmt.Errorf("tell %s of %s, it is tried again: %w", r.Name, next.name, err), false)
		}
		hurry := d.closing.Done() // Close ends a pause that has begun; later ones last
		if d.closing.Err() != nil {
			hurry = nil
		}
		select {
		case <-time.After(wait):
			pause = min(2*pause, lastPause)
		case <-hurry:
			pause = firstPause
		case <-d.running.Done():
			return fmt.Errorf("%w: %w", errEnded, err)
		}
	}
}

// A Refusal is an error that another attempt does not mend, or does if Code is 429, or from 500 on but 501.
type Refusal struct {
	Code  int           // status of the answer; 0 for what never succeeds
	After time.Duration // how long the receiver asks to wait, 0 for nothing
	Err   error
}

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// retryable reports whether another attempt may succeed, and how long the receiver asks to wait.
func retryable(err error) (again bool, after time.Duration) {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return retry.Status(r.Code), r.After
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return !untrusted, 0
}
