package source_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

// An upstream counts requests and answers each with its number.
type upstream struct {
	mu    sync.Mutex
	asked int
	takes time.Duration
	err   error
}

func (u *upstream) ask(ctx context.Context) (any, error) {
	u.mu.Lock()
	u.asked++
	n := u.asked
	u.mu.Unlock()
	select {
	case <-time.After(u.takes):
		return n, u.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// concurrently runs do n times concurrently and returns the answers.
func concurrently(n int, do func(i int) (any, error)) (values []any, errs []error) {
	values, errs = make([]any, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { values[i], errs[i] = do(i) })
	}
	all.Wait()
	return values, errs
}

func TestShareAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s source.Share
		u := &upstream{takes: time.Second}
		since := time.Now()
		values, errs := concurrently(50, func(i int) (any, error) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond) // the last ones after the answer is complete
			return s.Do(t.Context(), "q", since, u.ask)
		})
		if u.asked != 1 || slices.ContainsFunc(values, func(v any) bool { return v != 1 }) || errors.Join(errs...) != nil {
			t.Errorf("asked %d times, got %v, %v", u.asked, values, errs)
		}
		if v, err := s.Do(t.Context(), "other", since, u.ask); v != 2 || err != nil {
			t.Errorf("another question got %v, %v", v, err)
		}
	})
}

// An answer counts if its request began at since or later, not if only the answer came later.
func TestShareSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s source.Share
		u := &upstream{takes: 10 * time.Second}
		start := time.Now()
		var all sync.WaitGroup
		for _, test := range []struct {
			after, since time.Duration
			want         int
		}{
			{0, 0, 1},
			{time.Second, -time.Hour, 1},
			{2 * time.Second, 0, 1},
			{3 * time.Second, time.Nanosecond, 2},  // as after a push: the pending answer may be too old
			{4 * time.Second, 3 * time.Second, 2},  // another caller waits for it
			{5 * time.Second, 0, 2},                // two are pending, the newest counts
			{14 * time.Second, 3 * time.Second, 2}, // it is complete
			{15 * time.Second, 0, 2},
			{16 * time.Second, 3*time.Second + 1, 3},    // a third request
			{30 * time.Second, 16 * time.Second, 3},     // which took long
			{31 * time.Second, 31 * time.Second, 4},     // now
			{50 * time.Second, 31*time.Second + 1, 5},   // one nanosecond too old
			{time.Hour, 50 * time.Second, 6},            // answers are not kept that long
			{2 * time.Hour, 0, 7},                       // for any since
			{2*time.Hour + time.Minute, time.Second, 7}, // but it is kept for a while
		} {
			all.Go(func() {
				time.Sleep(test.after)
				if v, err := s.Do(t.Context(), "q", start.Add(test.since), u.ask); v != test.want || err != nil {
					t.Errorf("after %v, since %v: got %v, %v, want %d", test.after, test.since, v, err, test.want)
				}
			})
		}
		all.Wait()
	})
}

func TestShareSharesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s source.Share
		u := &upstream{takes: time.Second, err: errors.New("no such repository")}
		since := time.Now()
		_, errs := concurrently(5, func(int) (any, error) { return s.Do(t.Context(), "q", since, u.ask) })
		if slices.ContainsFunc(errs, func(err error) bool { return err != u.err }) {
			t.Errorf("got %v", errs)
		}
		if _, err := s.Do(t.Context(), "q", since, u.ask); err != u.err || u.asked != 1 {
			t.Errorf("later: %v, asked %d times", err, u.asked)
		}
	})
}

// A caller that gives up does not cancel the request for the others, even if it started it.
func TestShareCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s source.Share
		u := &upstream{takes: 10 * time.Second}
		since, cause := time.Now(), errors.New("gone")
		values, errs := concurrently(3, func(i int) (any, error) {
			time.Sleep(time.Duration(i))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if i < 2 {
				time.AfterFunc(time.Second, func() { cancel(cause) })
			}
			v, err := s.Do(ctx, "q", since, u.ask)
			if i < 2 && time.Since(since) > 2*time.Second {
				t.Errorf("caller %d left after %v", i, time.Since(since))
			}
			return v, err
		})
		if !errors.Is(errs[0], cause) || !errors.Is(errs[1], cause) || values[2] != 1 || errs[2] != nil || u.asked != 1 {
			t.Errorf("asked %d times, got %v, %v", u.asked, values, errs)
		}
	})
}

