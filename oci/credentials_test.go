package oci_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// entries returns a dockerconfigjson in which the user of each entry is its name.
func entries(names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%q:{\"username\":%q,\"password\":\"pass\"}", name, name))
	}
	return `{"auths":{` + strings.Join(all, ",") + `}}`
}

func TestKeys(t *testing.T) {
	for _, row := range []struct {
		url, want string
		configs   []string
	}{
		{"oci://r.example/a/b", "r.example", []string{entries("other.example", "r.example")}},
		{"oci://r.example/a/b", "https://r.example", []string{entries("https://r.example")}},
		{"oci://r.example/a/b", "http://r.example/v2/", []string{entries("http://r.example/v2/")}},
		{"oci://r.example/a/b", "r.example/v1", []string{entries("r.example/v1")}},
		{"oci://r.example:5000/a/b", "r.example:5000", []string{entries("r.example:5000", "r.example")}},
		{"oci://r.example:5000/a/b", "", []string{entries("r.example", "r.example:500")}},
		{"oci://r.example/a/b", "", []string{entries("r.example:443", "evil-r.example", "example", "r.example.org")}},
		{"oci://[::1]:5000/a/b", "[::1]:5000", []string{entries("[::1]:5000", "[::2]:5000")}},
		// Docker Hub has several names.
		{"oci://docker.io/a", "https://index.docker.io/v1/", []string{entries("https://index.docker.io/v1/")}},
		{"oci://index.docker.io/library/a", "docker.io", []string{entries("docker.io")}},
		{"oci://registry-1.docker.io/a/b", "https://registry-1.docker.io/v2/", []string{entries("https://registry-1.docker.io/v2/")}},
		{"oci://docker.io/a", "docker.io/library", []string{entries("docker.io", "docker.io/library")}},
		// Paths are folders; the longest is used.
		{"oci://r.example/a/b", "r.example/a/b", []string{entries("r.example", "r.example/a", "r.example/a/b", "r.example/a/b/c")}},
		{"oci://r.example/a/b", "https://r.example/a/", []string{entries("r.example", "https://r.example/a/", "r.example/ab")}},
		{"oci://r.example/ab/c", "r.example", []string{entries("r.example", "r.example/a")}},
		{"oci://r.example/v2/x", "r.example/v2/v2", []string{entries("r.example", "r.example/v2/v2")}},
		// Patterns are for labels.
		{"oci://r.example.org/a", "*.example.org", []string{entries("*.example.org", "*.org")}},
		{"oci://r1.example.org/a", "r?.example.org", []string{entries("*.example.org", "r?.example.org")}},
		{"oci://r.example.org/a", "r.example.org", []string{entries("*.example.org", "r.example.org")}},
		{"oci://r.example.org/a", "*.example.org/a", []string{entries("*.example.org/a", "r.example.org")}},
		{"oci://r.example.org:5000/a", "*.example.org:5000", []string{entries("*.example.org", "*.example.org:5000")}},
		{"oci://a.r.example.org/a", "", []string{entries("*.example.org", "*", "*.r.*", "[")}},
		// Among equal entries the one in the first Secret is used.
		{"oci://r.example/a", "https://r.example", []string{entries("https://r.example"), entries("r.example")}},
		{"oci://r.example/a", "r.example/a", []string{entries("https://r.example"), entries("r.example/a")}},
		{"oci://r.example/a", "", []string{`{"auths":{"r.example":{},"x.example":{"email":"a@b"}},"credsStore":"evil"}`}},
		{"oci://r.example/a", "", []string{`{}`, `{"auths":null}`, `{"auths":{}}`}},
	} {
		got, found, err := oci.Find(row.url, row.configs...)
		if err != nil || got.Username != row.want || found != (row.want != "") {
			t.Errorf("%s: %q, %v, want %q of %s", row.url, got.Username, err, row.want, row.configs)
		}
	}
}

