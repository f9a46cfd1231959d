package access_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/access"
)

func TestSession(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	file := write(t, callers())
	g, err := access.Open(access.Config{File: file, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	login := func(r *http.Request, token string) (*http.Cookie, error) {
		w := httptest.NewRecorder()
		grant, err := g.Login(w, r, token)
		cookies := w.Result().Cookies()
		if err != nil {
			if len(cookies) != 0 {
				t.Errorf("a login that was refused sets %v", cookies)
			}
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
		if _, err := login(request("/"), token); !errors.Is(err, access.ErrUnknown) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	plain, _ := login(request("http://example.com/"), tokenA)
	if plain.Secure || !plain.HttpOnly || plain.SameSite != http.SameSiteStrictMode || plain.Path != "/" || plain.MaxAge != 12*60*60 || plain.Domain != "" {
		t.Errorf("cookie %+v", plain)
	}
	if secure, _ := login(request("https://example.com/"), tokenA); !secure.Secure {
		t.Errorf("cookie over TLS %+v", secure)
	}
	if proxied, _ := login(request("http://example.com/", "X-Forwarded-Proto", "https"), tokenA); !proxied.Secure {
		t.Errorf("cookie behind a proxy with TLS %+v", proxied)
	}
	for name, way := range map[string][]string{"TLS": {"https://example.com/"}, "a proxy with TLS": {"http://example.com/", "X-Forwarded-Proto", "https"}} {
		own, _ := login(request(way[0], way[1:]...), tokenA)
		for _, c := range []struct {
			when   string
			cookie *http.Cookie
			want   bool
		}{
			{"after the login", own, true},
			{"a cookie that another host can set", &http.Cookie{Name: plain.Name, Value: plain.Value}, false},
		} {
			r := request(way[0], way[1:]...)
			r.AddCookie(c.cookie)
			if grant, err := g.Identify(r, ""); c.want != (err == nil && grant.Actor == "flagger") || !strings.HasPrefix(own.Name, "__Host-") {
				t.Errorf("%s by %s: %+v, %v; cookie %s", c.when, name, grant, err, own)
			}
		}
	}
	is("after the login", plain, true)
	is("a token as cookie", &http.Cookie{Name: plain.Name, Value: tokenA}, false)

	r, w := request("/"), httptest.NewRecorder()
	r.AddCookie(plain)
	g.Logout(w, r)
	if gone := w.Result().Cookies(); len(gone) != 1 || gone[0].MaxAge >= 0 {
		t.Errorf("a logout sets %v", gone)
	}
	is("after the logout", plain, false)

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
	if err := os.WriteFile(file, []byte("tokens: [{name: other, token: 0123456789abcdef}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	is("without its token", revoked, false)
	if again, err := g.Renew(grant); !errors.Is(err, access.ErrUnknown) || again.See("shop", "cmd") == nil {
		t.Errorf("without its token it is renewed: %+v, %v", again, err)
	}
}

// TestManySessions shows that the sessions of a token are bounded, which one of
// them ends early, and that those of other tokens do not.
func TestManySessions(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g, err := access.Open(access.Config{File: write(t, callers()), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
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