// A request that no caller waits for is cancelled before the last caller returns, and its answer is
// not used.
func TestShareEndsWithTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s source.Share
		since, calls, ended := time.Now(), 0, false
		ask := func(ctx context.Context) (any, error) {
			calls++
			<-ctx.Done()
			time.Sleep(time.Second) // clean up
			ended = true
			return "late", context.Cause(ctx)
		}
		_, errs := concurrently(3, func(i int) (any, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Minute)
			defer cancel()
			return s.Do(ctx, "q", since, ask)
		})
		if calls != 1 || !ended || slices.ContainsFunc(errs, func(err error) bool { return err != context.DeadlineExceeded }) {
			t.Errorf("%d calls, ended: %v, got %v", calls, ended, errs)
		}
		if v, err := s.Do(t.Context(), "q", since, (&upstream{}).ask); v != 1 || err != nil {
			t.Errorf("later: %v, %v", v, err)
		}
	})
}

// ask gets the deadline of its caller, so that it does not begin a pause that would outlast it.
func TestShareDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, ctx := range []context.Context{ctx, t.Context()} {
		want, limited := ctx.Deadline()
		new(source.Share).Do(ctx, "q", time.Time{}, func(ctx context.Context) (any, error) {
			if got, ok := ctx.Deadline(); !got.Equal(want) || ok != limited {
				t.Errorf("the deadline is %v, %v, want %v", got, ok, want)
			}
			return nil, nil
		})
	}
}

// A timeout that is not that of a caller's context is an answer.
func TestShareOwnTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s source.Share
		start, calls := time.Now(), 0
		dial := func(ctx context.Context) (any, error) {
			calls++
			time.Sleep(30 * time.Second)
			return nil, fmt.Errorf("dial: %w", context.DeadlineExceeded)
		}
		_, errs := concurrently(3, func(i int) (any, error) { return s.Do(t.Context(), "q", start, dial) })
		if calls != 1 || slices.ContainsFunc(errs, func(err error) bool { return err == nil }) {
			t.Errorf("%d calls, got %v", calls, errs)
		}
	})
}

func TestSharePanic(t *testing.T) {
	for name, ask := range map[string]func(context.Context) (any, error){
		"panic":  func(context.Context) (any, error) { time.Sleep(time.Nanosecond); panic("boom") },
		"goexit": func(context.Context) (any, error) { time.Sleep(time.Nanosecond); runtime.Goexit(); return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s source.Share
				since := time.Now()
				values, errs := concurrently(3, func(int) (any, error) { return s.Do(t.Context(), "q", since, ask) })
				for i, err := range errs {
					p, ok := errors.AsType[*source.PanicError](err)
					if values[i] != nil || err == nil || ok != (name == "panic") || ok && !strings.Contains(string(p.Stack), "share_test.go") {
						t.Errorf("got %v, %v", values[i], err)
					}
				}
			})
		})
	}
}

// A keyedAnswer answer has the key and the start of its request. It may also be used as an error or as
// the value of a panic.
type keyedAnswer struct {
	key   string
	begun time.Time
}

func (g *keyedAnswer) Error() string { return "refused: " + g.key }

var errLeft = errors.New("left")

// Whatever callers do, each gets an answer to its own request that began no earlier than it
// requires, or the end of its own context and no other, in time. No request continues after all
// callers have left.
func TestShareRandomCallers(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			w := &shareChecker{T: t}
			var all sync.WaitGroup
			for range 150 {
				c := shareCaller{
					key:         fmt.Sprint("key ", r.IntN(3)),
					arrives:     time.Duration(r.IntN(60)) * 500 * time.Millisecond,
					sinceOffset: time.Duration(r.IntN(5)) * time.Second,
					takes:       time.Duration(r.IntN(8)) * time.Second,
					how:         r.IntN(8),
				}
				if r.IntN(3) == 0 {
					c.patience, c.leaves = time.Duration(1+r.IntN(5000))*time.Millisecond, r.IntN(2) == 0
				}
				all.Go(func() { w.call(c) })
			}
			all.Wait()
			if n := w.running.Load(); n != 0 || t.Failed() {
				t.Errorf("seed %d; when all have left, %d questions are under way", seed, n)
			}
		})
	}
}

// A shareCaller describes the behavior of one caller.
type shareCaller struct {
	key                  string
	arrives, sinceOffset time.Duration // since is back before arrives
	takes                time.Duration // duration of ask, if this caller runs it
	how                  int           // outcome of ask
	patience             time.Duration // 0: unlimited
	leaves               bool          // it is cancelled after patience; otherwise patience is a timeout
}