func TestLogins(t *testing.T) {
	for _, row := range []struct{ login, user, password, refresh, token, wrong string }{
		{`"auth":"YW5uOm9wZW46c2VzYW1l"`, "ann", "open:sesame", "", "", ""},
		{`"auth":"YW5uOm9wZW4"`, "ann", "open", "", "", ""},         // no padding
		{`"auth":"YW5uOm9wZW4AAA=="`, "ann", "open", "", "", ""},    // as written by old versions of Docker
		{`"auth":"YW5uOg==","password":"x"`, "ann", "", "", "", ""}, // auth takes precedence
		{`"username":"bob","password":"secret"`, "bob", "secret", "", "", ""},
		{`"auth":"MDAwMDo=","identitytoken":"r"`, "0000", "", "r", "", ""},
		{`"registrytoken":"t"`, "", "", "", "t", ""},
		{`"auth":"!!!SECRET"`, "", "", "", "", "base64"},
		{`"auth":"U0VDUkVU"`, "", "", "", "", "base64"},
		{`"username":"a","password":"SECRET\n"`, "", "", "", "", "control character"},
		{`"identitytoken":"SECRET\u0000"`, "", "", "", "", "control character"},
		{`"username":"a","password":["SECRET"]`, "", "", "", "", "no JSON"},
		{`"auth":"SECRET"`, "", "", "", "", "base64"},
	} {
		c, _, err := oci.Find("oci://r.example/a", `{"auths":{"r.example":{`+row.login+`}}}`)
		if row.wrong != "" {
			e, ok := errors.AsType[*transport.SecretError](err)
			if !ok || e.Secret != "apps/s0" || e.Key != ".dockerconfigjson" || !strings.Contains(err.Error(), row.wrong) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s: %v", row.login, err)
			}
			continue
		}
		if err != nil || c.Username != row.user || c.Password != row.password || c.Refresh != row.refresh || c.Token != row.token {
			t.Errorf("%s: %+v, %v", row.login, c, err)
		}
	}
}

func TestHostileKeys(t *testing.T) {
	for name, row := range map[string]struct{ config, want string }{
		"no JSON":       {"SECRET", "no JSON"},
		"cut off":       {`{"auths":{"r":{"auth":"SECRET`, "no JSON"},
		"nested":        {strings.Repeat(`{"auths":`, 100_000), "no JSON"},
		"of wrong type": {`{"auths":["SECRET"]}`, "no JSON"},
		"absent":        {"", "is missing"},
	} {
		_, _, err := oci.Find("oci://r.example/a", row.config)
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "SECRET") || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTrusts(t *testing.T) {
	for _, row := range []struct {
		registry, realm, config string
		want                    bool
	}{
		{"r.example.org", "https://r.example.org/token", "", true},
		{"r.example.org:5050", "https://r.example.org/jwt/auth", "", true},
		{"r.example.org", "https://R.EXAMPLE.ORG:8443/token", "", true},
		{"registry.example.org", "https://auth.example.org/token", "", true},
		{"registry.example.org", "https://example.org/token", "", true},
		{"registry-1.docker.io", "https://auth.docker.io/token", "", true},
		{"registry.gitlab.com", "https://gitlab.com/jwt/auth", "", true},
		{"registry.corp.internal", "https://sso.corp.internal/token", "", true},
		{"registry.example.org", "https://auth.example.com/token", "", false},
		{"registry.example.org", "https://example.org.evil.com/token", "", false},
		{"registry.example.org", "https://evilexample.org/token", "", false},
		{"a.co.uk", "https://b.co.uk/token", "", false},
		{"a.github.io", "https://b.github.io/token", "", false}, // of two owners
		{"10.0.0.1", "https://10.0.0.2/token", "", false},
		{"registry", "https://auth/token", "", false},
		{"registry.evil.org", "https://auth.docker.io/token", "", false},
		{"registry.example.org", "https://auth.example.com/token", entries("auth.example.com"), true},
		{"registry.example.org", "https://auth.example.com:8443/token", entries("auth.example.com"), false},
		{"registry.example.org", "https://auth.example.com:8443/token", entries("https://auth.example.com:8443/x"), true},
		{"registry.example.org", "https://auth.example.com/token", entries("*.example.com"), false},
		{"registry.example.org", "http://registry.example.org/token", "", false},
		{"registry.example.org", "https://a:b@registry.example.org/token", "", false},
	} {
		testenv.Equal(t, oci.Trusts(row.registry, row.realm, row.config), row.want, "%s is trusted at %s", row.realm, row.registry)
	}
}

// TestTokensWithoutEnd tests a registry that requires a new, large token for every page of an
// endless list.
func TestTokensWithoutEnd(t *testing.T) {
	var mu sync.Mutex
	var used string
	issued := 0
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve("", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		shown := r.Header.Get("Authorization")
		switch {
		case r.URL.Path == "/token":
			issued++
			fmt.Fprintf(w, `{"token":"%060000d"}`, issued)
		case shown == "" || shown == used:
			w.Header().Set("Www-Authenticate", `Bearer realm="`+g.Base+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			used = shown
			w.Header().Set("Link", fmt.Sprintf(`<?last=%d>; rel="next"`, issued))
			io.WriteString(w, `{"tags":["a"]}`)
		}
	}))
	if err := listTags(plain(t, g)); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes of tokens") || issued > 20 {
		t.Error(err, issued)
	}
}

