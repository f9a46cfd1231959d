package git_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A server that is known to speak protocol 2 is asked without a greeting: a check
// is one request, a fetch one more.
func TestKnownServer(t *testing.T) {
	repo := one(t)
	v2, v0 := testenv.ServeHTTP(t, testenv.HTTP{}, repo), testenv.ServeHTTP(t, testenv.HTTP{V0: true}, repo)
	old := false // whether the server speaks version 0 now
	server := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to := v2.URL
		if old {
			to = v0.URL
		}
		u, _ := url.Parse(to)
		r.SetURL(u)
	}})
	defer server.Close()
	g := object(server.URL+strings.TrimPrefix(v2.Repo(), v2.URL), source.GitRepositoryRef{Branch: "main"})
	var state source.State
	for _, step := range []struct {
		name, check, fetch string
		do                 func()
	}{
		{"unknown", "1 advertisements, 1 lists, 0 packs", "1 advertisements, 1 lists, 1 packs", nil},
		{"unchanged", "0 advertisements, 1 lists, 0 packs", "0 advertisements, 1 lists, 1 packs", nil},
		{"changed", "0 advertisements, 1 lists, 0 packs", "0 advertisements, 1 lists, 1 packs", func() { repo.Commit(testenv.Commit{Branch: "main"}) }},
		{"with nonsense for a state", "1 advertisements, 1 lists, 0 packs", "1 advertisements, 1 lists, 1 packs", func() {
			state = source.State(`{"server":{"url":"` + g.Spec.URL + `","capabilities":"fetch=\nobject-format=md5\nls-refs="}}`)
		}},
		{"of another URL", "1 advertisements, 1 lists, 0 packs", "1 advertisements, 1 lists, 1 packs", func() {
			state = source.State(strings.Replace(string(state), "http://", "http://other.", 1))
		}},
	} {
		if step.do != nil {
			step.do()
		}
		v2.Reset()
		o := git.New(g, source.Env{})
		rev, next, err := o.Resolve(t.Context(), state)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := counts(v2); got != step.check {
			t.Errorf("%s: a check is %s, want %s", step.name, got, step.check)
		}
		c, err := o.Open(t.Context(), rev)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		c.Close()
		if got := counts(v2); got != step.fetch {
			t.Errorf("%s: a fetch is %s, want %s", step.name, got, step.fetch)
		}
		state = next
	}

	old = true
	if rev, next, err := git.New(g, source.Env{}).Resolve(t.Context(), state); err != nil || rev.ID == "" || strings.Contains(string(next), "capabilities") {
		t.Errorf("a server that speaks version 0 now: %v, state %s", err, next)
	}
}

// A known server that refuses a request is greeted, and its answer to that is told.
func TestKnownServerRefuses(t *testing.T) {
	repo := one(t)
	server := testenv.ServeHTTP(t, testenv.HTTP{Allow: func(r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		return password == "good-canary"
	}}, repo)
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	g.Spec.SecretRef = &source.LocalReference{Name: "login"}
	resolve := func(password string, state source.State) (source.State, error) {
		env := source.Env{Secrets: sourcetest.Secrets{"default/login": sourcetest.Secret("username", "alice", "password", password)}}
		_, state, err := git.New(g, env).Resolve(t.Context(), state)
		return state, err
	}
	state, err := resolve("good-canary", nil)
	if err != nil || strings.Contains(string(state), "canary") {
		t.Fatalf("state %s, %v", state, err)
	}
	server.Reset()
	_, err = resolve("bad-canary", state)
	wantReason(t, err, auth)
	if got := counts(server); got != "1 advertisements, 1 lists, 0 packs" {
		t.Errorf("a refusal: %s", got)
	}
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		server.Break(&testenv.Defect{Phase: testenv.LsRefs, Status: status})
		server.Reset()
		if _, err := resolve("good-canary", state); err == nil || !strings.HasPrefix(counts(server), "0 advertisements") {
			t.Errorf("status %d: %v after %s", status, err, counts(server))
		}
	}
}
