package notify_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/testenv"
)

// A scriptedReceivers answers for receivers and records their events.
type scriptedReceivers struct {
	answer func(ctx context.Context, receiver string, event, attempt int) error // nil: every event is accepted

	mu       sync.Mutex
	start    time.Time
	attempts map[string]int
	times    []time.Duration  // of the attempts
	accepted map[string][]int // the events that a receiver accepted
	lost     map[int]int      // number of lost events that was delivered with an event
	reports  []string         // reports of losses begin with "lost: "
}

// dispatch starts a dispatcher for receivers by name.
func (s *scriptedReceivers) dispatch(receivers ...string) *notify.Dispatcher[int] {
	s.start, s.attempts, s.accepted, s.lost = time.Now(), map[string]int{}, map[string][]int{}, map[int]int{}
	d := &notify.Dispatcher[int]{Report: func(err error, lost bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reports = append(s.reports, map[bool]string{true: "lost: "}[lost]+err.Error())
	}}
	for _, name := range receivers {
		d.Receivers = append(d.Receivers, &notify.Receiver[int]{Name: name, MinRank: 1, Deliver: func(ctx context.Context, event, lost int) error {
			s.mu.Lock()
			key := fmt.Sprint(name, event)
			s.attempts[key]++
			attempt := s.attempts[key]
			s.times = append(s.times, time.Since(s.start))
			s.lost[event] = lost
			s.mu.Unlock()
			if s.answer != nil {
				if err := s.answer(ctx, name, event, attempt); err != nil {
					return err
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.accepted[name] = append(s.accepted[name], event)
			return nil
		}})
	}
	d.Start()
	return d
}

func emit(d *notify.Dispatcher[int], from, to int) {
	for _, n := range numbers(from, to) {
		d.Emit(n, fmt.Sprintf("event %d", n), 1)
	}
}

func numbers(from, to int) (list []int) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// withinJitter reports whether got is the time want of the schedule, given that each pause is lengthened by up to a tenth.
func withinJitter(got, want time.Duration) bool { return got >= want && got <= want+want/10 }

func TestSchedule(t *testing.T) {
	refusal := func(code int, after time.Duration) error {
		return &notify.Refusal{Code: code, After: after, Err: errors.New("no")}
	}
	for name, test := range map[string]struct {
		answers []error // the last one is repeated
		times   string  // of the attempts, in seconds
		reports int
		lost    bool
	}{
		"mends":             {append(slices.Repeat([]error{refusal(503, 0)}, 7), nil), "0 1 3 7 15 31 61 91", 1, false},
		"does not mend":     {[]error{errors.New("no route")}, "0 1 3 7 15 31 61 91 121 151 181 211 241 271", 2, true},
		"not accepted":      {[]error{refusal(400, 0)}, "0", 1, true},
		"not implemented":   {[]error{refusal(501, 0)}, "0", 1, true},
		"cannot succeed":    {[]error{refusal(0, 0)}, "0", 1, true},
		"wrapped":           {[]error{fmt.Errorf("post: %w", refusal(403, 0))}, "0", 1, true},
		"not trusted":       {[]error{&tls.CertificateVerificationError{Err: errors.New("no")}}, "0", 1, true},
		"asks to wait":      {[]error{refusal(429, 7*time.Second), refusal(500, 0), refusal(503, 24*time.Hour), refusal(503, time.Second), nil}, "0 7 9 69 77", 1, false},
		"asks for too long": {[]error{refusal(503, time.Hour)}, "0 60 120 180 240", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scriptedReceivers{answer: func(_ context.Context, _ string, event, attempt int) error {
					if event == 1 {
						return test.answers[min(attempt, len(test.answers))-1]
					}
					return nil
				}}
				d := s.dispatch("e")
				emit(d, 1, 2)
				time.Sleep(10 * time.Minute)
				err := d.Close(t.Context())
				want := strings.Fields(test.times)
				if len(s.times) != len(want)+1 || len(s.reports) != test.reports || test.lost != (err != nil) || s.lost[2] != map[bool]int{true: 1}[test.lost] {
					t.Fatalf("%v, %q, %v, %v", s.times, s.reports, s.lost, err)
				}
				for i := range want {
					if at, _ := time.ParseDuration(want[i] + "s"); !withinJitter(s.times[i], at) {
						t.Errorf("%v, want %s", s.times, test.times)
					}
				}
				last := s.reports[len(s.reports)-1]
				if test.lost && (!strings.HasPrefix(last, "lost: tell e of event 1, it is lost: ") || !strings.HasPrefix(err.Error(), "tell e: 1 event is lost, the last because: ")) {
					t.Errorf("%q %v", s.reports, err)
				}
				if !test.lost && !strings.HasPrefix(last, "tell e of event 1, it is tried again: ") {
					t.Errorf("%q", s.reports)
				}
			})
		})
	}
}