// TestTokenAnswers tests invalid responses of a token service.
func TestTokenAnswers(t *testing.T) {
	for name, row := range map[string]struct{ body, want string }{
		"of 1 MB":             {`{"token":"` + strings.Repeat("t", 1<<20) + `"}`, "more than"},
		"of 100 KB":           {`{"token":"` + strings.Repeat("t", 100<<10) + `"}`, "the token has 102400 bytes"},
		"with a line break":   {`{"token":"a\r\nX-Evil: 1"}`, "characters"},
		"empty":               {`{"token":""}`, "no token"},
		"missing":             {`{}`, "no token"},
		"no JSON":             {`<html>secret</html>`, "no JSON"},
		"no object":           {`["token"]`, "no JSON"},
		"called access_token": {`{"access_token":"x"}`, "401"},
		"wrong":               {`{"token":"x","access_token":"x"}`, "401"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuardedRegistry(t, testenv.NewCA(t), &testenv.Bearer{})
			g.Break(&testenv.Defect{Phase: testenv.GetToken, Status: http.StatusOK, Body: row.body})
			access, env := g.access()
			r, _ := connect(t, access, env)
			_, err := r.Head(t.Context(), "v1")
			if err == nil || !strings.Contains(err.Error(), row.want) || len(err.Error()) > 500 || strings.Contains(err.Error(), "secret<") {
				t.Error(err)
			}
		})
	}
}

// TestTokenRedirect checks that a request for a token, which contains the password, is not
// redirected to another server.
func TestTokenRedirect(t *testing.T) {
	ca := testenv.NewCA(t)
	for kind, config := range map[string]string{
		"password":      `{"username":"ann","password":"` + password + `"}`,
		"refresh token": `{"username":"ann","identitytoken":"` + password + `"}`,
	} {
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			g, other := newGuardedRegistry(t, ca, &testenv.Bearer{IdentityToken: password}), newGuardedRegistry(t, ca, &testenv.Bearer{})
			g.config = `{"auths":{"` + g.Host + `":` + config + `}}`
			g.Break(&testenv.Defect{Phase: testenv.GetToken, Status: status, Header: http.Header{"Location": {other.Base}}})
			access, env := g.access()
			r, _ := connect(t, access, env)
			if _, err := r.Head(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), "redirects to") || other.Count() > 0 {
				t.Error(kind, status, err, other.Requests())
			}
		}
	}
}

func TestTokens(t *testing.T) {
	ca := testenv.NewCA(t)
	for name, row := range map[string]struct {
		bearer   testenv.Bearer
		login    string
		requests int // number of token requests
	}{
		"password":        {testenv.Bearer{}, `"username":"ann","password":"` + password + `"`, 1},
		"identity token":  {testenv.Bearer{IdentityToken: "refresh me"}, `"identitytoken":"refresh me"`, 1},
		"used up":         {testenv.Bearer{Uses: 1}, `"username":"ann","password":"` + password + `"`, 3},
		"identity, again": {testenv.Bearer{IdentityToken: "refresh me", Uses: 1}, `"auth":"MDAwMDo=","identitytoken":"refresh me"`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuardedRegistry(t, ca, &row.bearer)
			g.config = `{"auths":{"` + g.Host + `":{` + row.login + `}}}`
			d := g.Push("team/app", "v1", layer("x"))
			access, env := g.access()
			r, v := connect(t, access, env)
			for range 3 {
				_, _, err := r.Manifest(t.Context(), d)
				must(t, err)
			}
			testenv.Equal(t, g.Count(testenv.GetToken), row.requests, "tokens were asked for")
			for _, token := range g.Tokens() {
				if got := redact.String("x "+token+" y", v.Values()...); strings.Contains(got, token) {
					t.Error("a token is not kept out of texts")
				}
			}
		})
	}
}

