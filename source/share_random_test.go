package source_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A given answer tells which question it is of, and when it was begun to be asked for.
type given struct {
	key   string
	begun time.Time
}

// A refused answer is an error that tells the same.
type refused given

func (r *refused) Error() string { return "refused: " + r.key }

var errLeft = errors.New("left")

// Whatever callers do: each gets an answer to its own question, asked for no
// earlier than it wants, or the end of its own context and no other, in time;
// no question is asked while one that would do is under way; and nothing goes on
// when all have left.
func TestShareRandomCallers(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomCallers(t, rand.New(rand.NewPCG(seed, 9))) })
		})
	}
}

func randomCallers(t *testing.T, r *rand.Rand) {
	w := &shareWitness{t: t, underWay: map[string]int{}}
	var all sync.WaitGroup
	for range 150 {
		c := shareCaller{
			key:     fmt.Sprint("key ", r.IntN(3)),
			arrives: time.Duration(r.IntN(60)) * 500 * time.Millisecond,
			back:    time.Duration(r.IntN(5)) * time.Second,
			takes:   time.Duration(r.IntN(8)) * time.Second,
			how:     r.IntN(8),
		}
		if r.IntN(3) == 0 {
			c.patience = time.Duration(1+r.IntN(5000)) * time.Millisecond
			c.leaves = r.IntN(2) == 0
		}
		all.Go(func() { w.call(c) })
	}
	all.Wait()
	if len(w.underWay) != 0 {
		t.Errorf("all have left, and still under way: %v", w.underWay)
	}
}

// A shareCaller is what one caller does.
type shareCaller struct {
	key           string
	arrives, back time.Duration // and what it takes may be asked for that much earlier
	takes         time.Duration // until there is an answer, should it be the one who asks
	how           int           // this answer comes
	patience      time.Duration // 0 for any
	leaves        bool          // when that is over, as one who is cancelled
}

type shareWitness struct {
	t     *testing.T
	share source.Share

	mu       sync.Mutex
	underWay map[string]int // questions that are asked
}

func (w *shareWitness) call(c shareCaller) {
	time.Sleep(c.arrives)
	ctx, cancel := context.WithCancelCause(w.t.Context())
	defer cancel(nil)
	if c.patience > 0 && c.leaves {
		time.AfterFunc(c.patience, func() { cancel(errLeft) })
	} else if c.patience > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.patience)
		defer stop()
	}
	start := time.Now()
	value, err := w.share.Do(ctx, c.key, start.Add(-c.back), func(ctx context.Context) (any, error) { return w.ask(ctx, c) })
	w.judge(c, start, value, err)
}

func (w *shareWitness) ask(ctx context.Context, c shareCaller) (any, error) {
	w.count(c.key, 1)
	defer w.count(c.key, -1)
	begun := given{c.key, time.Now()}
	takes := time.After(c.takes)
	if deadline, ok := ctx.Deadline(); ok && c.how == 0 { // as a dialer does
		takes = time.After(min(c.takes, time.Until(deadline)))
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-takes:
	}
	switch {
	case c.how == 0 && time.Since(begun.begun) < c.takes:
		return nil, fmt.Errorf("i/o timeout: %w", context.DeadlineExceeded)
	case c.how == 1:
		return nil, (*refused)(&begun)
	case c.how == 2:
		panic(&begun)
	}
	return begun, nil
}

func (w *shareWitness) count(key string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.underWay[key] += n; w.underWay[key] == 0 {
		delete(w.underWay, key)
	}
}

func (w *shareWitness) judge(c shareCaller, start time.Time, value any, err error) {
	got, ok := value.(given)
	no, isRefusal := errors.AsType[*refused](err)
	panicked, isPanic := errors.AsType[*source.PanicError](err)
	switch {
	case err == nil && ok:
	case isRefusal:
		got = given(*no)
	case isPanic:
		got = *panicked.Value.(*given)
	case errors.Is(err, errLeft) && c.leaves || errors.Is(err, context.DeadlineExceeded) && !c.leaves:
		if late := time.Since(start) - c.patience; c.patience == 0 || late != 0 {
			w.t.Errorf("%+v: ended %v late: %v", c, late, err)
		}
		return
	default:
		w.t.Errorf("%+v: got %v, %v", c, value, err)
		return
	}
	if since := start.Add(-c.back); got.key != c.key || got.begun.Before(since) {
		w.t.Errorf("%+v: the answer is to %s, begun %v before it may have been", c, got.key, since.Sub(got.begun))
	}
}
