package rollout_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

// The payload of a webhook has the phase of the canary, the checksum of the revision
// that the call is about, and the metadata.
func TestPayloads(t *testing.T) {
	for key, want := range map[string]string{
		"Initialized: new revision, cr passes":     "Initialized v2",
		"Waiting: at cr, closed":                   "Waiting v2, Waiting v2",
		"Waiting: at cr, another revision, closed": "Waiting v2, Waiting v3",
		"Waiting: at ti, passes":                   "Waiting v2, Waiting v2, Waiting v2",
		"Progressing: at the maximum, cp passes":   "Progressing v2, Progressing v2, Progressing v2",
		"Succeeded: post-rollout to be done":       "Succeeded v2",
		"Failed: post-rollout to be done":          "Failed v2",
		"Succeeded: new revision, cr passes":       "Succeeded v3",
	} {
		x := loadScenario(key)
		for i := range x.c.Spec.Analysis.Webhooks {
			x.c.Spec.Analysis.Webhooks[i].Metadata = map[string]string{"k": "v"}
		}
		step(t, x.a, x.s)
		var got []string
		for _, p := range x.w.payloads {
			for _, revision := range []string{"v1", "v2", "v3"} {
				if p.Checksum == rollout.Checksum(revision) {
					got = append(got, fmt.Sprintf("%s %s", p.Phase, revision))
				}
			}
			if p.Name != "app" || p.Namespace != "test" || p.Metadata["k"] != "v" {
				t.Errorf("%s: payload %+v", key, p)
			}
		}
		testenv.Equal(t, strings.Join(got, ", "), want, "%s: called in", key)
	}
}

// The metadata has the details that a user needs to decide. Keys of the webhook take precedence.
func TestPayloadMetadata(t *testing.T) {
	for key, want := range map[string]string{
		"Initialized: new revision, cr passes":   "v2 0 0/3 0",
		"Waiting: at ti, passes":                 "v2 20 1/3 0",
		"Progressing: at the maximum, cp passes": "v2 50 3/3 0",
		"Succeeded: new revision, cr passes":     "v3 0 0/3 0",
	} {
		x := loadScenario(key)
		for i := range x.c.Spec.Analysis.Webhooks {
			x.c.Spec.Analysis.Webhooks[i].Metadata = map[string]string{"cmd": "test", "headgate.threshold": "own"}
		}
		step(t, x.a, x.s)
		for _, p := range x.w.payloads {
			m := p.Metadata
			got := fmt.Sprintf("%s %s %s %s", m["headgate.revision"], m["headgate.weight"], m["headgate.step"], m["headgate.failures"])
			if got != want || m["headgate.threshold"] != "own" || m["cmd"] != "test" || len(m) != 6 {
				t.Errorf("%s: %q, want %q: %v", key, got, want, m)
			}
		}
		if len(x.w.payloads) == 0 {
			t.Errorf("%s: nothing was called", key)
		}
	}
}

// A webhook without a type is called as one of type rollout.
func TestHookWithoutType(t *testing.T) {
	x := newScenario(rollout.Progressing)
	x.hook("ro").Type = ""
	x.w.answers["ro"] = 500
	testenv.Equal(t, step(t, x.a, x.s).FailedChecks, 1)
}

