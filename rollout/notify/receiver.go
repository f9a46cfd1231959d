package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
)

const (
	firstWait = time.Second // before the second attempt; it doubles
	lastWait  = 30 * time.Second
	maxAsked  = time.Minute     // that a receiver may ask to wait
	patience  = 5 * time.Minute // from the first attempt to the last for one event
)

// A receiver is told events one after the other, by a goroutine that lives as long
// as there are some.
type receiver struct {
	name    string
	least   int // rank below which it is told nothing
	deliver func(ctx context.Context, event rollout.Event, lost int) error
	report  func(error)
	wait    func(context.Context, time.Duration) error
	start   func() // a goroutine that calls work
	end     func() // idle connections; nil for none

	mu      sync.Mutex
	queue   queue
	working bool
	closed  bool
	full    int   // events dropped because too many were waiting, since that was reported
	untold  int   // events lost since the last that was delivered
	lost    int   // events lost at all
	last    error // why the last was
}

// add queues event, and starts work when nobody is at it.
func (r *receiver) add(event rollout.Event) {
	if rank[event.Alert] < r.least {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.drop(1, errClosed)
		return
	}
	if n := r.queue.push(event); n > 0 {
		r.full += n
		r.drop(n, errFull)
	}
	if !r.working {
		r.working = true
		r.start()
	}
}

var (
	errClosed = errors.New("it came after the end")
	errFull   = errors.New("more was waiting than is kept")
	errEnded  = errors.New("there was no time left")
)

// drop counts n events that are not delivered. The caller holds the lock.
func (r *receiver) drop(n int, why error) {
	r.untold += n
	r.lost += n
	r.last = why
}

// work delivers what is queued until nothing is, or ctx ends. There is time for pauses
// until patient ends, which it does before ctx.
func (r *receiver) work(ctx, patient context.Context) {
	for {
		event, lost, ok := r.next(ctx)
		r.reportFull()
		if !ok {
			return
		}
		err := r.insist(ctx, patient, event, lost)
		r.mu.Lock()
		if err == nil {
			r.untold -= lost
		} else {
			r.drop(1, err)
		}
		r.mu.Unlock()
	}
}

// next takes the next event, and how many before it were lost. It is false when there
// is none: then nobody works any longer.
func (r *receiver) next(ctx context.Context) (event rollout.Event, lost int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil {
		if event, ok = r.queue.pop(); ok {
			return event, r.untold, true
		}
	}
	r.working = false
	return event, 0, false
}

// reportFull reports what was dropped.
func (r *receiver) reportFull() {
	r.mu.Lock()
	n := r.full
	r.full = 0
	r.mu.Unlock()
	if n > 0 {
		r.report(&LostError{Receiver: r.name, Events: n, Err: errFull})
	}
}

// insist delivers one event, however often it takes within reason. It reports
// the first failure and the last.
func (r *receiver) insist(ctx, patient context.Context, event rollout.Event, lost int) error {
	until := time.Now().Add(patience)
	wait := firstWait
	for first := true; ; first = false {
		err := r.deliver(ctx, event, lost)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		pause := max(wait, min(asked(err), maxAsked))
		last := !mends(err) || time.Now().Add(pause).After(until)
		if first || last {
			r.report(&DeliveryError{Receiver: r.name, Event: event, Lost: last, Err: err})
		}
		if last {
			return err
		}
		hurried, ended := r.pause(ctx, patient, pause)
		if ended != nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		if wait = min(2*wait, lastWait); hurried {
			wait = firstWait
		}
	}
}

// pause waits for d, or the end of ctx, which is an error. It is hurried when
// patient ended meanwhile; after that it takes its time.
func (r *receiver) pause(ctx, patient context.Context, d time.Duration) (hurried bool, err error) {
	if patient.Err() != nil {
		return false, r.wait(ctx, d)
	}
	if err = r.wait(patient, d); err != nil && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

// clock waits for d, or the end of ctx.
func clock(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// mends reports whether what err says may be gone at the next attempt.
func mends(err error) bool {
	if errors.As(err, new(permanent)) || errors.As(err, new(*tls.CertificateVerificationError)) {
		return false
	}
	var status *rollout.StatusError
	if !errors.As(err, &status) {
		return true
	}
	return retry.Status(status.Code)
}

// asked returns how long the receiver asked to wait, 0 when it did not.
func asked(err error) time.Duration {
	if status, is := errors.AsType[*rollout.StatusError](err); is {
		return status.RetryAfter
	}
	return 0
}

// close queues nothing any longer.
func (r *receiver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// undelivered returns what was not delivered, nil when all was. Nobody is at work.
func (r *receiver) undelivered() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.queue.events); n > 0 {
		r.queue = queue{}
		why := r.last
		if !errors.Is(why, errEnded) {
			why = errEnded
		}
		r.drop(n, why)
	}
	if r.lost == 0 {
		return nil
	}
	return &LostError{Receiver: r.name, Events: r.lost, Err: r.last}
}
