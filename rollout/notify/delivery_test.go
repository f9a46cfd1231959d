package notify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

// A script answers events in the name of webhooks, and keeps when it was asked.
type script struct {
	start time.Time
	do    func(ctx context.Context, hook string, event rollout.Event, attempt int) error // nil for success

	mu       sync.Mutex
	attempts map[string]int
	asked    []string // as in "5s events 1 lost=2"
	told     map[string][]int64
	reports  []string
}

func (s *script) Event(ctx context.Context, hook rollout.Hook, event rollout.Event) (rollout.Answer, error) {
	s.mu.Lock()
	key := fmt.Sprint(hook.Name, event.Sequence)
	if s.attempts == nil {
		s.attempts, s.told = make(map[string]int), make(map[string][]int64)
	}
	s.attempts[key]++
	attempt := s.attempts[key]
	asked := fmt.Sprintf("%v %s %d", time.Since(s.start), hook.Name, event.Sequence)
	if lost := hook.Metadata["eventsLost"]; lost != "" {
		asked += " lost=" + lost
	}
	s.asked = append(s.asked, asked)
	s.mu.Unlock()
	if s.do != nil {
		if err := s.do(ctx, hook.Name, event, attempt); err != nil {
			return rollout.Answer{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[hook.Name] = append(s.told[hook.Name], event.Sequence)
	return rollout.Answer{}, nil
}

func (s *script) report(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, err.Error())
}

// dispatch starts a dispatcher for webhooks of type event.
func (s *script) dispatch(t *testing.T, hooks ...string) *notify.Dispatcher {
	t.Helper()
	c := canary()
	for _, name := range hooks {
		c.Spec.Analysis.Webhooks = append(c.Spec.Analysis.Webhooks, rollout.Hook{Name: name, Type: rollout.HookEvent, URL: "http://h/", Metadata: map[string]string{"team": "a"}})
	}
	s.start = time.Now()
	d, err := notify.Start(t.Context(), notify.Config{Canary: c, Caller: s, Report: s.report})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func numbers(from, to int64) (list []int64) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// TestIndependent: a receiver that hangs holds up neither Emit nor the others.
func TestIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(ctx context.Context, hook string, _ rollout.Event, _ int) error {
			if hook == "hanging" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		d := s.dispatch(t, "hanging", "good", "other")
		for n := range int64(20) {
			d.Emit(t.Context(), event(n+1, ""))
		}
		synctest.Wait()
		if want := numbers(1, 20); !slices.Equal(s.told["good"], want) || !slices.Equal(s.told["other"], want) || time.Since(s.start) != 0 {
			t.Errorf("after %v: %v", time.Since(s.start), s.told)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := d.Close(ctx)
		var lost *notify.LostError
		if !errors.As(err, &lost) || lost.Events != 20 || lost.Receiver != `webhook "hanging"` || time.Since(s.start) != time.Minute {
			t.Errorf("after %v: %v", time.Since(s.start), err)
		}
		if again := d.Close(ctx); again == nil || again.Error() != err.Error() {
			t.Errorf("closed again: %v", again)
		}
	}) // which fails when a goroutine is left
}

// TestSchedule checks when what is tried again, and what is not.
func TestSchedule(t *testing.T) {
	status := func(code int) error { return fmt.Errorf("x: %w", &rollout.StatusError{Code: code}) }
	for name, test := range map[string]struct {
		do      func(attempt int) error
		asked   string
		reports int
		lost    bool
	}{
		"mends": {func(n int) error {
			if n < 8 {
				return status(503)
			}
			return nil
		}, "0s 1s 3s 7s 15s 31s 1m1s 1m31s", 1, false},
		"does not mend":      {func(int) error { return errors.New("no route") }, "0s 1s 3s 7s 15s 31s 1m1s 1m31s 2m1s 2m31s 3m1s 3m31s 4m1s 4m31s", 2, true},
		"not accepted":       {func(int) error { return status(400) }, "0s", 1, true},
		"not implemented":    {func(int) error { return status(501) }, "0s", 1, true},
		"too many, accepted": {func(n int) error { return map[bool]error{true: status(429)}[n < 2] }, "0s 1s", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{do: func(_ context.Context, _ string, e rollout.Event, attempt int) error {
					if e.Sequence == 1 {
						return test.do(attempt)
					}
					return nil
				}}
				d := s.dispatch(t, "e")
				d.Emit(t.Context(), event(1, ""))
				d.Emit(t.Context(), event(2, ""))
				time.Sleep(10 * time.Minute)
				err := d.Close(t.Context())
				var times []string
				for _, asked := range s.asked[:len(s.asked)-1] {
					times = append(times, strings.Fields(asked)[0])
				}
				if got := strings.Join(times, " "); got != test.asked || len(s.reports) != test.reports || test.lost != (err != nil) {
					t.Errorf("%s, %q, %v", got, s.reports, err)
				}
				if last := s.asked[len(s.asked)-1]; strings.HasSuffix(last, " e 2 lost=1") != test.lost {
					t.Error(last)
				}
				if test.lost && (!strings.HasPrefix(s.reports[len(s.reports)-1], `tell webhook "e" of event 1 (x), it is lost: `) || !strings.HasPrefix(err.Error(), `tell webhook "e": 1 event is lost, the last because: `)) {
					t.Errorf("%q %v", s.reports, err)
				}
			})
		})
	}
}

