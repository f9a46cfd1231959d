package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

// A workload is always ready, and its traffic goes where it is told to.
type workload struct {
	routes   rollout.Routes
	revision string
}

func (w *workload) Routes(context.Context) (rollout.Routes, error) { return w.routes, nil }

func (w *workload) SetRoutes(_ context.Context, r rollout.Routes) error {
	w.routes = r
	return nil
}

func (w *workload) Revision(context.Context) (string, error) { return w.revision, nil }

func (*workload) PrimaryReady(context.Context) error { return nil }
func (*workload) CanaryReady(context.Context) error  { return nil }
func (*workload) ScaleUp(context.Context) error      { return nil }
func (*workload) ScaleDown(context.Context) error    { return nil }
func (*workload) Promote(context.Context) error      { return nil }

// TestAnalysis runs rollouts whose gate stays closed until a rollback is asked for: a
// service is alerted to what the specification names, once each, and not to the gate when
// that is muted. A program is told every event, with the phase after it.
func TestAnalysis(t *testing.T) {
	for _, gate := range []string{"confirm-rollout", "confirm-traffic-increase", "confirm-promotion"} {
		for _, muted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s muted %v", gate, muted), func(t *testing.T) {
				rollback := http.StatusForbidden
				hooks := record(t, func(w http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case "/gate":
						http.Error(w, "not yet <!channel>", http.StatusForbidden)
					case "/rollback":
						w.WriteHeader(rollback)
					}
				})
				chat, events := record(t, nil), record(t, nil)
				manifest := fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: podinfo, namespace: test}
spec:
  targetRef: {kind: Deployment, name: podinfo}
  service: {port: 80}
  analysis:
    interval: 10s
    threshold: 5
    stepWeight: 50
    maxWeight: 50
    webhooks:
    - {name: gate, type: %s, url: %q, muteAlert: %v}
    - {name: rollback, type: rollback, url: %q}
    - {name: events, type: event, url: %q}
    alerts:
    - {name: chat, severity: warn, providerRef: {name: chat}}
---
apiVersion: flagger.app/v1beta1
kind: AlertProvider
metadata: {name: chat, namespace: test}
spec: {type: slack, address: %q}
`, gate, hooks.URL+"/gate", muted, hooks.URL+"/rollback", events.URL, chat.URL)
				canaries, warnings, err := rollout.Decode("-", strings.NewReader(manifest))
				if err != nil || len(canaries) != 1 || len(warnings) > 0 {
					t.Fatal(err, warnings)
				}
				providers, err := notify.Decode("-", strings.NewReader(manifest))
				if err != nil {
					t.Fatal(err)
				}
				caller := &rollout.Caller{}
				defer caller.Close()
				d, err := notify.Start(t.Context(), notify.Config{Canary: canaries[0], Providers: providers, Caller: caller})
				if err != nil {
					t.Fatal(err)
				}
				w := &workload{rollout.Routes{Primary: 100}, "v1"}
				a := rollout.Analysis{Canary: canaries[0], Traffic: w, Target: w, Hooks: caller, Sink: d}
				var s rollout.Status
				for now, tick := time.Unix(0, 0), 0; !s.Ended(); now, tick = now.Add(10*time.Second), tick+1 {
					if tick == 8 {
						rollback = http.StatusOK
					}
					if s, _, err = a.Step(t.Context(), now, s); err != nil || tick > 20 {
						t.Fatal(tick, err)
					}
					w.revision = "v2"
				}
				if err := d.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := []string{"waits for the approval", "asks for a rollback"}
				if muted {
					want = want[1:]
				}
				told := chat.all()
				for i, text := range want {
					if len(told) != len(want) || !strings.Contains(told[i].body, text) || strings.Contains(told[i].body, "<!") {
						t.Errorf("%+v, want %q", told, want)
					}
				}
				var last rollout.Payload
				if err := json.Unmarshal([]byte(events.all()[len(events.all())-1].body), &last); err != nil || last.Phase != rollout.Failed {
					t.Errorf("%+v, %v", last, err)
				}
			})
		}
	}
}
