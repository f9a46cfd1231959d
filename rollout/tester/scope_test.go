package tester_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// TestScopeOfLists has lists hold what a caller may see, as much of it as it
// asked for, and nothing else be shown or cancelled.
func TestScopeOfLists(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, wireCallers)
	url := "http://" + serve(t, s)
	all, team := []string{"Authorization", "Bearer all-of-it-0123456789"}, []string{"Authorization", "Bearer team-token-0123456789"}
	for i := range 6 {
		namespace := []string{"prod", "prod", "team-a"}[i%3]
		canary := fmt.Sprintf(`{"name":"n%d","namespace":%q`, i, namespace)
		mustPost(t, url+"/gate/traffic/open", canary+"}", all...)
		if status, text := mustPost(t, url, canary+`,"metadata":{"type":"bash","cmd":"true"}}`, all...); status != http.StatusOK {
			t.Fatal(status, text)
		}
	}
	mine, theirs := &api.Client{URL: url, Token: "team-token-0123456789"}, &api.Client{URL: url, Token: "all-of-it-0123456789"}
	runs, err := mine.Runs(t.Context(), api.Filter{Limit: 2})
	if err != nil || len(runs) != 2 || runs[0].Name != "n5" || runs[1].Name != "n2" {
		t.Errorf("%v %+v", err, runs)
	}
	entries, err := mine.Audit(t.Context(), api.Filter{Limit: 2})
	if err != nil || len(entries) != 2 || entries[0].Name != "n5" || entries[1].Name != "n2" {
		t.Errorf("%v %+v", err, entries)
	}
	gates, err := mine.Gates(t.Context(), api.Filter{})
	if err != nil || len(gates) != 2 {
		t.Errorf("%v %+v", err, gates)
	}
	everything, err := theirs.Runs(t.Context(), api.Filter{})
	if err != nil || len(everything) != 6 {
		t.Fatalf("%v %+v", err, everything)
	}
	hidden := everything[1].ID // of prod
	if r, err := theirs.Run(t.Context(), hidden); err != nil || r.Namespace != "prod" {
		t.Errorf("%v %+v", err, r)
	}
	for _, path := range []string{hidden, hidden + "/output"} {
		if resp := get(t, url+"/api/v1/runs/"+path, team...); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if status, _ := mustPost(t, url+"/api/v1/runs/"+hidden+"/cancel", "", team...); status != http.StatusForbidden {
		t.Errorf("cancel: %d", status)
	}
	if status, _ := mustPost(t, url+"/api/v1/runs/"+runs[0].ID+"/cancel", "", "Authorization", "Bearer look-token-0123456789"); status != http.StatusForbidden {
		t.Errorf("cancel by a reader: %d", status)
	}
}

// TestActorOfLinks has the audit trail name who pressed the button, if that is known.
func TestActorOfLinks(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, wireCallers)
	url := "http://" + serve(t, s)
	client := &api.Client{URL: url, Token: "all-of-it-0123456789"}
	for name, header := range map[string][]string{"known": {"Authorization", "Bearer team-token-0123456789"}, "unknown": nil} {
		k := api.Key{Kind: api.KindGate, Namespace: "test", Name: name, Gate: api.DefaultGate}
		mustPost(t, url+"/gate/check", fmt.Sprintf(`{"name":%q,"namespace":"test","checksum":"a","metadata":{"token":"all-of-it-0123456789"}}`, name))
		l, err := client.Link(t.Context(), k, api.LinkRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if status, text := mustPost(t, l.Approve, "", header...); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
		want := map[string]string{"known": "team", "unknown": "link"}[name]
		if g := s.Gates.Gate(k); !g.Open || !strings.Contains(g.Actor, want) {
			t.Errorf("%+v", g)
		}
	}
}