// TestIndependent checks that a receiver that hangs delays neither Emit nor other receivers, and delays Close only until
// its context ends.
func TestIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedReceivers{answer: func(ctx context.Context, receiver string, _, _ int) error {
			if receiver == "hanging" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		d := s.dispatch("hanging", "good", "other")
		emit(d, 1, 20)
		d.Emit(21, "of low rank", 0)
		synctest.Wait()
		if want := numbers(1, 20); !slices.Equal(s.accepted["good"], want) || !slices.Equal(s.accepted["other"], want) || time.Since(s.start) != 0 {
			t.Errorf("after %v: %v", time.Since(s.start), s.accepted)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := d.Close(ctx)
		if want := "tell hanging: 20 events are lost, the last because: there was no time left: context canceled"; err == nil || err.Error() != want || time.Since(s.start) != time.Minute {
			t.Errorf("after %v: %v", time.Since(s.start), err)
		}
		if again := d.Close(ctx); again == nil || again.Error() != err.Error() {
			t.Errorf("closed again: %v", again)
		}
	}) // synctest.Test fails if a goroutine is left
}

// TestRecovery checks that a receiver that recovers gets the events that it missed, in order, and that Delivered is called
// for each.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedReceivers{}
		s.answer = func(context.Context, string, int, int) error {
			if time.Since(s.start) < 4*time.Minute {
				return errors.New("down")
			}
			return nil
		}
		d := s.dispatch("e")
		var delivered []int
		d.Delivered = func(n int) { delivered = append(delivered, n) }
		for n := range 50 {
			emit(d, n+1, n+1)
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Minute)
		testenv.Equal(t, d.Close(t.Context()), nil)
		if !slices.Equal(s.accepted["e"], numbers(1, 50)) || !slices.Equal(delivered, s.accepted["e"]) || len(s.reports) != 1 {
			t.Errorf("%v %v %q", s.accepted["e"], delivered, s.reports)
		}
	})
}

// TestFullQueue checks that a full queue drops the oldest events of the lowest rank, and that the loss is reported.
func TestFullQueue(t *testing.T) {
	for name, test := range map[string]struct {
		rank func(n int) int
		told []int
	}{
		"one rank":           {func(int) int { return 1 }, append([]int{1}, numbers(146, 401)...)},
		"the low are last":   {func(n int) int { return map[bool]int{true: 2, false: 1}[n <= 301] }, append([]int{1}, numbers(46, 301)...)},
		"the high are older": {func(n int) int { return map[bool]int{true: 3, false: 2}[n <= 101] }, append(numbers(1, 101), numbers(246, 401)...)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open := make(chan struct{})
				s := &scriptedReceivers{answer: func(_ context.Context, _ string, event, _ int) error {
					if event == 1 {
						<-open
					}
					return nil
				}}
				d := s.dispatch("e")
				for _, n := range numbers(1, 401) {
					d.Emit(n, "event", test.rank(n))
					synctest.Wait()
				}
				close(open)
				err := d.Close(t.Context())
				want := "tell e: 144 events are lost, the last because: more was waiting than is kept"
				if !slices.Equal(s.accepted["e"], test.told) || err == nil || err.Error() != want || !slices.Equal(s.reports, []string{"lost: " + want}) {
					t.Errorf("%v, %v, %q", s.accepted["e"], err, s.reports)
				}
				if s.lost[test.told[1]] != 144 || s.lost[test.told[2]] != 0 {
					t.Errorf("%v", s.lost)
				}
			})
		})
	}
}

// TestClose checks that Close cuts the current pause short, so that a receiver that has recovered gets all events, and
// that the end of its context cuts later pauses short. Events that are emitted later are lost.
func TestClose(t *testing.T) {
	for name, test := range map[string]struct {
		up      time.Duration // when the receiver recovers
		before  time.Duration // time before Close
		told    []int
		want    string
		seconds time.Duration // duration of Close
	}{
		"back":     {100 * time.Second, 95 * time.Second, numbers(1, 3), "<nil>", 7},
		"not back": {time.Hour, 0, nil, "tell e: 3 events are lost, the last because: there was no time left: down", 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scriptedReceivers{}
				s.answer = func(context.Context, string, int, int) error {
					if time.Since(s.start) < test.up {
						return errors.New("down")
					}
					return nil
				}
				d := s.dispatch("e")
				emit(d, 1, 3)
				time.Sleep(test.before)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err := d.Close(ctx)
				if took := time.Since(s.start) - test.before; fmt.Sprint(err) != test.want || !slices.Equal(s.accepted["e"], test.told) || !withinJitter(took, test.seconds*time.Second) {
					t.Errorf("%v after %v: %v", err, took, s.times)
				}
				emit(d, 4, 4)
				if err := d.Close(ctx); err == nil || !strings.HasSuffix(err.Error(), "it came after the end") {
					t.Error(err)
				}
			})
		})
	}
}

// TestConcurrent emits from many goroutines while the dispatcher is closed.
func TestConcurrent(t *testing.T) {
	s := &scriptedReceivers{}
	d := s.dispatch("e")
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() { emit(d, 10*n+1, 10*n+10) })
	}
	d.Close(t.Context())
	all.Wait()
	lost := 0
	if err := d.Close(t.Context()); err != nil {
		if _, scanErr := fmt.Sscanf(err.Error(), "tell e: %d", &lost); scanErr != nil {
			t.Error(err)
		}
	}
	testenv.Equal(t, len(s.accepted["e"])+lost, 80, "%d told, %d lost", len(s.accepted["e"]), lost)
}
