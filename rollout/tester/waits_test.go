package tester_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// asked is the payload of a canary of namespace test.
func asked(name, phase, metadata string) string {
	return fmt.Sprintf(`{"name":%q,"namespace":"test","phase":%q,"checksum":"a","metadata":%s}`, name, phase, metadata)
}

// waits lists who waits as a client does: NAME/GATE of each, in order.
func waits(t *testing.T, url string, f api.Filter) string {
	t.Helper()
	f.Waiting = true
	gates, err := (&api.Client{URL: url}).Gates(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range gates {
		names = append(names, g.Name+"/"+g.Gate)
	}
	return strings.Join(names, " ")
}

// TestEndOfRolloutEndsWaits has payloads of a canary whose rollout is over end its
// waits, those of other canaries and of trials not.
func TestEndOfRolloutEndsWaits(t *testing.T) {
	const test = `{"type":"bash","cmd":"true"}`
	const both = "app/promotion app/start other/start"
	for name, x := range map[string]struct{ path, body, want string }{
		"failed":              {"/", asked("app", "Failed", test), "other/start"},
		"succeeded":           {"/", asked("app", "Succeeded", test), "other/start"},
		"at a switch":         {"/rollback/check", asked("app", "Failed", "{}"), "other/start"},
		"closing a gate":      {"/gate/third/close", asked("app", "Succeeded", "{}"), "other/start"},
		"k6 webhook":          {"/launch-test", asked("app", "Failed", `{"script":"x"}`), "other/start"},
		"no test":             {"/", asked("app", "Failed", "{}"), "other/start"},
		"the next rollout":    {"/gate/start/check", asked("app", "Failed", "{}"), "app/start other/start"},
		"under way":           {"/", asked("app", "Progressing", test), both},
		"another canary":      {"/", asked("third", "Failed", test), both},
		"a trial":             {"/", asked("app", "Failed", `{"type":"bash","cmd":"true","headgate.trial":"true"}`), both},
		"a trial of a switch": {"/rollback/check", asked("app", "Failed", `{"headgate.trial":"true"}`), both},
	} {
		t.Run(name, func(t *testing.T) {
			url := "http://" + serve(t, newServer(t))
			for _, at := range []string{"app /gate/start/check", "app /gate/promotion/check", "other /gate/start/check"} {
				name, path, _ := strings.Cut(at, " ")
				mustPost(t, url+path, asked(name, "Waiting", "{}"))
			}
			if got := waits(t, url, api.Filter{}); got != both {
				t.Fatalf("before: %s", got)
			}
			mustPost(t, url+x.path, x.body)
			if got := waits(t, url, api.Filter{}); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
		})
	}
}

// TestEndOfRolloutNeedsAccess has a caller end no waits in namespaces of others.
func TestEndOfRolloutNeedsAccess(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, wireCallers)
	url := "http://" + serve(t, s)
	mustPost(t, url+"/gate/check", asked("app", "Waiting", "{}"), "Authorization", "Bearer all-of-it-0123456789")
	for _, path := range []string{"/", "/gate/check", "/gate/close", "/rollback/check"} {
		mustPost(t, url+path, asked("app", "Failed", `{"cmd":"true"}`), "Authorization", "Bearer team-token-0123456789")
	}
	if waiting := s.Gates.List(api.Filter{Waiting: true}); len(waiting) != 1 {
		t.Errorf("%+v", waiting)
	}
}

// TestTrialDoesNotWait answers a trial as a rollout, and lists nothing that waits.
func TestTrialDoesNotWait(t *testing.T) {
	url := "http://" + serve(t, newServer(t))
	trial := asked("app", "Waiting", `{"headgate.trial":"true"}`)
	if status, text := mustPost(t, url+"/gate/check", trial); status != 403 || text != "Forbidden" {
		t.Errorf("%d %s", status, text)
	}
	if got := waits(t, url, api.Filter{}); got != "" {
		t.Errorf("%s waits", got)
	}
	mustPost(t, url+"/gate/check", asked("app", "Waiting", `{"headgate.trial":"false"}`))
	if got := waits(t, url, api.Filter{}); got != "app/default" {
		t.Errorf("%q waits", got)
	}
	if status, _ := mustPost(t, url+"/gate/check", asked("app", "\u0007", `{"headgate.trial":"true"}`)); status != 400 {
		t.Errorf("a phase that is none: %d", status)
	}
	mustPost(t, url+"/gate/open", asked("app", "Waiting", "{}"))
	if status, _ := mustPost(t, url+"/gate/check", trial); status != 200 {
		t.Errorf("an open gate: %d", status)
	}
}

// TestStaleWait has a wait be over for lists and metrics when it was not asked for
// again within two of its intervals, and come back when it is.
func TestStaleWait(t *testing.T) {
	var later atomic.Int64
	start := time.Now()
	s := newServer(t)
	s.Gates.Close()
	var err error
	if s.Gates, err = gate.Open(gate.Config{Now: func() time.Time { return start.Add(time.Duration(later.Load())) }}); err != nil {
		t.Fatal(err)
	}
	url := "http://" + serve(t, s)
	wait := func() (w api.Waiting) {
		t.Helper()
		gates, err := (&api.Client{URL: url}).Gates(t.Context(), api.Filter{Waiting: true, Stale: true})
		if err != nil || len(gates) != 1 {
			t.Fatalf("%+v %v", gates, err)
		}
		return *gates[0].Waiting
	}
	check := func() { mustPost(t, url+"/gate/check", asked("app", "Waiting", "{}")) }
	for _, step := range []struct {
		at    time.Duration
		check bool
		stale bool
	}{
		{0, true, false},
		{time.Minute, false, false}, // no interval is known
		{61 * time.Second, true, false},
		{180 * time.Second, false, false},
		{184 * time.Second, false, true}, // two intervals of 61 s
		{190 * time.Second, true, false},
		{210 * time.Second, true, false},
		{440 * time.Second, false, false}, // the longest counts
		{470 * time.Second, false, true},
	} {
		later.Store(int64(step.at))
		if step.check {
			check()
		}
		if w := wait(); w.Stale != step.stale {
			t.Errorf("after %s: %+v", step.at, w)
		}
		want := map[bool]string{false: "app/default", true: ""}[step.stale]
		if got := waits(t, url, api.Filter{}); got != want {
			t.Errorf("after %s: %q is listed, want %q", step.at, got, want)
		}
		text, err := io.ReadAll(get(t, url+"/metrics").Body)
		if err != nil {
			t.Fatal(err)
		}
		if counted := strings.Contains(string(text), `headgate_tester_gates{kind="gate",state="waiting"} 1`); counted == step.stale {
			t.Errorf("after %s: counted as waiting: %t", step.at, counted)
		}
	}
	later.Store(int64(11*time.Minute + 470*time.Second))
	if text, _ := json.Marshal(s.Gates.List(api.Filter{Waiting: true, Stale: true})); string(text) != "[]" {
		t.Errorf("%s", text)
	}
}
