package drive_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/drive"
	"github.com/headgate-io/headgate/rollout/metric"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// A view records all messages, and calls step after each step.
type view struct {
	mu       sync.Mutex
	messages []string
	step     func(rollout.Status)
}

func (v *view) Emit(_ context.Context, e rollout.Event) { v.Say(e.Message) }
func (v *view) Show(s rollout.Status)                   { v.step(s) }
func (v *view) Warn(err error)                          { v.Say("warning: " + err.Error()) }
func (v *view) Say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.messages = append(v.messages, text)
}

// A scriptedAction is an action that returns its answers in order, and then repeats the last one.
type scriptedAction []string

func (n *scriptedAction) Check(traffic.Operation) error { return nil }
func (n *scriptedAction) Do(context.Context, traffic.Values) (string, error) {
	first := (*n)[0]
	if len(*n) > 1 {
		*n = (*n)[1:]
	}
	return first, nil
}

func options(t *testing.T, settings rollout.Settings, v *view) drive.Options {
	t.Helper()
	canary := &rollout.Canary{Metadata: rollout.Metadata{Name: "app"}, Spec: rollout.CanarySpec{Analysis: settings}}
	file, err := drive.Open(filepath.Join(t.TempDir(), "app.json"), canary.Metadata)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	serve := func(name string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
		t.Cleanup(server.Close)
		return server.URL
	}
	return drive.Options{
		Canary: canary, File: file, Revision: "v2", Querier: &metric.Querier{}, Caller: &rollout.Caller{}, View: v, Interval: time.Millisecond,
		Proxy: &drive.Proxy{Listen: "127.0.0.1:0", Primary: serve("primary"), Canary: serve("canary"), Drain: time.Minute},
	}
}

// begin begins a rollout and returns it with the URL of its proxy.
func begin(t *testing.T, o drive.Options, v *view) (*drive.Rollout, string) {
	t.Helper()
	r, err := drive.Begin(t.Context(), o)
	must(t, err)
	t.Cleanup(r.Close)
	_, url, _ := strings.Cut(v.messages[0], "serving at ")
	url, _, _ = strings.Cut(url, ": ")
	return r, url
}

// Of 4,000 requests to real servers during a rollout at 37 percent, the canary gets
// 1,480.
func TestShareOfRequests(t *testing.T) {
	v, url := &view{}, ""
	canary := 0
	v.step = func(s rollout.Status) {
		if s.Phase != rollout.Progressing || s.CanaryWeight != 37 || canary > 0 {
			return
		}
		for range 4000 {
			resp, err := http.Get(url)
			must(t, err)
			if body, _ := io.ReadAll(resp.Body); string(body) == "canary" {
				canary++
			}
			resp.Body.Close()
		}
	}
	r, at := begin(t, options(t, rollout.Settings{StepWeights: []int{37}}, v), v)
	url = at
	if result := r.Run(); result.Outcome != drive.Promoted || canary != 1480 {
		t.Errorf("%+v, the canary got %d of 4000 requests", result, canary)
	}
}

// A revision that appears after the proxy has promoted its canary does not belong to this run.
func TestRevisionAfterPromotion(t *testing.T) {
	v := &view{}
	revision := &scriptedAction{"v1", "v1", "v2"}
	o := options(t, rollout.Settings{StepWeight: 100}, v)
	o.Revision, o.Actions = "", map[traffic.Operation]traffic.Action{traffic.Revision: revision}
	v.step = func(s rollout.Status) {
		if s.PromotedSpec == "v2" {
			*revision = scriptedAction{"v3"}
		}
	}
	r, _ := begin(t, o, v)
	result := r.Run()
	if promoted, at := r.PromotedAt(); result.Outcome != drive.Promoted || promoted != "v2" || at != o.Proxy.Canary || result.Status.PromotedURL != at {
		t.Errorf("%+v, %s at %s\n%s", result, promoted, at, strings.Join(v.messages, "\n"))
	}
}

// Begin returns an error if the proxy cannot listen.
func TestListenerThatIsTaken(t *testing.T) {
	v := &view{step: func(rollout.Status) {}}
	o := options(t, rollout.Settings{StepWeight: 100}, v)
	server := httptest.NewServer(nil)
	defer server.Close()
	o.Proxy.Listen = server.Listener.Addr().String()
	if _, err := drive.Begin(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "proxy: listen tcp ") {
		t.Errorf("%v, %s", err, fmt.Sprint(v.messages))
	}
}

var must = testenv.Must
