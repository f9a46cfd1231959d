package rollout_test

import (
	"testing"

	"github.com/headgate-io/headgate/rollout"
)

// A rollback and a promotion are decided in the status that was saved before
// they are done.
func TestRunStoresDecisions(t *testing.T) {
	rollouts(t, func(t *testing.T, _ rollout.Phase, begin func() (*world, *rollout.Analysis)) {
		w, a := begin()
		loop, saved := clock(), begun
		loop.Save = func(s rollout.Status) error { saved = stored(t, s); return nil }
		w.before = func(call string) {
			restarts := w.revision != saved.AppliedSpec
			if call == "promote" && saved.Phase != rollout.Promoting || call == "down" && !restarts && !saved.RollingBack && saved.Phase != rollout.Finalising {
				t.Errorf("%s is done when %+v is saved", call, saved)
			}
		}
		if _, err := a.Run(t.Context(), begun, loop); err != nil {
			t.Fatal(err)
		}
	})
}

// Without an analysis a canary is promoted all the same wherever the program
// ends: one that is scaled down already is not ready, and is not waited for.
func TestSkipAnalysisCutShort(t *testing.T) {
	begin := func() (*world, *rollout.Analysis) {
		x := newScenario(rollout.Initialized)
		x.c.Spec.SkipAnalysis = true
		x.w.times = append(x.w.times, func(call string) {
			switch call {
			case "up":
				delete(x.w.fails, "canary")
			case "down":
				x.w.fails["canary"] = errScripted
			}
		})
		return x.w, x.a
	}
	w, a := begin()
	calls := 0
	w.times = append(w.times, func(string) { calls++ })
	if s, err := a.Run(t.Context(), begun, clock()); err != nil || s.Phase != rollout.Succeeded {
		t.Fatalf("Run = %+v, %v", s, err)
	}
	for how, crash := range crashes {
		for at := 1; at <= calls; at++ {
			w, a := begin()
			s, _ := cutShort(t, w, a, at, crash)
			if s, err := a.Run(t.Context(), s, clock()); err != nil || s.Phase != rollout.Succeeded || s.PromotedSpec != "v2" {
				t.Errorf("%s %d: Run = %+v, %v\n%s", how, at, s, err, told(w.events))
			}
		}
	}
}