type shareChecker struct {
	*testing.T
	share   source.Share
	running atomic.Int64 // running calls of ask
}

func (w *shareChecker) call(c shareCaller) {
	time.Sleep(c.arrives)
	ctx, cancel := context.WithCancelCause(w.Context())
	defer cancel(nil)
	ended := context.DeadlineExceeded
	if c.leaves {
		ended = errLeft
		time.AfterFunc(c.patience, func() { cancel(errLeft) })
	} else if c.patience > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.patience)
		defer stop()
	}
	start := time.Now()
	value, err := w.share.Do(ctx, c.key, start.Add(-c.sinceOffset), func(ctx context.Context) (any, error) { return w.ask(ctx, c) })
	got, _ := value.(*keyedAnswer)
	if panicked, ok := errors.AsType[*source.PanicError](err); ok {
		got = panicked.Value.(*keyedAnswer)
	}
	switch {
	case got != nil || errors.As(err, &got):
		if since := start.Add(-c.sinceOffset); got.key != c.key || got.begun.Before(since) {
			w.Errorf("%+v: the answer is to %s, begun %v before it may have been", c, got.key, since.Sub(got.begun))
		}
	case c.patience == 0 || !errors.Is(err, ended) || time.Since(start) != c.patience:
		w.Errorf("%+v: got %v, %v after %v", c, value, err, time.Since(start))
	}
}

func (w *shareChecker) ask(ctx context.Context, c shareCaller) (any, error) {
	w.running.Add(1)
	defer w.running.Add(-1)
	answer, takes := &keyedAnswer{c.key, time.Now()}, c.takes
	if deadline, ok := ctx.Deadline(); ok && c.how == 0 { // like a dialer
		takes = min(takes, time.Until(deadline))
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(takes):
	}
	switch {
	case takes < c.takes:
		return nil, fmt.Errorf("i/o timeout: %w", context.DeadlineExceeded)
	case c.how == 1:
		return nil, answer
	case c.how == 2:
		panic(answer)
	}
	return answer, nil
}

// A nil Share is for programs with a single object.
func TestShareNil(t *testing.T) {
	var s *source.Share
	u := &upstream{}
	for want := 1; want < 3; want++ {
		if v, err := s.Do(t.Context(), "q", time.Time{}, u.ask); v != want || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
	}
}

// A sizedAnswer returns itself as its weight.
type sizedAnswer int64

func (h sizedAnswer) Weight() int64 { return int64(h) }

// After a failure, the value may be a nil pointer, and its Weight is not called.
func TestShareFailureWithNilValue(t *testing.T) {
	boom := errors.New("boom")
	_, err := new(source.Share).Do(t.Context(), "key", time.Time{}, func(context.Context) (any, error) { return (*pointerAnswer)(nil), boom })
	testenv.ErrorIs(t, err, boom)
}

// A pointerAnswer has a Weight method that panics for nil.
type pointerAnswer struct{ weight int64 }

func (p *pointerAnswer) Weight() int64 { return p.weight }

// The kept answers are limited in number and in bytes; an answer that is too heavy is only returned
// to the callers that wait for it.
func TestShareBounded(t *testing.T) {
	var s source.Share
	start := time.Now()
	keptOf := func(n int, value any) (kept int) {
		for i := range n {
			s.Do(t.Context(), fmt.Sprint(value, i), start, func(context.Context) (any, error) { return value, nil })
		}
		for i := range n {
			kept++
			s.Do(t.Context(), fmt.Sprint(value, i), start, func(context.Context) (any, error) {
				kept--
				return nil, errors.New("not kept")
			})
		}
		return kept
	}
	for _, test := range []struct {
		n     int
		value any
		want  int
	}{
		{10, sizedAnswer(1 << 20), 10},
		{10, sizedAnswer(1<<20 + 1), 0},
	} {
		testenv.Equal(t, keptOf(test.n, test.value), test.want, "answers that are kept, of %d of weight %v", test.n, test.value)
	}
	before := measure.LiveBytes()
	for i := range 20_000 {
		s.Do(t.Context(), fmt.Sprintf("question %d", i), start, func(context.Context) (any, error) { return make([]byte, 4<<10), nil })
	}
	if grown := measure.LiveBytes() - before; grown > 24<<20 {
		t.Errorf("20,000 questions of 4 KiB leave %d bytes", grown)
	}
	runtime.KeepAlive(&s)
}
