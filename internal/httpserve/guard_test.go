package httpserve_test

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

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/testenv"
)

const (
	tokenA = "token-of-flagger-0123456789"
	tokenB = "token-of-people+/=%&?-0123456789"
)

// writeCallers writes a file of callers and returns its name.
func writeCallers(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// guard returns a guard for a file of callers with a text.
func guard(t *testing.T, text string) *httpserve.Guard {
	t.Helper()
	g, err := httpserve.OpenGuard(httpserve.Config{Cookie: "headgate_session", File: writeCallers(t, text)})
	must(t, err)
	return g
}

func callers() string {
	return fmt.Sprintf("tokens:\n- {name: flagger, token: %q}\n- {name: people, sha256: %x}\n", tokenA, sha256.Sum256([]byte(tokenB)))
}

// request returns a request in the form that a server gets.
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
		left    string // the URL without credentials
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
				denial := (*httpserve.Denial)(nil)
				if !errors.As(err, &denial) || denial.Kind != tt.err || !errors.Is(err, httpserve.ErrUnknown) {
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

func TestOpenGuard(t *testing.T) {
	open, err := httpserve.OpenGuard(httpserve.Config{})
	must(t, err)
	for name, g := range map[string]*httpserve.Guard{"nil": nil, "without a file": open} {
		r := request("/token/"+tokenA+"/?token="+tokenA, "Authorization", "Bearer "+tokenA)
		grant, err := g.Identify(r, "anything")
		if err != nil || grant.Actor != "" || !grant.All || g.Required() {
			t.Errorf("%s: %+v, %v", name, grant, err)
		}
		if r.URL.String() != "/" || len(r.Header) != 0 {
			t.Errorf("%s: the request still has credentials: %s %v", name, r.URL, r.Header)
		}
	}
}

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	g, err := httpserve.OpenGuard(httpserve.Config{
		File: writeCallers(t, "tokens: [{name: ci, token: "+tokenA+", expires: 2026-06-01T12:00:01Z}]"),
		Now:  func() time.Time { return now },
	})
	must(t, err)
	if _, err := g.Identify(request("/"), tokenA); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	_, err = g.Identify(request("/"), tokenA)
	denial := (*httpserve.Denial)(nil)
	if !errors.As(err, &denial) || denial.Kind != "expired" || denial.Actor != "ci" || !errors.Is(err, httpserve.ErrUnknown) {
		t.Errorf("after it has expired: %v", err)
	}
}

func TestSession(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	file := writeCallers(t, callers())
	g, err := httpserve.OpenGuard(httpserve.Config{Cookie: "headgate_session", File: file, Now: func() time.Time { return now }})
	must(t, err)
	login := func(r *http.Request, token string) (*http.Cookie, error) {
		w := httptest.NewRecorder()
		grant, err := g.Login(w, r, token)
		cookies := w.Result().Cookies()
		if err != nil {
			testenv.Equal(t, len(cookies), 0, "a login that was refused sets %v", cookies)
			return nil, err
		}
		if grant.Actor != "flagger" || len(cookies) != 1 {
			t.Fatalf("grant %+v, cookies %v", grant, cookies)
		}
		return cookies[0], nil
	}
	is := func(when string, c *http.Cookie, want bool) {
		t.Helper()
		r := request("/")
		r.AddCookie(c)
		grant, err := g.Identify(r, "")
		if want != (err == nil && grant.Actor == "flagger") || r.Header.Get("Cookie") != "" {
			t.Errorf("%s: %+v, %v; header %v", when, grant, err, r.Header)
		}
	}
	for _, token := range []string{"", "wrong", tokenA + " "} {
		if _, err := login(request("/"), token); !errors.Is(err, httpserve.ErrUnknown) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	httpCookie, _ := login(request("http://example.com/"), tokenA)
	if httpCookie.Secure || !httpCookie.HttpOnly || httpCookie.SameSite != http.SameSiteStrictMode || httpCookie.Path != "/" || httpCookie.MaxAge != 12*60*60 || httpCookie.Domain != "" {
		t.Errorf("cookie %+v", httpCookie)
	}
	if secure, _ := login(request("https://example.com/"), tokenA); !secure.Secure {
		t.Errorf("cookie over TLS %+v", secure)
	}
	if proxied, _ := login(request("http://example.com/", "X-Forwarded-Proto", "https"), tokenA); !proxied.Secure {
		t.Errorf("cookie behind a proxy with TLS %+v", proxied)
	}
	for name, way := range map[string][]string{"TLS": {"https://example.com/"}, "a proxy with TLS": {"http://example.com/", "X-Forwarded-Proto", "https"}} {
		httpsCookie, _ := login(request(way[0], way[1:]...), tokenA)
		for _, c := range []struct {
			when   string
			cookie *http.Cookie
			want   bool
		}{
			{"after the login", httpsCookie, true},
			{"a cookie that another host can set", &http.Cookie{Name: httpCookie.Name, Value: httpCookie.Value}, false},
		} {
			r := request(way[0], way[1:]...)
			r.AddCookie(c.cookie)
			if grant, err := g.Identify(r, ""); c.want != (err == nil && grant.Actor == "flagger") || !strings.HasPrefix(httpsCookie.Name, "__Host-") {
				t.Errorf("%s by %s: %+v, %v; cookie %s", c.when, name, grant, err, httpsCookie)
			}
		}
	}
	is("after the login", httpCookie, true)
	is("a token as cookie", &http.Cookie{Name: httpCookie.Name, Value: tokenA}, false)

	r, w := request("/"), httptest.NewRecorder()
	r.AddCookie(httpCookie)
	g.Logout(w, r)
	if cookies := w.Result().Cookies(); len(cookies) != 1 || cookies[0].MaxAge >= 0 {
		t.Errorf("a logout sets %v", cookies)
	}
	is("after the logout", httpCookie, false)

	long, _ := login(request("/"), tokenA)
	now = now.Add(12*time.Hour - 1)
	is("just before it ends", long, true)
	now = now.Add(1)
	is("when it has ended", long, false)

	revoked, _ := login(request("/"), tokenA)
	grant, err := g.Identify(request("/"), tokenA)
	if again, errAgain := g.Renew(grant); err != nil || errAgain != nil || again != grant {
		t.Errorf("renewed: %+v, %v; %v", again, errAgain, err)
	}
	must(t, os.WriteFile(file, []byte("tokens: [{name: other, token: 0123456789abcdef}]"), 0o600))
	now = now.Add(time.Second)
	is("without its token", revoked, false)
	if again, err := g.Renew(grant); !errors.Is(err, httpserve.ErrUnknown) || again.All || again.Scope() != nil {
		t.Errorf("without its token it is renewed: %+v, %v", again, err)
	}
}

// TestManySessions checks that the number of sessions of a token is limited, that the oldest one ends early, and
// that the sessions of other tokens do not.
func TestManySessions(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g, err := httpserve.OpenGuard(httpserve.Config{Cookie: "headgate_session", File: writeCallers(t, callers()), Now: func() time.Time { return now }})
	must(t, err)
	login := func(token string) *http.Cookie {
		w := httptest.NewRecorder()
		if _, err := g.Login(w, request("/"), token); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Millisecond)
		return w.Result().Cookies()[0]
	}
	all := []*http.Cookie{login(tokenB)}
	for range 101 {
		all = append(all, login(tokenA))
	}
	for i, c := range all {
		r := request("/")
		r.AddCookie(c)
		if _, err := g.Identify(r, ""); (err == nil) != (i != 1) {
			t.Fatalf("session %d: %v", i, err)
		}
	}
}

// TestReload replaces a file several times, in the way of a mounted Secret: a symbolic link changes its target.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	put := func(version, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, version), []byte(text), 0o600))
		next := filepath.Join(dir, "next")
		if err := os.Symlink(version, next); err != nil {
			t.Skip(err)
		}
		must(t, os.Rename(next, filepath.Join(dir, "callers.yaml")))
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var warnings []string
	put("1", "tokens: [{name: a, token: token-of-a-000000000}, {name: b, token: token-of-b-000000000}]")
	g, err := httpserve.OpenGuard(httpserve.Config{
		File: filepath.Join(dir, "callers.yaml"), Now: func() time.Time { return now }, Warn: func(err error) { warnings = append(warnings, err.Error()) },
	})
	must(t, err)
	is := func(when, actors string, warned ...string) {
		t.Helper()
		got := ""
		for _, name := range []string{"a", "b", "c"} {
			if grant, err := g.Identify(request("/"), "token-of-"+name+"-000000000"); err == nil {
				got += grant.Actor
			}
		}
		if got != actors || len(warnings) != len(warned) {
			t.Fatalf("%s: callers %q, warnings %q; want %q, %q", when, got, warnings, actors, warned)
		}
		for i := range warned {
			if !strings.Contains(warnings[i], warned[i]) || !strings.Contains(warnings[i], "its previous content stays in effect") {
				t.Errorf("%s: warning %q, want %q", when, warnings[i], warned[i])
			}
		}
		warnings = nil
	}
	is("at first", "ab")
	put("2", "tokens: [{name: b, token: token-of-b-000000000}, {name: c, token: token-of-c-000000000}]")
	is("within a second", "ab")
	now = now.Add(time.Second)
	is("a second later", "bc")
	put("3", "tokens: [{name: c")
	now = now.Add(time.Second)
	is("not YAML", "bc", "not YAML")
	now = now.Add(time.Second)
	is("still not YAML", "bc")
	put("4", "tokens: []")
	now = now.Add(time.Second)
	is("empty", "bc", "names no callers")
	must(t, os.Remove(filepath.Join(dir, "callers.yaml")))
	now = now.Add(time.Second)
	is("gone", "bc", "no such file")
	now = now.Add(time.Second)
	is("still gone", "bc")
	put("5", "tokens: [{name: c, token: token-of-c-000000000}]")
	now = now.Add(time.Second)
	is("there again", "c")
}

var must = testenv.Must
