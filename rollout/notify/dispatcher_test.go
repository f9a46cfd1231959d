package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

// A recorder is a server that records requests.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
	answer   http.HandlerFunc // nil for 200
}

type request struct {
	path, auth, body string
}

func record(t *testing.T, answer http.HandlerFunc) *recorder {
	t.Helper()
	r := &recorder{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Server.Close)
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.requests = append(r.requests, request{req.Method + " " + req.URL.RequestURI() + " " + req.Header.Get("Content-Type"), req.Header.Get("Authorization"), string(body)})
	r.mu.Unlock()
	if r.answer != nil {
		r.answer(w, req)
	}
}

func (r *recorder) all() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.requests...)
}

func canary(alerts ...rollout.Alert) *rollout.Canary {
	c := &rollout.Canary{Metadata: rollout.Metadata{Name: "podinfo", Namespace: "test"}}
	c.Spec.TargetRef = rollout.ObjectRef{Kind: "Deployment", Name: "podinfo"}
	c.Spec.Analysis = rollout.Settings{Threshold: 5, StepWeight: 10, MaxWeight: 50, Alerts: alerts}
	return c
}

func provider(kind notify.Type, address string) *notify.Provider {
	return &notify.Provider{Metadata: rollout.Metadata{Name: string(kind), Namespace: "test"}, Spec: notify.ProviderSpec{Type: kind, Address: address}}
}

func event(n int64, alert rollout.Severity) rollout.Event {
	return rollout.Event{Code: "x", Message: fmt.Sprintf("podinfo.test event %d", n), Name: "podinfo", Namespace: "test", Phase: rollout.Progressing, Sequence: n, Alert: alert}
}

// TestSeverity checks which alerts pass each filter, and their order.
func TestSeverity(t *testing.T) {
	for severity, want := range map[rollout.Severity]string{"": "2 3 4", rollout.Info: "2 3 4", rollout.Warn: "3 4", rollout.Error: "4"} {
		server := record(t, nil)
		d, err := notify.Start(t.Context(), notify.Config{
			Canary:    canary(rollout.Alert{Name: "a", Severity: severity, ProviderRef: rollout.ObjectRef{Name: "generic"}}),
			Providers: []*notify.Provider{provider(notify.Generic, server.URL)},
		})
		must(t, err)
		for i, alert := range []rollout.Severity{"", rollout.Info, rollout.Warn, rollout.Error} {
			d.Emit(t.Context(), event(int64(i+1), alert))
		}
		testenv.Equal(t, d.Close(t.Context()), nil)
		var got []string
		for _, r := range server.all() {
			var e rollout.Event
			must(t, json.Unmarshal([]byte(r.body), &e))
			got = append(got, fmt.Sprint(e.Sequence))
		}
		testenv.Equal(t, strings.Join(got, " "), want, "severity %q", severity)
	}
}