// A missing field of the analysis, or a status that no analysis can have written, is
// an error. The step then makes no calls and changes nothing.
func TestStepRefuses(t *testing.T) {
	for want, set := range map[string]func(*scenario){
		"analysis: no canary":                    func(x *scenario) { x.a.Canary = nil },
		"analysis: no traffic":                   func(x *scenario) { x.a.Traffic = nil },
		"analysis: no target":                    func(x *scenario) { x.a.Target = nil },
		"and nothing calls them":                 func(x *scenario) { x.a.Hooks = nil },
		"no rollout would end":                   func(x *scenario) { x.c.Spec.Analysis.StepWeight = 0 },
		`status: phase "Weighting"`:              func(x *scenario) { x.s.Phase = "Weighting" },
		"status: canaryWeight -1: want 0 to 100": func(x *scenario) { x.s.CanaryWeight = -1 },
		"status: canaryWeight 101":               func(x *scenario) { x.s.CanaryWeight = 101 },
		"status: failedChecks -3,":               func(x *scenario) { x.s.FailedChecks = -3 },
		"iterations -1":                          func(x *scenario) { x.s.Iterations = -1 },
		"sequence -9: want no negative number":   func(x *scenario) { x.s.Sequence = -9 },
		`status: gate.type "pre-rollout"`:        func(x *scenario) { x.s.Gate = &rollout.Gate{Type: rollout.HookPreRollout} },
	} {
		x := newScenario(rollout.Progressing)
		set(x)
		s, wait, err := x.a.Step(t.Context(), epoch, x.s)
		if err == nil || !strings.Contains(err.Error(), want) || wait != 0 || !reflect.DeepEqual(s, x.s) || len(x.w.log) > 0 {
			t.Errorf("Step = %+v, %v, %v; %v; want an error with %q", s, wait, err, x.w.log, want)
		}
		if _, err := x.a.Run(t.Context(), x.s, instantLoop()); err == nil {
			t.Errorf("Run with %s: no error", want)
		}
	}
}

// The Sink calls webhooks of type event, so an analysis without Hooks may have them.
func TestEventHooksAreNotCalled(t *testing.T) {
	x := newScenario(rollout.Progressing)
	x.c.Spec.Analysis.Webhooks = []rollout.Hook{{Name: "ev", Type: rollout.HookEvent}}
	x.a.Hooks = nil
	testenv.Equal(t, step(t, x.a, x.s).CanaryWeight, 40)
}

// If routes do not sum to 100, only the share of the canary counts. Routes that a step sets sum to 100.
func TestRoutesByHand(t *testing.T) {
	for _, r := range []rollout.Routes{{Primary: 10, Canary: 20}, {Canary: 20}, {Primary: 300, Canary: 20}} {
		x := newScenario(rollout.Progressing)
		x.w.routes = r
		if s := step(t, x.a, x.s); s.CanaryWeight != 40 || x.w.routes != (rollout.Routes{Primary: 60, Canary: 40}) {
			t.Errorf("routes %+v: status %+v, routes %+v", r, s, x.w.routes)
		}
	}
	for _, share := range []int{-1, 101} {
		x := newScenario(rollout.Progressing)
		x.w.routes.Canary = share
		s := step(t, x.a, x.s)
		if last := x.w.events[len(x.w.events)-1]; s.CanaryWeight != 20 || last.Code != rollout.EventTrafficError {
			t.Errorf("share %d: status %+v, told %s", share, s, eventLog(x.w.events))
		}
	}
}

// The values of metrics are in the status, limited in number, and in the events that
// they cause (reference E, #1810).
func TestMetricValues(t *testing.T) {
	x := newScenario(rollout.Progressing)
	x.w.values["m"], x.w.values["inf"] = 99.5, math.Inf(1)
	x.metric(rollout.Metric{Name: "inf"})
	for i := range 100 {
		x.metric(rollout.Metric{Name: fmt.Sprint("more", i)})
	}
	s := step(t, x.a, x.s)
	if len(s.Values) != 64 || s.Values[0] != (rollout.Value{Metric: "m", Value: "99.5"}) || s.Values[1].Value != "+Inf" {
		t.Errorf("%d values: %+v", len(s.Values), s.Values)
	}
	if last := x.w.events[len(x.w.events)-1]; last.Code != rollout.EventWeightAdvanced || !strings.HasPrefix(last.Reason, "m 99.5, inf +Inf, ") {
		t.Errorf("told %+v", last)
	}
	x.w.values["m"] = 12
	if next := step(t, x.a, s); next.Values[0].Value != "12" || s.Values[0].Value != "99.5" {
		t.Errorf("values %+v, before %+v", next.Values[0], s.Values[0])
	}
}

