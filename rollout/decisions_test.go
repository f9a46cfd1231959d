package rollout_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

// A scenario is the situation of a row of the table "Decisions": a canary, its fake
// ports, and the status before the step.
type scenario struct {
	c    *rollout.Canary
	w    *fakePorts
	s    rollout.Status
	a    *rollout.Analysis
	time time.Time
}

var errScripted = errors.New("scripted")

// abbreviations lists the names of webhooks in the table.
var abbreviations = []struct {
	name string
	of   rollout.HookType
}{
	{"rb", rollout.HookRollback}, {"cr", rollout.HookConfirmRollout}, {"pr", rollout.HookPreRollout}, {"ro", rollout.HookRollout},
	{"ti", rollout.HookConfirmTrafficIncrease}, {"cp", rollout.HookConfirmPromotion}, {"po", rollout.HookPostRollout}, {"ev", rollout.HookEvent},
}

// newScenario returns a scenario of a canary with a webhook of each type and one metric. Every call succeeds.
func newScenario(phase rollout.Phase) *scenario {
	x := &scenario{c: canary(), w: newFakePorts(), time: epoch.Add(time.Minute)}
	least := 99.0
	for _, h := range abbreviations {
		x.c.Spec.Analysis.Webhooks = append(x.c.Spec.Analysis.Webhooks, rollout.Hook{Name: h.name, Type: h.of})
	}
	x.c.Spec.Analysis.Metrics = []rollout.Metric{{Name: "m", ThresholdRange: &rollout.Range{Min: &least}}}
	x.s = rollout.Status{Phase: phase, AppliedSpec: "v2", PromotedSpec: "v1"}
	x.a = x.w.analysis(x.c)
	switch phase {
	case "":
		x.s = rollout.Status{}
	case rollout.Initialized:
		x.s.AppliedSpec = "v1"
	case rollout.Succeeded:
		x.s.AppliedSpec, x.s.PromotedSpec = "v2", "v2"
	case rollout.Waiting:
		x.gate(rollout.HookConfirmRollout)
	case rollout.Progressing:
		x.s.PreRollout = true
		x.weight(20)
	case rollout.Promoting:
		x.s.PromotedSpec = "v2"
		x.weight(50)
	case rollout.Finalising:
		x.s.PromotedSpec = "v2"
	}
	return x
}

func (x *scenario) weight(w int) {
	x.s.CanaryWeight = w
	x.w.routes = rollout.Routes{Primary: 100 - w, Canary: w}
}

func (x *scenario) gate(of rollout.HookType) {
	i := slices.IndexFunc(x.c.Spec.Analysis.Webhooks, func(h rollout.Hook) bool { return h.Type == of })
	name := x.c.Spec.Analysis.Webhooks[i].Name
	x.s.Gate = &rollout.Gate{Type: of, Name: name, Since: epoch}
	x.w.answers[name] = 403
}

func (x *scenario) hook(name string) *rollout.Hook {
	hooks := x.c.Spec.Analysis.Webhooks
	return &hooks[slices.IndexFunc(hooks, func(h rollout.Hook) bool { return h.Name == name })]
}

// TestDecisions runs one step for each scenario and compares it with
// testdata/decisions.txt: phase, situation, next phase, calls and events, and changes
// of the status.
func TestDecisions(t *testing.T) {
	var rows strings.Builder
	for _, key := range slices.Sorted(maps.Keys(scenarios)) {
		next, effects, status := runScenario(t, key)
		fmt.Fprintf(&rows, "%s | %s | %s | %s\n", key, next, effects, status)
	}
	const file = "testdata/decisions.txt"
	if *updateManifests {
		must(t, os.WriteFile(file, []byte(rows.String()), 0o644))
	}
	text, err := os.ReadFile(file)
	must(t, err)
	want := strings.Split(string(text), "\n")
	for i, got := range strings.Split(rows.String(), "\n") {
		if i >= len(want) || got != want[i] {
			t.Errorf("got %s\nwant %s", got, want[min(i, len(want)-1)])
		}
	}
}

// runScenario runs one step of a scenario and returns the columns of the table.
func runScenario(t *testing.T, key string) (next, effects, status string) {
	t.Helper()
	x := loadScenario(key)
	before := x.s
	after, wait, err := x.a.Step(t.Context(), x.time, before)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	if x.w.routes.Canary != after.CanaryWeight {
		t.Errorf("%s: the status says weight %d, the routes are %+v", key, after.CanaryWeight, x.w.routes)
	}
	decided := after.RollingBack && !before.RollingBack || after.PostRollout || after.Phase == rollout.Promoting && before.Phase != rollout.Promoting
	testenv.Equal(t, wait == 0, decided, "%s: the next step comes after %v", key, wait)
	next = string(after.Phase)
	if next == "" {
		next = "none"
	}
	return next, orNone(strings.Join(x.w.log, ", ")), orNone(strings.Join(changes(before, after), ", "))
}

func orNone(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// changes returns the differences of two statuses, except fields that every transition changes.
func changes(a, b rollout.Status) (list []string) {
	say := func(differs bool, text string, args ...any) {
		if differs {
			list = append(list, fmt.Sprintf(text, args...))
		}
	}
	say(a.CanaryWeight != b.CanaryWeight, "weight %d", b.CanaryWeight)
	say(a.FailedChecks != b.FailedChecks, "failed %d", b.FailedChecks)
	say(a.Iterations != b.Iterations, "iteration %d", b.Iterations)
	say(a.AppliedSpec != b.AppliedSpec, "applied %s", cmp.Or(b.AppliedSpec, "none"))
	say(a.PromotedSpec != b.PromotedSpec, "promoted %s", cmp.Or(b.PromotedSpec, "none"))
	switch {
	case b.Gate == nil:
		say(a.Gate != nil, "no gate")
	case a.Gate == nil || a.Gate.Since != b.Gate.Since || a.Gate.Name != b.Gate.Name:
		say(true, "gate %s", b.Gate.Name)
	}
	say(b.NotReady != a.NotReady && b.NotReady != "", "%s not ready", b.NotReady)
	say(a.NotReady == "traffic" && b.NotReady == "", "traffic ready")
	say(b.RollingBack && !a.RollingBack, "rollback to be done")
	say(b.Request != nil && !a.Request.Accepted && b.Request.Accepted, "request accepted")
	say(a.Request != nil && b.Request == nil && b.Phase != rollout.Failed, "no request")
	say(b.PostRollout && !a.PostRollout, "post-rollout to be done")
	return list
}