// TestRegistryToken checks that a registry token is sent to the registry, and that no other
// token is requested.
func TestRegistryToken(t *testing.T) {
	ca := testenv.NewCA(t)
	g := guardedRegistry{testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Bearer: &testenv.Bearer{Realm: "https://tokens.example/"},
		Allow: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer given" }}), ca, ""}
	g.config = `{"auths":{"` + g.Host + `":{"registrytoken":"given"}}}`
	g.Push("team/app", "v1", layer("x"))
	access, env := g.access()
	r, _ := connect(t, access, env)
	if _, err := r.Head(t.Context(), "v1"); err != nil {
		t.Error(err)
	}
}

// TestZones checks that a registry at a public address cannot use a redirect or a token
// service in a narrower network, unless the user permits the host.
func TestZones(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	ca := testenv.NewCA(t)
	blob := testenv.Blob{Data: []byte("x")}
	storage := testenv.StartRegistry(t, testenv.RegistryConfig{})
	storage.PushBlob("team/app", blob)
	narrow := testenv.PrivateHosts(t)
	var names []string
	for _, n := range narrow {
		names = append(names, (&url.URL{Host: n.Host}).Hostname())
	}
	issuer := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Names: names, Bearer: &testenv.Bearer{Anonymous: true}})
	withHost := func(g *testenv.Registry, host string) string {
		u, _ := url.Parse(g.Base)
		return u.Scheme + "://" + host + ":" + u.Port()
	}
	for i, n := range narrow { // test each host in one of the two ways
		redirecting := testenv.StartRegistry(t, testenv.RegistryConfig{})
		redirecting.Break(&testenv.Defect{Phase: testenv.GetBlob, Status: http.StatusFound, Header: http.Header{"Location": {withHost(storage, n.Host)}}})
		naming := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Names: []string{"wide.example"}, Bearer: &testenv.Bearer{Realm: withHost(issuer, n.Host) + "/token", Anonymous: true}})
		for name, kind := range map[string]struct{ from, to *testenv.Registry }{"redirect": {redirecting, storage}, "realm": {naming, issuer}} {
			if name != []string{"redirect", "realm"}[i%2] {
				continue
			}
			ask := func(networks *source.Networks) error {
				kind.to.Reset()
				u, _ := url.Parse(kind.from.Base)
				a := oci.Access{URL: "oci://wide.example:" + u.Port() + "/team/app", Insecure: u.Scheme == "http", Cert: ref("tls")}
				r, _ := connect(t, a, source.Env{Networks: networks, Secrets: secrets{"tls": {"ca.crt": string(ca.PEM())}}})
				content, err := r.Blob(t.Context(), blob.Descriptor())
				if err == nil {
					content.Close()
				}
				return err
			}
			var refused *transport.ZoneError
			if err := ask(nil); !errors.As(err, &refused) || refused.Metadata != n.Metadata || kind.to.Count() > 0 {
				t.Errorf("%s to %s: %v, %d requests", name, n.Host, err, kind.to.Count())
			}
			if n.Metadata {
				continue
			}
			networks, err := source.ParseNetworks(n.Host)
			must(t, err)
			err = ask(networks)
			reached := kind.to.Count() > 0 || errors.As(err, new(*tls.CertificateVerificationError)) // the certificate has no addresses
			if errors.As(err, &refused) || !reached {
				t.Errorf("%s to %s, which the user opens: %v, %d requests", name, n.Host, err, kind.to.Count())
			}
		}
	}
}

// TestZonesOfEntries checks that an entry of the Secret permits a host, unless it is a
// metadata service.
func TestZonesOfEntries(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	testenv.Resolve(t, "storage.example", "10.0.0.7")
	for host, opens := range map[string]bool{"storage.example": true, "169.254.169.254": false} {
		storage := testenv.StartRegistry(t, testenv.RegistryConfig{})
		d := storage.PushBlob("team/app", testenv.Blob{Data: []byte("x")})
		to, _ := url.Parse(storage.Base)
		g := testenv.StartRegistry(t, testenv.RegistryConfig{})
		g.Break(&testenv.Defect{Phase: testenv.GetBlob, Status: http.StatusFound, Header: http.Header{"Location": {"http://" + host + ":" + to.Port()}}})
		at, _ := url.Parse(g.Base)
		env := source.Env{Secrets: secrets{"reg": {".dockerconfigjson": dockerconfig(host, "ann", password)}}}
		r, _ := connect(t, oci.Access{URL: "oci://wide.example:" + at.Port() + "/team/app", Insecure: true, Secret: ref("reg")}, env)
		content, err := r.Blob(t.Context(), d)
		if (err == nil) != opens || !opens && !errors.As(err, new(*transport.ZoneError)) {
			t.Errorf("%s: %v", host, err)
		}
		if err == nil {
			content.Close()
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add(entries("https://index.docker.io/v1/", "*.example.org:5000/a/b", "[::1]:1"), "docker.io/a")
	f.Add(`{"auths":{"r":{"auth":"YW5uOm9wZW4="},"[":{"identitytoken":"x"}}}`, "r.example/a/b")
	f.Fuzz(func(t *testing.T, config, at string) {
		c, found, err := oci.Find("oci://"+at, config)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
		if found && strings.ContainsAny(c.Username+c.Password+c.Refresh+c.Token, "\r\n\x00") {
			t.Errorf("%+v", c)
		}
	})
}

func FuzzChallenges(f *testing.F) {
	f.Add("r.example", `Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull"`)
	f.Add("r.example:5000", `Basic realm="x", Bearer realm="http:\/\/r.example/token?a=b#c", a=b`)
	f.Add("[::1]:5000", `Negotiate abc==, Bearer realm=https://[::1]/`)
	f.Fuzz(func(t *testing.T, host, line string) {
		for _, u := range oci.ReadChallenges(&url.URL{Scheme: "https", Host: host}, line) {
			if u.Scheme != "https" || u.User != nil || u.Hostname() == "" || u.Fragment != "" {
				t.Errorf("%q", u)
			}
		}
	})
}