// A gate keeps the time of its first closed answer until the revision changes.
func TestGateSince(t *testing.T) {
	x := newScenario(rollout.Initialized)
	x.w.answers["cr"] = 403
	s, _, err := x.a.Step(t.Context(), epoch, x.s)
	if err != nil || s.Gate == nil || *s.Gate != (rollout.Gate{Type: rollout.HookConfirmRollout, Name: "cr", Since: epoch, Reason: "status 403: said cr"}) {
		t.Fatalf("%+v, %v", s.Gate, err)
	}
	s, _, _ = x.a.Step(t.Context(), epoch.Add(time.Hour), s)
	if !s.Gate.Since.Equal(epoch) || !s.LastTransition.Equal(epoch) {
		t.Errorf("an hour later: %+v", s)
	}
	x.w.revision = "v3"
	s, _, _ = x.a.Step(t.Context(), epoch.Add(2*time.Hour), s)
	if !s.Gate.Since.Equal(epoch.Add(2 * time.Hour)) {
		t.Errorf("with another revision: %+v", s.Gate)
	}
}

// The deadline starts at the first tick in which the same part is not ready, and
// starts again after the part was ready.
func TestReadiness(t *testing.T) {
	x := newScenario(rollout.Progressing)
	x.s.CanaryWeight = 20
	s := x.s
	for _, tick := range []struct {
		minute        int
		primary       error
		canary        error
		phase         rollout.Phase
		told, unready string
	}{
		{0, nil, errScripted, rollout.Progressing, "not-ready", "canary"},
		{9, errScripted, nil, rollout.Progressing, "not-ready", "primary"},
		{10, errScripted, nil, rollout.Progressing, "not-ready", "primary"},
		{12, nil, errScripted, rollout.Progressing, "not-ready", "canary"},
		{13, nil, nil, rollout.Progressing, "weight-advanced", ""},
		{21, nil, errScripted, rollout.Progressing, "not-ready", "canary"},
		{30, nil, errScripted, rollout.Progressing, "not-ready", "canary"},
		{31, nil, errScripted, rollout.Progressing, "canary-stuck", "canary"},
		{32, nil, errScripted, rollout.Failed, "rolled-back", ""},
	} {
		x.w.fails["primary"], x.w.fails["canary"] = tick.primary, tick.canary
		var err error
		if s, _, err = x.a.Step(t.Context(), epoch.Add(time.Duration(tick.minute)*time.Minute), s); err != nil {
			t.Fatal(err)
		}
		last := x.w.events[len(x.w.events)-1]
		if s.Phase != tick.phase || s.NotReady != tick.unready || string(last.Code) != tick.told {
			t.Fatalf("minute %d: %+v, told %s", tick.minute, s, eventLog(x.w.events))
		}
	}
}

// A new revision does not inherit the not-ready time of the previous one.
func TestReadinessOfAnotherRevision(t *testing.T) {
	x := newScenario(rollout.Progressing)
	x.passDeadline("canary")
	x.w.revision = "v3"
	if s := step(t, x.a, x.s); s.Phase != rollout.Progressing || s.NotReady != "" || !s.NotReadySince.IsZero() {
		t.Errorf("status %+v", s)
	}
}

// FuzzStep checks that a step accepts or refuses any status, such as one written by
// hand, without a panic, and that the next step accepts the status it returns.
func FuzzStep(f *testing.F) {
	for key := range scenarios {
		data, err := json.Marshal(loadScenario(key).s)
		must(f, err)
		f.Add(data, 20, uint16(0))
		f.Add(data, 0, uint16(0xaaaa))
	}
	f.Fuzz(func(t *testing.T, data []byte, weight int, answers uint16) {
		var s rollout.Status
		if json.Unmarshal(data, &s) != nil {
			return
		}
		x := newScenario(rollout.Progressing)
		x.w.routes.Canary = weight
		for i, h := range abbreviations {
			x.w.answers[h.name] = []int{200, 403}[answers>>i&1]
		}
		after, _, err := x.a.Step(t.Context(), epoch, s)
		if err != nil {
			testenv.Equal(t, after, s, "%v: the status changed", err)
			return
		}
		if _, _, err := x.a.Step(t.Context(), epoch, stored(t, after)); err != nil {
			t.Errorf("after %s: %v", data, err)
		}
	})
}
