// Package deliver tells receivers things over HTTP. Its rules:
//
//   - Emit returns at once; a receiver that hangs holds up neither the caller
//     nor another receiver.
//   - Each receiver is told in order, and at least once.
//   - What fails in a way that time may mend is tried again, after 1s, 2s, 4s
//     and so on up to 30s, or as long as the receiver asks for, at most 1m, for 5m.
//   - What waits for a receiver is bounded: 256 items and 4 MiB. When it
//     is full, the oldest of the least rank is dropped.
//   - Nothing is lost in silence: what was not delivered is reported, the
//     next delivery is told how many there were, and Close returns their number.
//   - After Close no goroutine is left.
//
// A [Dispatcher] does this with whatever its receivers call a delivery. A
// [Poster] posts to one [Target].
package deliver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
)

// A Dispatcher tells receivers items of a type. Its fields are set before
// Start. It is safe for concurrent use.
type Dispatcher[T any] struct {
	Receivers []*Receiver[T]
	Rank      func(*T) int // of an item, at least 0; what ranks least is dropped first
	Size      func(*T) int // bytes that an item takes, more or less

	// Judge says of an error of a delivery whether time may mend it, and how
	// long the receiver asked to wait. It is not asked about [Permanent] ones
	// and those of certificates.
	Judge func(error) (mends bool, after time.Duration)

	// Delivered is told of each item that a receiver took; nil for nobody.
	Delivered func(receiver string, item T)
	// Failed is told of an item whose delivery failed for the first time, and of
	// one that is given up: then it is lost.
	Failed func(receiver string, item T, lost bool, err error)
	// Full is told how many items were dropped because too many waited.
	Full func(*LostError)

	Wait func(context.Context, time.Duration) error // between attempts; nil for the clock

	hurry   context.CancelFunc // ends pauses between attempts
	stop    context.CancelFunc // ends deliveries
	workers sync.WaitGroup
}

// Start makes the dispatcher ready. Its owner calls Close.
func (d *Dispatcher[T]) Start(ctx context.Context) {
	if d.Wait == nil {
		d.Wait = retry.Sleep
	}
	ctx, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	patient, hurry := context.WithCancel(ctx)
	d.hurry = hurry
	for _, r := range d.Receivers {
		r.d = d
		r.start = func() { d.workers.Go(func() { r.work(ctx, patient) }) }
	}
}

// Emit queues an item for each receiver that is to be told. It does not wait.
func (d *Dispatcher[T]) Emit(item T) {
	rank, size := d.Rank(&item), d.Size(&item)
	for _, r := range d.Receivers {
		if rank >= r.Least {
			r.add(queued[T]{item, rank, size})
		}
	}
}

// Close delivers what is queued, until ctx ends. What waits for another attempt has
// it at once, and the others from 1s on. The error joins a [*LostError] for each
// receiver that was not told everything since Start. Items that come later are lost.
func (d *Dispatcher[T]) Close(ctx context.Context) error {
	for _, r := range d.Receivers {
		r.close()
	}
	d.hurry()
	stopped := context.AfterFunc(ctx, d.stop)
	d.workers.Wait()
	stopped()
	d.stop()
	var errs []error
	for _, r := range d.Receivers {
		if r.End != nil {
			r.End()
		}
		errs = append(errs, r.undelivered())
	}
	return errors.Join(errs...)
}
