package tester_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// TestLinks shows that the page of a link decides nothing, and that its button decides once.
func TestLinks(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	const canary = "<b>pod&info"
	check := func(path, checksum string) int {
		status, _ := mustPost(t, url+path, `{"name":"`+canary+`","namespace":"test","phase":"Waiting","checksum":"`+checksum+`"}`)
		return status
	}
	links := func() (l api.Link) {
		check("/gate/check", "a")
		_, text := mustPost(t, url+"/api/v1/gates/gate/test/%3Cb%3Epod&info/default/link", `{"ttl":"10m"}`, "Content-Type", "application/json")
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(text, err)
		}
		return l
	}
	l := links()
	for _, link := range []string{l.Approve, l.Reject} {
		resp := get(t, link)
		page, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(page), `<form method="post">`) || !strings.Contains(string(page), "test/&lt;b&gt;pod&amp;info") {
			t.Errorf("%d %s", resp.StatusCode, page)
		}
		if strings.Contains(string(page), "<script") || strings.Contains(string(page), canary) {
			t.Errorf("%s", page)
		}
		for name, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
			"Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff",
		} {
			testenv.Equal(t, resp.Header.Get(name), want, name)
		}
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "script") {
			t.Errorf("%s", csp)
		}
	}
	status, page := mustPost(t, l.Approve, "reason=fine%0D%0Aevil&actor=me", "Content-Type", "application/x-www-form-urlencoded", "Origin", url)
	if status != http.StatusOK || !strings.Contains(page, "Approved") {
		t.Errorf("%d %s", status, page)
	}
	if status, page := mustPost(t, l.Reject, ""); status != http.StatusGone || !strings.Contains(page, "does not work any more") {
		t.Errorf("%d %s", status, page)
	}
	for _, e := range s.Gates.Audit(api.Filter{}, nil) {
		if e.Action == "open" && (e.Reason != "fine; evil" || !strings.Contains(e.Actor, "link")) {
			t.Errorf("%+v", e)
		}
	}

	mustPost(t, url+"/gate/close", `{"name":"`+canary+`","namespace":"test"}`)
	l = links()
	if status, page := mustPost(t, l.Reject, ""); status != http.StatusOK || !strings.Contains(page, "Rejected") {
		t.Errorf("%d %s", status, page)
	}
	testenv.Equal(t, check("/rollback/check", "a"), http.StatusOK, "the rollback switch answers")
}

// TestLinkEndsWithCredential shows that a link ends with the credential of the caller that made it.
func TestLinkEndsWithCredential(t *testing.T) {
	var clockOffset atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(clockOffset.Load())) }
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	tokens := "tokens:\n- {name: stays, token: stays-token-0123456789}\n- {name: goes, token: goes-token-0123456789, expires: " + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + "}\n"
	must(t, os.WriteFile(file, []byte(tokens), 0o600))
	s := newServer(t)
	var err error
	if s.Guard, err = httpserve.OpenGuard(httpserve.Config{File: file, Now: now}); err != nil {
		t.Fatal(err)
	}
	url := "http://" + serve(t, s)
	mustPost(t, url+"/gate/check", `{"name":"web","namespace":"prod","checksum":"a"}`, "Authorization", "Bearer stays-token-0123456789")
	k := api.Key{Kind: api.KindGate, Namespace: "prod", Name: "web", Gate: "default"}
	links := map[string]api.Link{}
	for _, name := range []string{"stays", "goes"} {
		c := &api.Client{URL: url, Token: name + "-token-0123456789"}
		if links[name], err = c.Link(t.Context(), k, api.LinkRequest{TTL: "8h"}); err != nil {
			t.Fatal(err)
		}
		testenv.Equal(t, get(t, links[name].Approve).StatusCode, http.StatusOK, name)
	}
	clockOffset.Store(int64(2 * time.Hour))
	testenv.Equal(t, get(t, links["goes"].Approve).StatusCode, http.StatusGone, "page of a former caller")
	for _, link := range []string{links["goes"].Approve, links["goes"].Reject} {
		if status, _ := mustPost(t, link, ""); status != http.StatusGone {
			t.Errorf("button of a former caller: %d", status)
		}
	}
	if status, page := mustPost(t, links["stays"].Approve, "", "Authorization", "Bearer stays-token-0123456789"); status != http.StatusOK || s.Gates.Gate(k).Actor != "stays" {
		t.Errorf("%d %s, by %q", status, page, s.Gates.Gate(k).Actor)
	}
}

// TestBrowserAtRoot shows that a browser at the root is redirected to the page, and keeps the
// token of its path.
func TestBrowserAtRoot(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, tenants)
	url := "http://" + serve(t, s)
	for path, want := range map[string]string{
		"/":                              "/ui/",
		"/token/all-of-it-0123456789":    "/token/all-of-it-0123456789/ui/",
		"/token/all-of-it-0123456789/":   "/token/all-of-it-0123456789/ui/",
		"/token/all-of-it%2d0123456789":  "/token/all-of-it%2d0123456789/ui/",
		"/token//all-of-it-0123456789":   "/token//all-of-it-0123456789/ui/",
		"/token/all-of-it-0123456789/ui": "/token/all-of-it-0123456789/ui/",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		must(t, err)
		req.Header.Set("Accept", "text/html")
		resp, err := client.Do(req)
		must(t, err)
		resp.Body.Close()
		at, err := resp.Location()
		if err != nil || at.String() != url+want {
			t.Errorf("%s: %d, to %v (%v)", path, resp.StatusCode, at, err)
			continue
		}
		testenv.Equal(t, get(t, at.String()).StatusCode, http.StatusOK, at)
	}
}

// TestReadScopes shows that callers see only the gates and the types of runs in their
// scope: not every caller of a namespace may read the output of its tests.
func TestReadScopes(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, tenants+"- {name: none, token: none-token-0123456789, types: [], kinds: [rollback]}\n")
	url := "http://" + serve(t, s)
	all, team := &api.Client{URL: url, Token: "all-of-it-0123456789"}, &api.Client{URL: url, Token: "team-token-0123456789"}
	none := &api.Client{URL: url, Token: "none-token-0123456789"}
	stream := get(t, url+"/api/v1/watch", "Authorization", "Bearer team-token-0123456789")
	changes := bufio.NewScanner(stream.Body)
	changes.Scan() // the stream has begun
	header := []string{"Authorization", "Bearer all-of-it-0123456789"}
	canary := `{"name":"n","namespace":"team-a"`
	for i := range 6 { // a limit counts only what the caller may see
		other := fmt.Sprintf(`{"name":"n%d","namespace":%q`, i, []string{"prod", "prod", "team-b"}[i%3])
		mustPost(t, url+"/gate/traffic/open", other+"}", header...)
	}
	if entries, err := team.Audit(t.Context(), api.Filter{Limit: 2}); err != nil || len(entries) != 2 || entries[0].Name != "n5" || entries[1].Name != "n2" {
		t.Errorf("audit: %v %+v", err, entries)
	}
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
	gates, err := team.Gates(t.Context(), api.Filter{Namespace: "team-a"})
	if err != nil || len(gates) != 1 || gates[0].Gate != "traffic-1" {
		t.Errorf("gates: %v %+v", err, gates)
	}
	entries, err := team.Audit(t.Context(), api.Filter{Namespace: "team-a"})
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
		testenv.Equal(t, get(t, url+"/api/v1/"+path, "Authorization", "Bearer team-token-0123456789").StatusCode, http.StatusForbidden, path)
	}
}
