package simulate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// TestCrashes kills the process of a rollout before each call of a port in turn, and
// goes on from the status that was saved last: the rollout ends as it would have, the canary has traffic only while it runs, and before the promotion never more
// than its highest weight.
func TestCrashes(t *testing.T) {
	hooks := []rollout.Hook{
		{Name: "start", Type: rollout.HookConfirmRollout}, {Name: "smoke", Type: rollout.HookPreRollout}, {Name: "load"},
		{Name: "more", Type: rollout.HookConfirmTrafficIncrease}, {Name: "promote", Type: rollout.HookConfirmPromotion}, {Name: "undo", Type: rollout.HookRollback}, {Name: "tell", Type: rollout.HookPostRollout},
	}
	least := 99.0
	metrics := []rollout.Metric{{Name: rollout.SuccessRate, ThresholdRange: &rollout.Range{Min: &least}}}
	for name, settings := range map[string]rollout.Settings{
		"no analysis":        {StepWeight: 50},
		"weights":            {StepWeight: 20, MaxWeight: 60},
		"stepwise promotion": {StepWeights: []int{30, 60}, StepWeightPromotion: 25},
		"mirror":             {StepWeight: 30, MaxWeight: 60, Mirror: true},
		"a/b":                {Iterations: 2, Match: []rollout.Match{{}}},
		"blue/green":         {Iterations: 2, Mirror: true},
	} {
		for fails, want := range map[string]rollout.Phase{"": rollout.Succeeded, "load=500@3-": rollout.Failed} {
			settings.Webhooks, settings.Metrics, settings.Threshold = hooks, metrics, 2
			canary := &rollout.Canary{Metadata: rollout.Metadata{Name: "app"}, Spec: rollout.CanarySpec{Analysis: settings, SkipAnalysis: name == "no analysis"}}
			if canary.Spec.SkipAnalysis {
				want = rollout.Succeeded
			}
			calls := 0
			for at := 0; at <= calls; at++ {
				t.Run(fmt.Sprintf("%s/%s/%d", name, want, at), func(t *testing.T) {
					s, w, n := crash(t, canary, fails, at)
					if at == 0 {
						calls = n
					}
					if s.Phase != want || !s.Ended() || w.routes != (rollout.Routes{Primary: 100}) || w.scaled || (w.primary == "2") != (want == rollout.Succeeded) {
						t.Errorf("%+v, %+v", s, w.state)
					}
				})
			}
		}
	}
}

// crash runs a rollout whose process ends at the call with a number, 0 for none.
// It returns how many calls there were.
func crash(t *testing.T, canary *rollout.Canary, fails string, at int) (s rollout.Status, w *world, calls int) {
	var script Script
	if fails != "" {
		outcome, err := ParseOutcome(Hook, fails)
		if err != nil {
			t.Fatal(err)
		}
		script = Script{outcome}
	}
	w = &world{state: state{routes: rollout.Routes{Primary: 100}}, revision: "1"}
	number := 0
	w.says = func(of Subject, names ...string) string {
		if calls++; calls == at {
			panic(errKilled)
		}
		if max := canary.MaxWeight(); canary.Strategy() == rollout.Weighted && s.Phase == rollout.Progressing && w.routes.Canary > max || w.routes.Canary > 0 && !w.scaled {
			t.Errorf("%s %q: %+v", of, names, w.state)
		}
		return script.at(number, of, names...)
	}
	analysis := &rollout.Analysis{Canary: canary, Traffic: w, Target: w, Metrics: w, Hooks: w, Sink: w}
	for now := epoch; !s.Ended() && number < 100; {
		w.tick = new(Tick)
		next, wait, killed := step(t, analysis, now, s)
		if killed { // and nothing of it was saved
			continue
		}
		if s = next; wait > 0 {
			now, number, w.revision = now.Add(wait), number+1, "2"
		}
	}
	return s, w, calls
}

var errKilled = errors.New("killed")

func step(t *testing.T, analysis *rollout.Analysis, now time.Time, s rollout.Status) (next rollout.Status, wait time.Duration, killed bool) {
	defer func() {
		if err := recover(); err != nil && err != errKilled {
			panic(err)
		} else if err != nil {
			killed = true
		}
	}()
	next, wait, err := analysis.Step(t.Context(), now, s)
	if err != nil {
		t.Fatal(err)
	}
	return next, wait, false
}