// TestStart checks that Start reports defects before anything is posted.
func TestStart(t *testing.T) {
	ref := func(name string) rollout.Alert {
		return rollout.Alert{Name: "a", ProviderRef: rollout.ObjectRef{Name: name}}
	}
	elsewhere := provider(notify.Slack, "https://h/x")
	elsewhere.Metadata.Namespace = "other"
	for _, test := range []struct {
		alert     rollout.Alert
		providers []*notify.Provider
		want      string
	}{
		{ref("slack"), nil, "spec.analysis.alerts[0]: providerRef: there is no AlertProvider test/slack among []"},
		{ref("slack"), []*notify.Provider{provider(notify.Rocket, "https://h/x"), elsewhere}, "there is no AlertProvider test/slack among [test/rocket other/slack]"},
		{rollout.Alert{Name: "a", Severity: "loud", ProviderRef: rollout.ObjectRef{Name: "slack"}}, nil, `severity "loud" is not known: use info, warn or error`},
		{ref("smoke"), []*notify.Provider{provider("smoke", "https://h/x")}, `spec.type: "smoke" is not known: use one of [discord gchat generic msteams rocket slack]`},
		{ref("slack"), []*notify.Provider{provider(notify.Slack, "")}, "spec.address: is missing"},
		{ref("slack"), []*notify.Provider{provider(notify.Slack, "ftp://h/x")}, "spec.address: must begin with http:// or https://"},
		{ref("slack"), []*notify.Provider{provider(notify.Slack, "hunter2")}, "spec.address: must begin with http:// or https://"},
	} {
		_, err := notify.Start(t.Context(), notify.Config{Canary: canary(test.alert), Providers: test.providers})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	in := ref("slack")
	in.ProviderRef.Namespace = "other"
	d, err := notify.Start(t.Context(), notify.Config{Canary: canary(in), Providers: []*notify.Provider{elsewhere}})
	must(t, err)
	testenv.Equal(t, d.Close(context.Background()), nil)
}

// TestEventsAndAlerts sends events to a webhook and alerts to a service. Only the first alerts show the
// settings of the canary.
func TestEventsAndAlerts(t *testing.T) {
	hook, chat := record(t, nil), record(t, nil)
	c := canary(rollout.Alert{Name: "a", ProviderRef: rollout.ObjectRef{Name: "msteams"}})
	c.Spec.Analysis.Webhooks = []rollout.Hook{{Name: "events", Type: rollout.HookEvent, URL: hook.URL}}
	d, err := notify.Start(t.Context(), notify.Config{Canary: c, Cluster: "prod", Providers: []*notify.Provider{provider(notify.MSTeams, chat.URL)}})
	must(t, err)
	for i, code := range []rollout.EventCode{rollout.EventRevisionNew, rollout.EventWeightAdvanced, rollout.EventPromotionWaits, rollout.EventPromoted} {
		e := event(int64(i+1), map[rollout.EventCode]rollout.Severity{rollout.EventRevisionNew: rollout.Info, rollout.EventPromotionWaits: rollout.Warn, rollout.EventPromoted: rollout.Info}[code])
		e.Code, e.Phase, e.Time = code, []rollout.Phase{rollout.Progressing, rollout.Progressing, rollout.Progressing, rollout.Succeeded}[i], time.UnixMilli(1578607635167)
		d.Emit(t.Context(), e)
	}
	must(t, d.Close(t.Context()))
	var phases, facts []string
	for _, r := range hook.all() {
		var p rollout.Payload
		must(t, json.Unmarshal([]byte(r.body), &p))
		phases = append(phases, string(p.Phase)+" "+p.Metadata["eventMessage"]+" "+p.Metadata["eventsLost"])
	}
	testenv.Equal(t, strings.Join(phases, ","), "Progressing podinfo.test event 1 ,Progressing podinfo.test event 2 ,Progressing podinfo.test event 3 ,Succeeded podinfo.test event 4 ")
	for _, r := range chat.all() {
		facts = append(facts, fmt.Sprint(strings.Count(r.body, `"name":`)))
	}
	testenv.Equal(t, strings.Join(facts, ","), "5,0,0", "fields")
}

// TestFields checks that the first alerts show the strategy of the canary.
func TestFields(t *testing.T) {
	for want, s := range map[string]rollout.Settings{
		`{"name":"Traffic routing","value":"Weight step: 10 max: 50"}]`:      {StepWeight: 10, MaxWeight: 50},
		`{"name":"Traffic routing","value":"Weight step: 5 max: 100"}]`:      {StepWeight: 5},
		`{"name":"Traffic routing","value":"Weight steps: 1,2,50 max: 50"}]`: {StepWeights: []int{1, 2, 50}, MaxWeight: 80},
		`{"name":"Traffic routing","value":"A/B Testing"}]`:                  {Iterations: 5, Match: []rollout.Match{{}}},
		`{"name":"Traffic routing","value":"Blue/Green"}]`:                   {Iterations: 5, StepWeight: 10},
		`"fields":[{"name":"Target","value":"Deployment/podinfo.test"},{"name":"Failed checks threshold","value":"1"},{"name":"Progress deadline","value":"600s"}]`: {},
	} {
		server := record(t, nil)
		c := canary()
		c.Spec.Analysis = s
		first := event(1, rollout.Info)
		first.Code = rollout.EventInitialized
		if reports, err := sendAlerts(t, c, provider(notify.Generic, server.URL), nil, first); err != nil {
			t.Fatal(reports, err)
		}
		if got := server.all()[0].body; !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// sendAlerts sends alerts to the provider, and returns the reports and the error of Close. It does not retry.
func sendAlerts(t *testing.T, c *rollout.Canary, p *notify.Provider, secrets rollout.Secrets, events ...rollout.Event) (reports []string, err error) {
	t.Helper()
	c.Spec.Analysis.Alerts = []rollout.Alert{{Name: "a", ProviderRef: rollout.ObjectRef{Name: p.Metadata.Name}}}
	return sendEvents(t, notify.Config{Canary: c, Cluster: "", Providers: []*notify.Provider{p}, Caller: &rollout.Caller{Secrets: secrets}}, events...)
}

func sendEvents(t *testing.T, c notify.Config, events ...rollout.Event) (reports []string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Timeout = time.Hour // never expires, even on a slow machine
	c.Report = func(err error) {
		if reports = append(reports, err.Error()); strings.Contains(err.Error(), "it is tried again") {
			cancel()
		}
	}
	d, err := notify.Start(t.Context(), c)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		d.Emit(t.Context(), e)
	}
	err = d.Close(ctx)
	return reports, err
}
