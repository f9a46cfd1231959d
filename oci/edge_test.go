package oci_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A connection that is reset before the answer is one that hung up.
func TestReset(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	want := g.Push("team/app", "v1", layer("x"))
	d := serve(testenv.HeadManifest, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})
	d.Times = 1
	g.Break(d)
	r := plain(t, g)
	var p patience
	p.of(r)
	if d, err := r.Head(t.Context(), "v1"); err != nil || d.Digest != want.Digest || len(p) != 1 {
		t.Error(d, err, p)
	}
}

func TestOddChallenges(t *testing.T) {
	for header, want := range map[string]string{
		``:                                "401 Unauthorized",
		`Negotiate`:                       "401 Unauthorized",
		`realm="x"`:                       "401 Unauthorized",
		`Basic realm="x`:                  "404 Not Found",
		`Bearer`:                          "names nothing as its token service",
		`Bearer realm=""`:                 "names nothing",
		`Negotiate abc, Basic realm="a"`:  "404 Not Found",
		`Digest a="\"b", BASIC realm="a"`: "404 Not Found",
		strings.Repeat("x", 10<<10):       "401 Unauthorized",
	} {
		ca := testenv.NewCA(t)
		g := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca})
		g.Break(serve("", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("WWW-Authenticate", header)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		access, env := guarded{g, ca, dockerconfig(g.Host, "ann", password)}.access()
		r, _ := connect(t, access, env)
		if _, err := r.Head(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", header, err)
		}
	}
}
