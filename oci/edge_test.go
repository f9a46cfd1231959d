package oci_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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

func TestListOfTooManyBytes(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	page := `{"x":"` + strings.Repeat("x", 4<<20-100) + `","tags":["a"]}`
	g.Break(serve(testenv.ListTags, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("last"))
		w.Header().Set("Link", fmt.Sprintf(`<?last=%d>; rel="next"`, n+1))
		io.WriteString(w, page)
	}))
	if err := tagsOf(plain(t, g)); err == nil || !strings.Contains(err.Error(), "more than 67108864 bytes") || g.Count() > 17 {
		t.Error(err, g.Count())
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

// What is no digest goes nowhere.
func TestNoDigest(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	r := plain(t, g)
	bad := ocispec.Descriptor{Digest: "sha256:../x"}
	if err := last(r.Referrers(t.Context(), bad, "")); err == nil || !strings.Contains(err.Error(), "no digest") {
		t.Error(err)
	}
	if g.Count() > 0 {
		t.Error(g.Requests())
	}
}

// Whoever writes what was read may fail, and reading ends with it.
func TestWriteToFails(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	b := testenv.Blob{Data: []byte("content")}
	d := g.PushBlob("team/app", b)
	content, err := plain(t, g).Blob(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	pr, pw := io.Pipe()
	pr.CloseWithError(fs.ErrClosed)
	if _, err := io.Copy(pw, content); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
}

// A layout ends with the context as well.
func TestLayoutObeysContext(t *testing.T) {
	l := newLayout(t)
	v1 := l.manifest("v1", "one", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := last(l.open().Referrers(ctx, v1, "")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	l.list(l.blob(ocispec.MediaTypeImageManifest, []byte(`{"subject":1,"layers":[]}`)))
	if err := last(l.open().Referrers(t.Context(), v1, "")); err == nil || !strings.Contains(err.Error(), "subject") {
		t.Error(err)
	}
	for range l.open().Tags(t.Context()) {
		break
	}
	if _, err := l.open().Head(t.Context(), digest.FromString("none").String()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