// TestRecovery: a receiver that comes back is told what it missed, in order.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.do = func(context.Context, string, rollout.Event, int) error {
			if time.Since(s.start) < 4*time.Minute {
				return errors.New("down")
			}
			return nil
		}
		d := s.dispatch(t, "e")
		for n := range int64(50) {
			d.Emit(t.Context(), event(n+1, ""))
			time.Sleep(time.Second)
		}
		time.Sleep(4 * time.Minute)
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if !slices.Equal(s.told["e"], numbers(1, 50)) || len(s.reports) != 1 {
			t.Errorf("%v %q", s.told["e"], s.reports)
		}
	})
}

// TestFull drops the oldest that matter least, and says so.
func TestFull(t *testing.T) {
	for name, test := range map[string]struct {
		size  int // of a message
		alert func(n int64) rollout.Severity
		told  []int64
		lost  int
	}{
		"number": {10, func(int64) rollout.Severity { return "" }, append([]int64{1}, numbers(146, 401)...), 144},
		"alerts stay": {10, func(n int64) rollout.Severity {
			return map[bool]rollout.Severity{true: rollout.Info}[n <= 301]
		}, append([]int64{1}, numbers(46, 301)...), 144},
		"errors stay longest": {10, func(n int64) rollout.Severity {
			if n <= 101 {
				return rollout.Error
			}
			return rollout.Warn
		}, append(numbers(1, 101), numbers(246, 401)...), 144},
		"bytes": {1 << 20, func(int64) rollout.Severity { return "" }, append([]int64{1}, numbers(399, 401)...), 397},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open := make(chan struct{})
				s := &script{do: func(_ context.Context, _ string, e rollout.Event, _ int) error {
					if e.Sequence == 1 {
						<-open
					}
					return nil
				}}
				d := s.dispatch(t, "e")
				text := strings.Repeat("x", test.size)
				for n := range int64(401) {
					e := event(n+1, test.alert(n+1))
					e.Message = text
					d.Emit(t.Context(), e)
					synctest.Wait()
				}
				close(open)
				err := d.Close(t.Context())
				var lost *notify.LostError
				if !slices.Equal(s.told["e"], test.told) || !errors.As(err, &lost) || lost.Events != test.lost {
					t.Errorf("%v, %v", s.told["e"], err)
				}
				if want := fmt.Sprintf(`tell webhook "e": %d events are lost, the last because: more was waiting than is kept`, test.lost); len(s.reports) != 1 || s.reports[0] != want || err.Error() != want {
					t.Errorf("%q, %v, want %s", s.reports, err, want)
				}
				want := fmt.Sprintf("0s e %d lost=%d", test.told[1], test.lost)
				if s.asked[1] != want || strings.Contains(s.asked[2], "lost") {
					t.Errorf("%q, want %q", s.asked[1:3], want)
				}
			})
		})
	}
}

// TestEnd ends a wait, and the goroutine with it.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(context.Context, string, rollout.Event, int) error { return errors.New("down") }}
		d := s.dispatch(t, "e")
		for n := range int64(3) {
			d.Emit(t.Context(), event(n+1, ""))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := d.Close(ctx)
		if want := `tell webhook "e": 3 events are lost, the last because: there was no time left: down`; err == nil || err.Error() != want || time.Since(s.start) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(s.start))
		}
	})
}

// TestLastAttempt: at the end a receiver is not waited for in the middle of a
// pause: one that came back is told everything.
func TestLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.do = func(context.Context, string, rollout.Event, int) error {
			if time.Since(s.start) < 100*time.Second {
				return errors.New("down")
			}
			return nil
		}
		d := s.dispatch(t, "e")
		for n := range int64(3) {
			d.Emit(t.Context(), event(n+1, ""))
		}
		time.Sleep(95 * time.Second) // attempts are at 1m31s and 2m1s
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := d.Close(ctx); err != nil || !slices.Equal(s.told["e"], numbers(1, 3)) || time.Since(s.start) != 102*time.Second {
			t.Errorf("%v after %v: %q", err, time.Since(s.start), s.asked)
		}
	})
}

// TestEmitAfterCancel: the end of the analysis does not end the telling of it.
func TestEmitAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &script{start: time.Now(), do: func(ctx context.Context, _ string, _ rollout.Event, _ int) error { return ctx.Err() }}
		d, err := notify.Start(ctx, notify.Config{Canary: canary(), Caller: s, EventURL: "https://h/global"})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		d.Emit(ctx, event(1, ""))
		if err := d.Close(t.Context()); err != nil || !slices.Equal(s.told["events"], []int64{1}) {
			t.Error(err, s.asked)
		}
	})
}
