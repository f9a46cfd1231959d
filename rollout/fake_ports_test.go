package rollout_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// A fakePorts implements all ports of an analysis, and records their calls.
type fakePorts struct {
	routes   rollout.Routes
	revision string
	answers  map[string]int     // status by type of webhook; default 200, for rollback 403
	values   map[string]float64 // by metric; default 100
	fails    map[string]error   // by method: routes, set, revision, primary, canary, up, down, promote, or metric NAME
	before   func(call string)  // called before each call of a port
	after    []func(string)     // called after each call of a port

	body string // of every answer

	log      []string
	payloads []rollout.Payload
	events   []rollout.Event
}

var (
	_ rollout.Traffic = (*fakePorts)(nil)
	_ rollout.Target  = (*fakePorts)(nil)
	_ rollout.Metrics = (*fakePorts)(nil)
	_ rollout.Hooks   = (*fakePorts)(nil)
	_ rollout.Sink    = (*fakePorts)(nil)
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newFakePorts() *fakePorts {
	return &fakePorts{routes: rollout.Routes{Primary: 100}, revision: "v2", answers: map[string]int{}, values: map[string]float64{}, fails: map[string]error{}}
}

// analysis returns an analysis of c with these ports.
func (w *fakePorts) analysis(c *rollout.Canary) *rollout.Analysis {
	return &rollout.Analysis{Canary: c, Traffic: w, Target: w, Metrics: w, Hooks: w, Sink: w}
}

// doCall does a call of a port. It calls effect unless the call fails or the context has ended.
func (w *fakePorts) doCall(ctx context.Context, call, did string, effect func()) error {
	if w.before != nil {
		w.before(call)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := w.fails[call]
	if err == nil && effect != nil {
		effect()
	}
	if did != "" {
		if err != nil {
			did += " fails"
		}
		w.log = append(w.log, did)
	}
	for _, callback := range w.after {
		callback(call)
	}
	return err
}

func (w *fakePorts) Routes(ctx context.Context) (rollout.Routes, error) {
	err := w.doCall(ctx, "routes", "", nil)
	return w.routes, err
}

func (w *fakePorts) SetRoutes(ctx context.Context, r rollout.Routes) error {
	did := fmt.Sprintf("route %d/%d", r.Primary, r.Canary)
	if r.Mirrored {
		did += " mirrored"
	}
	return w.doCall(ctx, "set", did, func() { w.routes = r })
}

func (w *fakePorts) Revision(ctx context.Context) (string, error) {
	err := w.doCall(ctx, "revision", "", nil)
	return w.revision, err
}
func (w *fakePorts) PrimaryReady(ctx context.Context) error { return w.doCall(ctx, "primary", "", nil) }
func (w *fakePorts) CanaryReady(ctx context.Context) error  { return w.doCall(ctx, "canary", "", nil) }
func (w *fakePorts) ScaleUp(ctx context.Context) error      { return w.doCall(ctx, "up", "scale up", nil) }
func (w *fakePorts) ScaleDown(ctx context.Context) error {
	return w.doCall(ctx, "down", "scale down", nil)
}
func (w *fakePorts) Promote(ctx context.Context) error {
	return w.doCall(ctx, "promote", "promote", nil)
}

func (w *fakePorts) Query(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	err := w.doCall(ctx, "metric "+m.Name, "check "+m.Name, nil)
	value, set := w.values[m.Name]
	if !set {
		value = 100
	}
	return value, err
}

func (w *fakePorts) Call(ctx context.Context, h rollout.Hook, p rollout.Payload) (rollout.Answer, error) {
	if err := w.doCall(ctx, "hook "+h.Name, "ask "+h.Name, nil); err != nil {
		return rollout.Answer{}, err
	}
	w.payloads = append(w.payloads, p)
	code := w.answers[h.Name]
	switch {
	case code != 0:
	case h.Type == rollout.HookRollback:
		code = http.StatusForbidden
	default:
		code = http.StatusOK
	}
	answer := rollout.Answer{Status: code, Body: []byte(cmp.Or(w.body, "said "+h.Name)), Attempts: 1}
	if last := lastAccepted(h.Type); code < 200 || code > last {
		return answer, &rollout.StatusError{Code: code, Body: answer.Body}
	}
	return answer, nil
}

func lastAccepted(t rollout.HookType) int {
	if t == rollout.HookConfirmTrafficIncrease || t == rollout.HookConfirmPromotion {
		return http.StatusOK
	}
	return http.StatusAccepted
}

func (w *fakePorts) Emit(ctx context.Context, e rollout.Event) {
	w.events = append(w.events, e)
	line := "tell " + string(e.Code)
	if e.Alert != "" {
		line += " (" + string(e.Alert) + ")"
	}
	w.log = append(w.log, line)
}

// canary returns a canary with weights 20, 40, 50 and webhooks of the given types,
// each named after its type.
func canary(hooks ...rollout.HookType) *rollout.Canary {
	c := &rollout.Canary{Metadata: rollout.Metadata{Name: "app", Namespace: "test"}}
	c.Spec.Analysis = rollout.Settings{Interval: rollout.Duration(time.Minute), Threshold: 2, StepWeight: 20, MaxWeight: 50}
	for _, h := range hooks {
		c.Spec.Analysis.Webhooks = append(c.Spec.Analysis.Webhooks, rollout.Hook{Name: string(h), Type: h, URL: "http://gate"})
	}
	return c
}

// step runs one step, which must not return an error.
func step(t *testing.T, a *rollout.Analysis, s rollout.Status) rollout.Status {
	t.Helper()
	after, _, err := a.Step(t.Context(), epoch, s)
	if err != nil {
		t.Fatalf("Step(%+v): %v", s, err)
	}
	return after
}

// instantLoop returns a loop whose waits end at once.
func instantLoop() rollout.Loop {
	now, waits := epoch, 0
	return rollout.Loop{
		Now: func() time.Time { return now },
		Wait: func(ctx context.Context, d time.Duration) error {
			if waits++; waits > 200 {
				return errors.New("the rollout does not end")
			}
			now = now.Add(d)
			return ctx.Err()
		},
	}
}

func eventLog(events []rollout.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%d %s %s: %s\n", e.Sequence, e.Phase, e.Code, e.Message)
	}
	return b.String()
}

// stored returns s after a round trip through JSON.
func stored(t *testing.T, s rollout.Status) rollout.Status {
	t.Helper()
	var read rollout.Status
	must(t, json.Unmarshal([]byte(text(t, s)), &read))
	return read
}

func text(t *testing.T, s rollout.Status) string {
	t.Helper()
	data, err := json.Marshal(s)
	must(t, err)
	return string(data)
}
