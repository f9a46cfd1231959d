package access_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	tokenA = "token-of-flagger-0123456789"
	tokenB = "token-of-people+/=%&?-0123456789"
)

// write writes a file of callers and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// guard returns the guard of a file of callers.
func guard(t *testing.T, text string) *access.Guard {
	t.Helper()
	g, err := access.Open(access.Config{File: write(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func callers() string {
	return fmt.Sprintf("tokens:\n- {name: flagger, token: %q}\n- {name: people, sha256: %x}\n", tokenA, sha256.Sum256([]byte(tokenB)))
}

// request returns a request as a server has it.
func request(target string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func basic(password string) string {
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth("anybody", password)
	return r.Header.Get("Authorization")
}

func TestIdentify(t *testing.T) {
	g := guard(t, callers())
	const escaped = "token-of-people+%2F=%25&%3F-0123456789"
	const query = "token-of-people%2B%2F%3D%25%26%3F-0123456789"
	for name, tt := range map[string]struct {
		r       *http.Request
		payload string
		actor   string
		err     string
		left    string // of the URL
	}{
		"bearer":                   {request("/gate/check", "Authorization", "Bearer "+tokenA), "", "flagger", "", "/gate/check"},
		"bearer in small letters":  {request("/", "Authorization", "bearer "+tokenB), "", "people", "", "/"},
		"basic":                    {request("/", "Authorization", basic(tokenB)), "", "people", "", "/"},
		"query":                    {request("/gate/check?gate=a&token=" + query + "&x=%20"), "", "people", "", "/gate/check?gate=a&x=%20"},
		"query alone":              {request("/?token=" + tokenA), "", "flagger", "", "/"},
		"query with escaped name":  {request("/?tok%65n=" + tokenA), "", "flagger", "", "/"},
		"path":                     {request("/token/" + tokenA + "/gate/a%2Fb/check?x=1"), "", "flagger", "", "/gate/a%2Fb/check?x=1"},
		"path escaped":             {request("/token/" + escaped + "/"), "", "people", "", "/"},
		"path without a slash":     {request("/token/" + tokenA), "", "flagger", "", "/"},
		"path with more slashes":   {request("http://tester//token//" + tokenA + "/gate/check"), "", "flagger", "", "/gate/check"},
		"path with escaped name":   {request("/tok%65n/" + tokenA + "/gate/check"), "", "flagger", "", "/gate/check"},
		"query escaped":            {request("/?tok%65n=" + strings.Replace(tokenA, "token", "tok%65n", 1)), "", "flagger", "", "/"},
		"metadata":                 {request("/"), tokenA, "flagger", "", "/"},
		"the first counts":         {request("/token/"+escaped+"/", "Authorization", "Bearer "+tokenA), "no such token 1234", "flagger", "", "/"},
		"an invalid first":         {request("/token/"+tokenA+"/", "Authorization", "Bearer wrong-wrong-wrong"), tokenA, "", "invalid", "/"},
		"none":                     {request("/"), "", "", "missing", "/"},
		"another scheme":           {request("/", "Authorization", "Digest username=x"), "", "", "invalid", "/"},
		"basic without a password": {request("/", "Authorization", basic("")), "", "", "invalid", "/"},
		"a beginning":              {request("/", "Authorization", "Bearer "+tokenA[:20]), "", "", "invalid", "/"},
		"the digest":               {request("/", "Authorization", fmt.Sprintf("Bearer %x", sha256.Sum256([]byte(tokenB)))), "", "", "invalid", "/"},
		"an unknown session":       {request("/", "Cookie", "headgate_session=forged"), "", "", "missing", "/"},
	} {
		t.Run(name, func(t *testing.T) {
			grant, err := g.Identify(tt.r, tt.payload)
			if tt.err != "" {
				denial := (*access.Denial)(nil)
				if !errors.As(err, &denial) || denial.Kind != tt.err || !errors.Is(err, access.ErrUnknown) {
					t.Fatalf("Identify: %v, want a denial of kind %s", err, tt.err)
				}
			} else if err != nil || grant.Actor != tt.actor {
				t.Fatalf("Identify: %q, %v; want %q", grant.Actor, err, tt.actor)
			}
			if got := tt.r.URL.RequestURI(); got != tt.left || tt.err == "" && tt.r.RequestURI != tt.left {
				t.Errorf("the URL is %s and %s, want %s", got, tt.r.RequestURI, tt.left)
			}
			if dump := fmt.Sprint(tt.r.Header, tt.r.URL, tt.r.RequestURI); strings.Contains(dump, "token-of") || tt.r.Header.Get("Authorization") != "" {
				t.Errorf("the request still has a credential: %s", dump)
			}
			again, errAgain := g.Identify(tt.r, tt.payload)
			if again != grant || (errAgain == nil) != (err == nil) {
				t.Errorf("asked again: %v, %v", again, errAgain)
			}
		})
	}
}

func TestEverybody(t *testing.T) {
	open, err := access.Open(access.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]*access.Guard{"nil": nil, "without a file": open} {
		r := request("/token/"+tokenA+"/?token="+tokenA, "Authorization", "Bearer "+tokenA)
		grant, err := g.Identify(r, "anything")
		if err != nil || grant.Actor != "" || grant.Run("any", "cmd") != nil || grant.ReadOnly() || g.Required() {
			t.Errorf("%s: %+v, %v", name, grant, err)
		}
		if r.URL.String() != "/" || len(r.Header) != 0 {
			t.Errorf("%s: the request still has credentials: %s %v", name, r.URL, r.Header)
		}
	}
	nobody := access.Grant{}
	if nobody.Run("a", "cmd") == nil || nobody.See("a", "cmd") == nil || !nobody.ReadOnly() {
		t.Error("the zero grant allows something")
	}
}

func TestScopes(t *testing.T) {
	g := guard(t, `
tokens:
- {name: all, token: 0000000000000000-all}
- {name: shop, token: 0000000000000000-shop, namespaces: [shop, "team-*"]}
- {name: tests, token: 0000000000000000-tests, types: [pkgtest, "k*"], gates: []}
- {name: gates, token: 0000000000000000-gates, gates: [default, "prod-*-eu"], kinds: [gate]}
- {name: looks, token: 0000000000000000-looks, readOnly: true}
`)
	gate := func(kind api.Kind, namespace, name string) api.Key {
		return api.Key{Kind: kind, Namespace: namespace, Name: "podinfo", Gate: name}
	}
	type want struct{ token, what, kind string } // kind of the denial
	for _, tt := range []want{
		{"all", "run anything concord", ""},
		{"all", "change x gate default", ""},
		{"shop", "run shop cmd", ""},
		{"shop", "run team-a cmd", ""},
		{"shop", "run team- cmd", ""},
		{"shop", "run myshop cmd", "namespace"}, // S-11: patterns are anchored
		{"shop", "run shop2 cmd", "namespace"},
		{"shop", "run my-team-a cmd", "namespace"},
		{"shop", "run - cmd", "namespace"},
		{"shop", "see other cmd", "namespace"},
		{"shop", "check other gate default", "namespace"},
		{"tests", "run x helm", ""},
		{"tests", "run x kubectl", ""},
		{"tests", "run x k6", ""},
		{"tests", "run x helmv3", "type"},
		{"tests", "run x cmd", "type"},
		{"tests", "check x gate default", "gate"},
		{"tests", "see x k6", ""},
		{"tests", "see x cmd", "type"}, // its output
		{"gates", "check x gate default", ""},
		{"gates", "change x gate prod-shop-eu", ""},
		{"gates", "change x gate prod-eu", "gate"},
		{"gates", "change x gate prod-shop-eu2", "gate"},
		{"gates", "change x rollback default", "kind"},
		{"gates", "reject x gate default", "kind"}, // which opens a rollback switch
		{"shop", "reject shop gate prod", ""},
		{"shop", "reject other gate prod", "namespace"},
		{"looks", "reject x gate default", "read-only"},
		{"looks", "check x gate default", ""},
		{"looks", "see x cmd", ""},
		{"looks", "change x gate default", "read-only"},
		{"looks", "run x cmd", "read-only"},
	} {
		grant, err := g.Identify(request("/"), "0000000000000000-"+tt.token)
		if err != nil {
			t.Fatal(err)
		}
		f := append(strings.Fields(strings.Replace(tt.what, " - ", "  ", 1)), "", "", "")
		if strings.Contains(tt.what, " - ") {
			f = []string{"run", "", "cmd"}
		}
		switch f[0] {
		case "run":
			err = grant.Run(f[1], f[2])
		case "see":
			err = grant.See(f[1], f[2])
		case "check":
			err = grant.Check(gate(api.Kind(f[2]), f[1], f[3]))
		case "reject":
			err = grant.Reject(gate(api.Kind(f[2]), f[1], f[3]))
		case "change":
			err = grant.Change(gate(api.Kind(f[2]), f[1], f[3]))
		}
		denial := (*access.Denial)(nil)
		if (err == nil) != (tt.kind == "") || errors.As(err, &denial) && (denial.Kind != tt.kind || !errors.Is(err, access.ErrForbidden) || denial.Actor != tt.token) {
			t.Errorf("%s: %s: %v, want a denial of kind %q", tt.token, tt.what, err, tt.kind)
		}
	}
}

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	g, err := access.Open(access.Config{
		File: write(t, "tokens: [{name: ci, token: "+tokenA+", expires: 2026-06-01T12:00:01Z}]"),
		Now:  func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Identify(request("/"), tokenA); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	_, err = g.Identify(request("/"), tokenA)
	denial := (*access.Denial)(nil)
	if !errors.As(err, &denial) || denial.Kind != "expired" || denial.Actor != "ci" || !errors.Is(err, access.ErrUnknown) {
		t.Errorf("after it has expired: %v", err)
	}
}

// TestNamed has what a caller left behind count as long as the file has its name.
func TestNamed(t *testing.T) {
	certificates, err := access.Open(access.Config{Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	none, err := access.Open(access.Config{})
	if err != nil {
		t.Fatal(err)
	}
	file := guard(t, callers()+"certificates:\n- {name: ci, commonName: ci, readOnly: true}\n")
	key := api.Key{Kind: api.KindGate, Namespace: "shop", Name: "web", Gate: "default"}
	for _, c := range []struct {
		guard *access.Guard
		name  string
		want  error // of rejecting
	}{
		{none, "", nil}, {none, "former", nil}, {nil, "", nil},
		{certificates, "anybody", nil}, {certificates, "", access.ErrUnknown},
		{file, "flagger", nil}, {file, "people", nil}, {file, "ci", access.ErrForbidden},
		{file, "former", access.ErrUnknown}, {file, "", access.ErrUnknown},
	} {
		grant, err := c.guard.Named(c.name)
		if err == nil {
			err = grant.Reject(key)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.name, err, c.want)
		}
	}
}
