package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/access"
)

// write writes a file of callers and returns its name.
func write(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func guard(t testing.TB, text string) *access.Guard {
	t.Helper()
	g, err := access.Open(access.Config{File: write(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// as returns the grant of a token.
func as(t testing.TB, g *access.Guard, token string) access.Grant {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	grant, err := g.Identify(r)
	if err != nil {
		t.Fatal(err)
	}
	return grant
}

var acts = map[string]func(access.Grant, source.Reference) error{
	"fetch": access.Grant.Fetch, "read": access.Grant.Read, "change": access.Grant.Change,
	"debug": func(g access.Grant, _ source.Reference) error { return g.Debug() },
}

func TestScopes(t *testing.T) {
	g := guard(t, `
tokens:
- {name: all, token: 0000000000000000-all}
- {name: debugs, token: 0000000000000000-debugs, may: [debug]}
- {name: fetches, token: 0000000000000000-fetches, may: [fetch]}
- {name: shop, token: 0000000000000000-shop, namespaces: [shop, "team-*"], may: [read, change, debug]}
- {name: charts, token: 0000000000000000-charts, kinds: [HelmChart], may: [read, debug]}
- {name: helm, token: 0000000000000000-helm, kinds: ["Helm*"]}
- {name: pkg, token: 0000000000000000-pkg, kinds: [PkgChart, git*]}
- {name: none, token: 0000000000000000-none, namespaces: []}
`)
	for _, tt := range []struct{ token, what, kind string }{ // kind of the denial
		{"all", "fetch GitRepository shop", ""},
		{"all", "change Bucket x", ""},
		{"all", "debug", "may"}, // only those who are named for it
		{"debugs", "debug", ""},
		{"debugs", "read Bucket x", "may"},
		{"fetches", "fetch Bucket x", ""},
		{"fetches", "read Bucket x", "may"},
		{"fetches", "change Bucket x", "may"},
		{"shop", "read Bucket shop", ""},
		{"shop", "change Bucket team-a", ""},
		{"shop", "read Bucket shop2", "namespace"},
		{"shop", "read Bucket my-team-a", "namespace"},
		{"shop", "fetch Bucket shop", "may"},
		{"shop", "debug", "namespace"}, // profiles are of all namespaces
		{"charts", "read PkgChart x", ""},
		{"charts", "read HelmChart x", ""},
		{"charts", "read PkgRepository x", "kind"},
		{"charts", "debug", "kind"},
		{"helm", "read PkgChart x", ""},
		{"helm", "fetch PkgRepository x", ""},
		{"helm", "fetch GitRepository x", "kind"},
		{"pkg", "fetch PkgChart x", ""},
		{"pkg", "fetch GitRepository x", "kind"}, // patterns are of the case of kinds
		{"none", "read Bucket x", "namespace"},
	} {
		f := append(strings.Fields(tt.what), "", "")
		err := acts[f[0]](as(t, g, "0000000000000000-"+tt.token), source.Reference{Kind: f[1], Namespace: f[2], Name: "app"})
		denial, ok := errors.AsType[*access.Denial](err)
		if ok != (tt.kind != "") || ok && (denial.Kind != tt.kind || denial.Actor != tt.token || !errors.Is(err, access.ErrForbidden)) {
			t.Errorf("%s: %s: %v, want a denial of kind %q", tt.token, tt.what, err, tt.kind)
		}
	}
	for name, act := range acts {
		if err := act(access.Grant{}, source.Reference{}); !errors.Is(err, access.ErrForbidden) {
			t.Errorf("the zero grant may %s: %v", name, err)
		}
		all, err := (*access.Guard)(nil).Identify(httptest.NewRequest("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := act(all, source.Reference{}); err != nil {
			t.Errorf("a caller that may do everything may not %s: %v", name, err)
		}
	}
}

func TestFile(t *testing.T) {
	const token = "token: 0123456789abcdef-secret"
	for name, tt := range map[string]struct{ text, want string }{
		"an unknown verb":     {"tokens: [{name: a, " + token + ", may: [write]}]", `tokens[0].may[0]: "write" is nothing that callers may do`},
		"a verb with *":       {"tokens: [{name: a, " + token + ", may: ['*']}]", "want one of fetch, read, change, debug"},
		"verbs without value": {"tokens:\n- name: a\n  " + token + "\n  may:\n", "leave it out for all but debug, write [] for none"},
		"an unknown kind":     {"tokens: [{name: a, " + token + ", kinds: [Deployment]}]", `"Deployment" is no kind`},
		"a scope of others":   {"tokens: [{name: a, " + token + ", gates: [x]}]", "tokens[0].gates: unknown field"},
		"a short token":       {"tokens: [{name: a, token: abc}]", "shorter than 16 bytes"},
	} {
		_, err := access.Open(access.Config{File: write(t, tt.text)})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestIdentify(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const token = "0123456789abcdef-ci"
	g, err := access.Open(access.Config{
		File:         write(t, "tokens: [{name: ci, token: "+token+", expires: 2026-01-02T00:00:00Z}]\ncertificates: [{name: alice, commonName: alice}]"),
		Certificates: true, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	login := httptest.NewRecorder()
	if _, err := g.Login(login, httptest.NewRequest(http.MethodPost, "/", nil), token); err != nil {
		t.Fatal(err)
	}
	session := login.Result().Cookies()[0]
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, NotAfter: now.AddDate(1, 0, 0)}
	for name, tt := range map[string]struct {
		target string
		set    func(*http.Request)
		actor  string
	}{
		"bearer":              {"/", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }, "ci"},
		"basic":               {"/", func(r *http.Request) { r.SetBasicAuth("any", token) }, "ci"},
		"query":               {"/x?token=" + token, nil, "ci"},
		"path":                {"/token/" + token + "/x", nil, "ci"},
		"session":             {"/", func(r *http.Request) { r.AddCookie(session) }, "ci"},
		"certificate":         {"/", func(r *http.Request) { r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}} }, "alice"},
		"unverified":          {"/", func(r *http.Request) { r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}} }, ""},
		"another cookie":      {"/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "headgate_session", Value: session.Value}) }, ""},
		"nothing":             {"/", nil, ""},
		"a wrong token":       {"/", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token+"x") }, ""},
		"an address to trust": {"/", func(r *http.Request) { r.Header.Set("X-Forwarded-For", "127.0.0.1"); r.RemoteAddr = "@" }, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.target, nil)
		if tt.set != nil {
			tt.set(r)
		}
		grant, err := g.Identify(r)
		if grant.Actor != tt.actor || (err == nil) != (tt.actor != "") || err != nil && !errors.Is(err, access.ErrUnknown) {
			t.Errorf("%s: %q, %v; want %q", name, grant.Actor, err, tt.actor)
		}
		if dump := fmt.Sprint(r.Header, r.URL, r.RequestURI, err); strings.Contains(dump, token) {
			t.Errorf("%s: the token is left in %s", name, dump)
		}
	}
	grant := as(t, g, token)
	now = now.AddDate(0, 0, 1)
	if _, err := g.Renew(grant); !errors.Is(err, access.ErrUnknown) {
		t.Errorf("an expired token is renewed: %v", err)
	}
}

func TestEverybody(t *testing.T) {
	open, err := access.Open(access.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]*access.Guard{"nil": nil, "without a file": open} {
		grant, err := g.Identify(httptest.NewRequest(http.MethodGet, "/?token=x", nil))
		if err != nil || g.Required() || grant.Debug() != nil || grant.Change(source.Reference{}) != nil {
			t.Errorf("%s: %+v, %v", name, grant, err)
		}
	}
}

// TestListsAreCheap has the filtering of a list cost an allocation an object at most.
func TestListsAreCheap(t *testing.T) {
	g := guard(t, `tokens: [{name: a, token: 0123456789abcdef, namespaces: [shop, "team-*", "*-prod"], kinds: ["Helm*", GitRepository]}]`)
	grant := as(t, g, "0123456789abcdef")
	kinds := []string{"GitRepository", "PkgChart", "Bucket"}
	var refs []source.Reference
	for i := range 10_000 {
		refs = append(refs, source.Reference{Kind: kinds[i%3], Namespace: fmt.Sprintf("team-%d", i%7), Name: fmt.Sprint(i)})
	}
	seen := 0
	allocs := testing.AllocsPerRun(3, func() {
		seen = 0
		for _, ref := range refs {
			if grant.Read(ref) == nil {
				seen++
			}
		}
	})
	if seen != 6667 || allocs > float64(len(refs)) {
		t.Errorf("%d objects seen, %v allocations", seen, allocs)
	}
}

// TestSocket has callers of the socket do everything, whatever they say.
func TestSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("sockets are of Unix")
	}
	g := guard(t, "tokens: [{name: ci, token: 0123456789abcdef, may: []}]")
	path := filepath.Join(t.TempDir(), "s")
	l, err := httpserve.Listen(t.Context(), httpserve.Endpoint{Addr: "127.0.0.1:0", Socket: path}, true, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grant, err := g.Identify(r)
		renewed, again := g.Renew(grant)
		fmt.Fprint(w, err, again, grant.Debug(), renewed.Change(source.Reference{}), r.URL, r.Header["Authorization"])
	})
	go func() {
		ended <- l.Serve(ctx, handler, slog.New(slog.DiscardHandler), func(context.Context) error { return nil })
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return httpserve.DialSocket(ctx, path)
	}}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://headgate/?token=wrong", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer 0123456789abcdef")
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if string(body) != "<nil> <nil> <nil> <nil> / []" {
		t.Errorf("%s", body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
