package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A rollout that goes on from its mirrored step, in another process, does not
// mirror again.
func TestMirrorIsNotBegunAgain(t *testing.T) {
	var routes []string
	balancer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { routes = append(routes, req.URL.RawQuery) }))
	defer balancer.Close()
	s := newTheatre(t)
	args := s.args(t, "post-rollout", "/", `{"phase": "Progressing", "lastAppliedSpec": "v2", "lastPromotedSpec": "v1"}`)
	text, err := os.ReadFile(args[3])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(args[3], []byte(strings.Replace(string(text), "stepWeight:", "mirror: true\n    stepWeight:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append(args[:6:6], "--revision", "v2", "--once", "--interval", "1ns", "--request", "set-routes="+balancer.URL+"/?{{.Canary}}{{if .Mirrored}}m{{end}}")
	for range 3 {
		if code := run(t.Context(), args, strings.NewReader(""), io.Discard, io.Discard, os.LookupEnv); code != exitNotOver {
			t.Errorf("exit code %d", code)
		}
	}
	if want := []string{"0m", "20", "40"}; !slices.Equal(routes, want) {
		t.Errorf("got %q, want %q", routes, want)
	}
}

// Credentials go to the one origin that they are for.
func TestCredentialsOfRequests(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t0k3n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const one, other, template = "set-routes=https://lb.example/a", "promote=POST https://cd.example/b", "promote=https://{{.Name}}.example/"
	for name, test := range map[string]struct {
		flags adapterFlags
		ok    bool
	}{
		"one origin":          {adapterFlags{tokenFile: token, request: []string{one, "promote=PUT HTTPS://LB.example/b?{{.Name}}"}}, true},
		"several":             {adapterFlags{tokenFile: token, request: []string{one, other}}, false},
		"another scheme":      {adapterFlags{tokenFile: token, request: []string{one, "promote=http://lb.example/a"}}, false},
		"a query":             {adapterFlags{tokenFile: token, request: []string{"routes=https://lb.example?a", "promote=https://lb.example?b"}}, true},
		"a template":          {adapterFlags{tokenFile: token, request: []string{template}}, false},
		"a header":            {adapterFlags{headers: []string{"authorization: Bearer t"}, request: []string{one, other}}, false},
		"no credentials":      {adapterFlags{headers: []string{"X-Team: a"}, request: []string{one, other, "scale-up=https://{{.Name}}.example/"}}, true},
		"commands for others": {adapterFlags{tokenFile: token, request: []string{one}, exec: []string{"promote=deploy"}}, true},
	} {
		if _, err := test.flags.driver(); (err == nil) != test.ok || err != nil && !strings.Contains(err.Error(), "one origin") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
