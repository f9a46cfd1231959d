package simulate

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate-io/headgate/rollout"
)

// TestCrashes ends the process of a rollout at each call of a port in turn, and
// goes on from the status that was saved last or, where the process was asked to
// end, from the one that the step returns: the rollout ends as it would have, the canary has traffic only while it runs, and before the promotion never more
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
			for at := 0; at <= 2*calls; at++ {
				t.Run(fmt.Sprintf("%s/%s/%d", name, want, at), func(t *testing.T) {
					s, w, n := crash(t, canary, fails, at/2, at%2 == 0)
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
// It was asked to end or killed, and returns how many calls there were.
func crash(t *testing.T, canary *rollout.Canary, fails string, at int, asked bool) (s rollout.Status, w *world, calls int) {
	var script Script
	if fails != "" {
		outcome, err := ParseOutcome(Hook, fails)
		if err != nil {
			t.Fatal(err)
		}
		script = Script{outcome}
	}
	begin := func() (context.Context, func()) { return context.WithCancel(t.Context()) }
	ctx, end := begin()
	w = &world{state: state{routes: rollout.Routes{Primary: 100}}, revision: "1"}
	number := 0
	w.says = func(of Subject, names ...string) string {
		if calls++; calls == at {
			end()
		}
		if max := canary.MaxWeight(); canary.Strategy() == rollout.Weighted && s.Phase == rollout.Progressing && w.routes.Canary > max || w.routes.Canary > 0 && !w.scaled {
			t.Errorf("%s %q: %+v", of, names, w.state)
		}
		return script.at(number, of, names...)
	}
	analysis := &rollout.Analysis{Canary: canary, Traffic: w, Target: w, Metrics: w, Hooks: w, Sink: w}
	for now := epoch; !s.Ended() && number < 100; {
		w.tick = new(Tick)
		next, wait, err := analysis.Step(ctx, now, s)
		if err != nil {
			if asked {
				s = next
			}
			ctx, end = begin()
			continue
		}
		if s = next; wait > 0 {
			now, number, w.revision = now.Add(wait), number+1, "2"
		}
	}
	end()
	return s, w, calls
}
