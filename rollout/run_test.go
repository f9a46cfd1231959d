package rollout_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// Maximum weight is a cap: a step of 20 to at most 50 gives 20, 40, 50 (C-20).
func TestRunPromotes(t *testing.T) {
	w := newWorld()
	loop := clock()
	var saved []rollout.Status
	loop.Save = func(s rollout.Status) error { saved = append(saved, s); return nil }
	c := canary(rollout.HookConfirmRollout, rollout.HookPreRollout, rollout.HookRollout, rollout.HookConfirmTrafficIncrease,
		rollout.HookConfirmPromotion, rollout.HookPostRollout, rollout.HookRollback, rollout.HookEvent)
	s, err := w.analysis(c).Run(t.Context(), rollout.Status{Phase: rollout.Initialized}, loop)
	if err != nil {
		t.Fatal(err)
	}
	if s.Phase != rollout.Succeeded || s.PromotedSpec != "v2" || !s.Ended() {
		t.Errorf("ended as %+v", s)
	}
	if w.routes != (rollout.Routes{Primary: 100}) {
		t.Errorf("routes are %+v", w.routes)
	}
	var weights []int
	for i, s := range saved {
		if i == 0 || saved[i-1].CanaryWeight != s.CanaryWeight {
			weights = append(weights, s.CanaryWeight)
		}
	}
	if want := []int{0, 20, 40, 50, 0}; !slices.Equal(weights, want) {
		t.Errorf("weights %v, want %v", weights, want)
	}
	want := `1 Initialized cr-pass: app.test: the rollout is approved by confirm-rollout
2 Progressing revision-new: app.test: a new revision is rolled out
3 Progressing analysis-start: app.test: the analysis starts
4 Progressing pr-pass: app.test: pre-rollout webhook pre-rollout passed
5 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
6 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 20
7 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
8 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 40
9 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
10 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 50
11 Progressing cp-pass: app.test: the promotion is approved by confirm-promotion
12 Promoting promote-copy: app.test: the revision is copied to the primary
13 Finalising route-primary: app.test: all traffic goes to the primary
14 Succeeded promoted: app.test: promoted, the canary is scaled down
15 Succeeded po-pass: app.test: post-rollout webhook post-rollout passed
`
	if got := told(w.events); got != want {
		t.Errorf("told\n%swant\n%s", got, want)
	}
}

// The loop waits the interval of the manifest, at least ten seconds, and not at
// all before post-rollout webhooks.
func TestRunWaits(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: 10 * time.Second, 30 * time.Second: 30 * time.Second} {
		x := newScenario(rollout.Initialized)
		x.c.Spec.Analysis.Interval = rollout.Duration(interval)
		loop := clock()
		loop.Wait = func(_ context.Context, d time.Duration) error {
			if d != want {
				t.Errorf("interval %v: waits %v, want %v", interval, d, want)
			}
			return nil
		}
		if s, err := x.a.Run(t.Context(), begun, loop); err != nil || s.Phase != rollout.Succeeded {
			t.Errorf("Run = %+v, %v", s, err)
		}
	}
}

// What a step that is cut short has decided is saved: the rollback goes on.
func TestRunSavesWhatIsDecided(t *testing.T) {
	x := newScenario(rollout.Progressing)
	x.w.answers["rb"] = 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	x.w.before = func(call string) {
		if call == "set" {
			cancel()
		}
	}
	var saved rollout.Status
	loop := clock()
	loop.Save = func(s rollout.Status) error { saved = s; return nil }
	if _, err := x.a.Run(ctx, x.s, loop); !errors.Is(err, context.Canceled) || !saved.RollingBack {
		t.Fatalf("Run: %v, saved %+v", err, saved)
	}
	x.w.before, x.w.answers["rb"] = nil, 403
	if s, err := x.a.Run(t.Context(), saved, loop); err != nil || s.Phase != rollout.Failed {
		t.Errorf("Run = %+v, %v", s, err)
	}
}

// A status that cannot be saved ends the run, with what was to be saved.
func TestRunCannotSave(t *testing.T) {
	x := newScenario(rollout.Initialized)
	loop := clock()
	loop.Save = func(rollout.Status) error { return errScripted }
	s, err := x.a.Run(t.Context(), x.s, loop)
	if !errors.Is(err, errScripted) || s.Phase != rollout.Progressing || len(x.w.events) != 2 {
		t.Errorf("Run = %+v, %v\n%s", s, err, told(x.w.events))
	}
}

// A rollout that has ended is not begun again.
func TestRunEnded(t *testing.T) {
	x := newScenario(rollout.Failed)
	x.w.revision = "v3"
	if s, err := x.a.Run(t.Context(), x.s, clock()); err != nil || s.Phase != rollout.Failed || len(x.w.log) > 0 {
		t.Errorf("Run = %+v, %v; %v", s, err, x.w.log)
	}
}

// Without a clock of its own the loop waits the interval, and ends with its context.
func TestRunOnTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newScenario(rollout.Initialized)
		began := time.Now()
		s, err := x.a.Run(t.Context(), begun, rollout.Loop{})
		if err != nil || s.Phase != rollout.Succeeded {
			t.Fatalf("Run = %+v, %v", s, err)
		}
		if passed := time.Since(began); passed != 6*time.Minute {
			t.Errorf("took %v, want 6 intervals", passed)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		x = newScenario(rollout.Initialized)
		if s, err := x.a.Run(ctx, begun, rollout.Loop{}); !errors.Is(err, context.DeadlineExceeded) || s.CanaryWeight != 20 {
			t.Errorf("Run = %+v, %v", s, err)
		}
	})
}
