package tester_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// TestScopeOfLists has lists hold what a caller may see, as much of it as it
// asked for.
func TestScopeOfLists(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, wireCallers)
	url := "http://" + serve(t, s)
	all := []string{"Authorization", "Bearer all-of-it-0123456789"}
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
}

// TestScopeOfLooking has callers see the gates and the types of runs that they
// are for: what a test writes is not for all of its namespace.
func TestScopeOfLooking(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, wireCallers+"- {name: none, token: none-token-0123456789, types: [], kinds: [rollback]}\n")
	url := "http://" + serve(t, s)
	all, team := &api.Client{URL: url, Token: "all-of-it-0123456789"}, &api.Client{URL: url, Token: "team-token-0123456789"}
	none := &api.Client{URL: url, Token: "none-token-0123456789"}
	stream := get(t, url+"/api/v1/watch", "Authorization", "Bearer team-token-0123456789")
	changes := bufio.NewScanner(stream.Body)
	changes.Scan() // it has begun
	header := []string{"Authorization", "Bearer all-of-it-0123456789"}
	canary := `{"name":"n","namespace":"team-a"`
	for _, gate := range []string{"default", "prod", "traffic-1"} {
		mustPost(t, url+"/gate/"+gate+"/open", canary+"}", header...)
	}
	for _, kind := range []string{"cmd", "bash"} {
		if status, text := mustPost(t, url, canary+`,"metadata":{"wait":"true","cmd":"true","type":"`+kind+`"}}`, header...); status != http.StatusOK {
			t.Fatal(status, text)
		}
	}
	for changes.Scan() && !strings.Contains(changes.Text(), `"succeeded"`) {
		if strings.Contains(changes.Text(), `"prod"`) || strings.Contains(changes.Text(), `"default"`) {
			t.Errorf("the stream has %s", changes.Text())
		}
	}
	if !strings.Contains(changes.Text(), `"bash"`) {
		t.Errorf("the stream has %s", changes.Text())
	}
	gates, err := team.Gates(t.Context(), api.Filter{})
	if err != nil || len(gates) != 1 || gates[0].Gate != "traffic-1" {
		t.Errorf("gates: %v %+v", err, gates)
	}
	entries, err := team.Audit(t.Context(), api.Filter{})
	if err != nil || len(entries) != 1 || entries[0].Gate != "traffic-1" {
		t.Errorf("audit: %v %+v", err, entries)
	}
	runs, err := team.Runs(t.Context(), api.Filter{})
	if err != nil || len(runs) != 1 || runs[0].Type != "bash" {
		t.Errorf("runs: %v %+v", err, runs)
	}
	if gates, err := none.Gates(t.Context(), api.Filter{}); err != nil || len(gates) != 0 {
		t.Errorf("gates of another kind: %v %+v", err, gates)
	}
	hidden, err := all.Runs(t.Context(), api.Filter{Type: "cmd"})
	if err != nil || len(hidden) != 1 {
		t.Fatal(err, hidden)
	}
	for _, path := range []string{"runs/" + hidden[0].ID, "runs/" + hidden[0].ID + "/output", "gates/gate/team-a/n/prod", "gates/gate/team-a/n/"} {
		if resp := get(t, url+"/api/v1/"+path, "Authorization", "Bearer team-token-0123456789"); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
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
