package deliver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	firstWait = time.Second // before the second attempt; it doubles
	lastWait  = 30 * time.Second
	maxAsked  = time.Minute     // that a receiver may ask to wait
	patience  = 5 * time.Minute // from the first attempt to the last for one item
)

// A Receiver is told items one after the other, by a goroutine that lives as long
// as there are some.
type Receiver[T any] struct {
	Name  string
	Least int // rank below which it is told nothing
	// Deliver tells it an item: one attempt. Lost is how many before it were lost
	// since the last that was delivered.
	Deliver func(ctx context.Context, item T, lost int) error
	End     func() // ends idle connections; nil for none

	d     *Dispatcher[T]
	start func() // a goroutine that calls work

	mu      sync.Mutex
	queue   queue[T]
	working bool
	closed  bool
	full    int   // items dropped because too many were waiting, since that was reported
	untold  int   // items lost since the last that was delivered
	lost    int   // items lost at all
	last    error // why the last was
}

// add queues an item, and starts work when nobody is at it.
func (r *Receiver[T]) add(item queued[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.drop(1, errClosed)
		return
	}
	if n := r.queue.push(item); n > 0 {
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

// drop counts n items that are not delivered. The caller holds the lock.
func (r *Receiver[T]) drop(n int, why error) {
	r.untold += n
	r.lost += n
	r.last = why
}

// work delivers what is queued until nothing is, or ctx ends. There is time for pauses
// until patient ends, which it does before ctx.
func (r *Receiver[T]) work(ctx, patient context.Context) {
	for {
		item, lost, ok := r.next(ctx)
		r.reportFull()
		if !ok {
			return
		}
		err := r.insist(ctx, patient, item, lost)
		r.mu.Lock()
		if err == nil {
			r.untold -= lost
		} else {
			r.drop(1, err)
		}
		r.mu.Unlock()
	}
}

// next takes the next item, and how many before it were lost. It is false when there
// is none: then nobody works any longer.
func (r *Receiver[T]) next(ctx context.Context) (item T, lost int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil {
		if item, ok = r.queue.pop(); ok {
			return item, r.untold, true
		}
	}
	r.working = false
	return item, 0, false
}

// reportFull reports what was dropped.
func (r *Receiver[T]) reportFull() {
	r.mu.Lock()
	n := r.full
	r.full = 0
	r.mu.Unlock()
	if n > 0 {
		r.d.Full(&LostError{r.Name, n, errFull})
	}
}

// insist delivers one item, however often it takes within reason. It reports
// the first failure and the last.
func (r *Receiver[T]) insist(ctx, patient context.Context, item T, lost int) error {
	until := time.Now().Add(patience)
	wait := firstWait
	for first := true; ; first = false {
		err := r.Deliver(ctx, item, lost)
		if err == nil {
			if r.d.Delivered != nil {
				r.d.Delivered(r.Name, item)
			}
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		mends, asked := r.judge(err)
		pause := max(wait, min(asked, maxAsked))
		last := !mends || time.Now().Add(pause).After(until)
		if first || last {
			r.d.Failed(r.Name, item, last, err)
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
func (r *Receiver[T]) pause(ctx, patient context.Context, d time.Duration) (hurried bool, err error) {
	if patient.Err() != nil {
		return false, r.d.Wait(ctx, d)
	}
	if err = r.d.Wait(patient, d); err != nil && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

// judge says whether time may mend err, and how long the receiver asked to wait.
func (r *Receiver[T]) judge(err error) (mends bool, after time.Duration) {
	if errors.As(err, new(Permanent)) || errors.As(err, new(*tls.CertificateVerificationError)) {
		return false, 0
	}
	return r.d.Judge(err)
}

// close queues nothing any longer.
func (r *Receiver[T]) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// undelivered returns what was not delivered, nil when all was. Nobody is at work.
func (r *Receiver[T]) undelivered() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.queue.items); n > 0 {
		r.queue = queue[T]{}
		why := r.last
		if !errors.Is(why, errEnded) {
			why = errEnded
		}
		r.drop(n, why)
	}
	if r.lost == 0 {
		return nil
	}
	return &LostError{r.Name, r.lost, r.last}
}
