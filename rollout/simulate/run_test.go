package simulate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/simulate"
)

func ExampleWriteTrace() {
	canary := &rollout.Canary{Metadata: rollout.Metadata{Name: "podinfo", Namespace: "test"}}
	canary.Spec.Analysis = rollout.Settings{
		Interval: minute, StepWeight: 50,
		Webhooks: []rollout.Hook{{Name: "approve", Type: rollout.HookConfirmRollout, URL: "http://tester.test/gate/check"}},
	}
	outcome, err := simulate.ParseOutcome(simulate.Hook, "approve=403")
	if err != nil {
		fmt.Println(err)
		return
	}
	s := &simulate.Simulation{Canary: canary, Script: simulate.Script{outcome}}
	if err := simulate.WriteTrace(os.Stdout, s.Run(context.Background())); err != nil {
		fmt.Println(err)
	}
	// Output:
	// TICK  TIME      PHASE                       ROUTES        FAILED  ITERATION
	//    0  0s        none>Initialized            100/0              0          0
	//                 event                     (info) podinfo.test: initialized, the primary is ready
	//    1  1m0s      Initialized>Waiting         100/0              0          0
	//                 confirm-rollout           approve: 403, pause
	//                 event                     (warn) podinfo.test: waits for the approval of the rollout by approve: status 403: Forbidden
	//                 waits on                  confirm-rollout gate approve
	//    2  2m0s      Waiting                     100/0              0          0
	//                 confirm-rollout           approve: 403, pause
	//                 waits on                  confirm-rollout gate approve
	// end: waits on confirm-rollout gate approve
}

func ticks(t *testing.T, ctx context.Context, s *simulate.Simulation) (all []*simulate.Tick, err error) {
	t.Helper()
	for tick, err := range s.Run(ctx) {
		if err != nil {
			return all, err
		}
		all = append(all, tick)
	}
	return all, nil
}

// TestRunErrors checks the errors that refuse or stop a simulation.
func TestRunErrors(t *testing.T) {
	canary := strategies[0].canary(0)
	all, err := ticks(t, t.Context(), &simulate.Simulation{Canary: canary, Script: script(t, []string{"hook laod=500"})})
	if len(all) > 0 || err == nil || !strings.Contains(err.Error(), `hook "laod": no such name`) {
		t.Errorf("a misspelt name: %d ticks, %v", len(all), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ticks(t, ctx, &simulate.Simulation{Canary: canary}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	if _, err := ticks(t, t.Context(), &simulate.Simulation{Canary: &rollout.Canary{}}); err == nil || !strings.Contains(err.Error(), "tick 0") {
		t.Errorf("a canary without a strategy: %v", err)
	}
}

// TestRunEndsAfterTicks checks that the limit of ticks ends an unfinished rollout.
func TestRunEndsAfterTicks(t *testing.T) {
	all, err := ticks(t, t.Context(), &simulate.Simulation{Canary: strategies[0].canary(0), Ticks: 4})
	if err != nil || len(all) != 4 || all[3].End != "Progressing after 4 ticks" {
		t.Errorf("%d ticks, %v, end %q", len(all), err, all[len(all)-1].End)
	}
}

// TestTraceHostileNames checks that a trace shows names of a manifest without control characters.
func TestTraceHostileNames(t *testing.T) {
	canary := strategies[0].canary(0)
	for i := range canary.Spec.Analysis.Webhooks {
		canary.Spec.Analysis.Webhooks[i].Name = "evil\x1b[2J\r\n" + canary.Spec.Analysis.Webhooks[i].Name
	}
	canary.Spec.Analysis.Metrics[0].Name = "rate\x00\u202e"
	s := &simulate.Simulation{Canary: canary, Script: script(t, []string{"hook confirm-promotion=403"})}
	var b bytes.Buffer
	must(t, simulate.WriteTrace(&b, s.Run(t.Context())))
	all, err := ticks(t, t.Context(), s)
	must(t, err)
	for _, tick := range all {
		b.WriteString(tick.String() + "\n")
	}
	for _, bad := range []string{"\x1b", "\r", "\x00", "\u202e"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("the trace has %q:\n%s", bad, b.String())
		}
	}
}
