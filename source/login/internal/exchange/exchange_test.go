package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func ask(t *testing.T, ctx context.Context, client *http.Client, to string, out any) error {
	t.Helper()
	t.Cleanup(client.CloseIdleConnections)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer canary")
	return exchange.JSON(client, req, out)
}

// recordingTransport is the transport that the caller gave.
type recordingTransport struct{ seen []string }

func (f *recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	f.seen = append(f.seen, r.URL.String())
	return nil, errors.New("far away")
}

func TestRoutes(t *testing.T) {
	given := &recordingTransport{}
	client := exchange.Client(&http.Client{Transport: given})
	var out map[string]string
	if err := ask(t, t.Context(), client, serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"a":"b"}`) }), &out); err != nil || out["a"] != "b" {
		t.Errorf("in the clear: %v, %v", out, err)
	}
	if err := ask(t, t.Context(), client, "https://example.com/?canary=canary", &out); err == nil || err.Error() != "GET https://example.com/: far away" {
		t.Errorf("over TLS: %v", err)
	}
	if len(given.seen) != 1 || !strings.HasPrefix(given.seen[0], "https://example.com/") {
		t.Errorf("the given way was taken to %q", given.seen)
	}
}

func TestRedirects(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another origin was asked") })
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/home":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/abroad":
			http.Redirect(w, r, other, http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			fmt.Fprint(w, `{}`)
		}
	})
	for path, want := range map[string]string{"/home": "", "/abroad": "redirect to another host refused", "/loop": "more than 5 redirects"} {
		var out struct{}
		err := ask(t, t.Context(), exchange.Client(nil), u+path, &out)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestWithContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" {
			cancel(errors.New("given up"))
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // an answer could still reach a client that is closing
		}
		fmt.Fprint(w, `{}`)
	})
	client := exchange.WithContext(ctx, exchange.Client(nil))
	var out struct{}
	if err := ask(t, t.Context(), client, u, &out); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	if end(); !errors.Is(ask(t, ended, client, u, &out), context.Canceled) {
		t.Error("the end of a request's own context does not end it")
	}
	for _, path := range []string{"/stall", "/after"} {
		if err := ask(t, context.WithoutCancel(ctx), client, u+path, &out); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	req, _ := http.NewRequest(http.MethodPost, u, strings.NewReader("x"))
	_, err := client.Do(req)
	testenv.ErrorSays(t, err, "given up", "with a body")
}

// TestStrict: a response that libraries would follow or print is an error that can be
// shown.
func TestStrict(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			fmt.Fprint(w, "good")
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusFound)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"error":{"message":"not `+r.PostFormValue("assertion")+r.Header.Get("Authorization")+`"}}`)
		}
	})
	plain := exchange.Client(nil)
	defer plain.CloseIdleConnections()
	client, failed := exchange.Strict(plain)
	post := func(path string) (string, error) {
		req, err := http.NewRequest(http.MethodPost, u+path, strings.NewReader(url.Values{"assertion": {"form-canary"}}.Encode()))
		must(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		req.Header.Set("Authorization", "Bearer header-canary")
		return exchange.Text(client, req)
	}
	if text, err := post("/good"); text != "good" || err != nil || failed() != nil {
		t.Errorf("%q, %v, %v", text, err, failed())
	}
	for path, want := range map[string]string{"/moved": "status 302", "/bad": "status 403 (not ***Bearer ***)"} {
		_, err := post(path)
		if e := failed(); err == nil || e == nil || e.Error() != "POST "+u+path+": "+want || !errors.Is(err, e) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, %v, want %s", path, err, e, want)
		}
	}
}

func TestHost(t *testing.T) {
	for s, want := range map[string]string{
		"https://Example.com": "example.com", "oci://example.com:443/a": "example.com", "s3://example.com/b": "example.com", "gs://Example.com/b": "example.com", "azblob://example.com:443/b": "example.com", "https://example.com/a?b#c": "example.com",
		"http://example.com": "", "ftp://example.com": "", "//example.com": "", "https:example.com": "", "oci:example.com": "",
		"https://example.com:": "", "https://example.com:80": "", "https://example.com:0443": "", "https://example.com:4443": "",
		"https://u@example.com": "", "https://u:p@example.com": "", "https://@example.com": "", "https://example.com.": "example.com.",
		"https://example_.com": "", "https://ex\u00e4mple.com": "", "https://\u212a.com": "", "https://[::1]": "", "https://[::1]:443": "",
	} {
		u, err := url.Parse(s)
		must(t, err)
		testenv.Equal(t, exchange.Host(u), want, s)
	}
}

func TestBegin(t *testing.T) {
	find := func(*url.URL) (string, error) { return "here", nil }
	nowhere := func(*url.URL) (string, error) { return "", errors.New("not here") }
	for name, c := range map[string]struct {
		request source.LoginRequest
		find    func(*url.URL) (string, error)
		invalid bool
		say     string
	}{
		"good":            {source.LoginRequest{}, find, false, ""},
		"nowhere":         {source.LoginRequest{}, nowhere, true, "spec.url: not here"},
		"no bucket":       {source.LoginRequest{URL: &url.URL{Scheme: "s3", Host: "example.com"}}, nowhere, true, "spec.endpoint: not here"},
		"service account": {source.LoginRequest{ServiceAccount: "robot"}, find, true, "spec.serviceAccountName: only a cluster"},
		"account":         {source.LoginRequest{ServiceAccount: "robot", Account: func(context.Context) (*source.Account, error) { return new(source.Account), nil }}, find, false, ""},
		"no account":      {source.LoginRequest{Account: func(context.Context) (*source.Account, error) { return nil, source.ErrProvider }}, find, false, "invalid provider"},
		"own trust":       {source.LoginRequest{OwnTrust: true}, find, false, "spec.certSecretRef: ca.crt"},
		"CA of a Secret":  {source.LoginRequest{OwnTrust: true, SecretName: "default/ca"}, find, false, "secret default/ca: ca.crt"},
	} {
		if c.request.URL == nil {
			c.request.URL = &url.URL{Scheme: "https", Host: "example.com"}
		}
		at, account, client, err := exchange.Begin(t.Context(), c.request, c.find)
		if c.say == "" {
			if at != "here" || (account != nil) != (c.request.Account != nil) || err != nil {
				t.Errorf("%s: %s, %v", name, at, err)
			}
			client.CloseIdleConnections()
			continue
		}
		if !errors.Is(err, source.ErrProvider) || errors.Is(err, source.ErrInvalid) != c.invalid || !strings.Contains(err.Error(), c.say) || client != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIsConfidential(t *testing.T) {
	for s, want := range map[string]bool{
		"https://example.com": true, "http://127.0.0.1:1": true, "http://127.9.9.9": true, "http://[::1]:1/a": true, "http://localhost": true,
		"http://example.com": false, "http://localhost.example.com": false, "http://169.254.169.254": false, "http://127.0.0.1.example.com": false,
		"https://": false, "https:example.com": false, "ftp://localhost": false, "": false, "//localhost": false,
	} {
		u, err := url.Parse(s)
		must(t, err)
		testenv.Equal(t, exchange.IsConfidential(u), want, s)
	}
}

func TestJobToken(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Header.Get("Authorization") != "Bearer runner-canary" || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"message":"not `+r.Header.Get("Authorization")+`"}`)
			return
		}
		fmt.Fprintf(w, `{"count":1,"value":%q}`, q.Get("kind")+q.Get("audience"))
	}))
	defer s.Close()
	client := exchange.Client(nil)
	defer client.CloseIdleConnections()
	for name, c := range map[string]struct {
		url, token string
		want, say  string
	}{
		"plain":                {s.URL, "runner-canary", "api://a b&c=d", ""},
		"with a query":         {s.URL + "/x?kind=k-&audience=other", "runner-canary", "k-api://a b&c=d", ""},
		"refused":              {s.URL, "other-canary", "", "status 401"},
		"in the clear":         {"http://runner.example/", "runner-canary", "", "ACTIONS_ID_TOKEN_REQUEST_URL is not an https URL"},
		"with credentials":     {"https://canary:canary@runner.example/", "runner-canary", "", "is not an https URL"},
		"no URL":               {"https://canary:x", "runner-canary", "", "is not an https URL"},
		"another kind of URL":  {"file:///etc/canary", "runner-canary", "", "is not an https URL"},
		"line break in header": {s.URL, "runner\r\ncanary", "", "invalid header"},
	} {
		env := exchange.Environment(func(name string) (string, bool) {
			v, ok := map[string]string{"ACTIONS_ID_TOKEN_REQUEST_URL": c.url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": c.token}[name]
			return v, ok
		})
		if !env.Has(exchange.JobVariables...) {
			t.Errorf("%s: not in a job", name)
		}
		got, err := exchange.JobToken(t.Context(), client, env, "api://a b&c=d")
		if got != c.want || (err != nil) != (c.say != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%s: %v: want %s, and no canary", name, err, c.say)
		}
	}
}

func TestNoJobToken(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"count":0}`) }))
	defer s.Close()
	client := exchange.Client(nil)
	defer client.CloseIdleConnections()
	_, err := exchange.JobToken(t.Context(), client, func(name string) (string, bool) { return s.URL, true }, "a")
	testenv.ErrorSays(t, err, "holds none")
}

// An issuer issues consecutive numbers as tokens.
type issuer struct {
	exchange.Credentials
	clock  time.Time
	issued int
}

func newIssuer() *issuer {
	return &issuer{clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (s *issuer) now() time.Time { return s.clock }

// get returns the credential that is cached for key, or a new one that is valid for life; 0
// is for no known expiry.
func (s *issuer) get(t *testing.T, key string, life time.Duration) (token string, refused func()) {
	t.Helper()
	c, err := s.Get(t.Context(), s.now, key, func(context.Context) (source.Credential, error) {
		s.issued++
		c := source.Credential{Token: fmt.Sprint(s.issued)}
		if life != 0 {
			c.Expires = s.clock.Add(life)
		}
		return c, nil
	})
	must(t, err)
	return c.Token, c.Refused
}

func TestLife(t *testing.T) {
	for life, keepFor := range map[time.Duration]time.Duration{
		time.Hour: 48 * time.Minute, 10 * time.Minute: 8 * time.Minute, 24 * time.Hour: time.Hour, 0: 0, -time.Hour: 0,
	} {
		s := newIssuer()
		s.get(t, "a", life)
		if keepFor > 0 {
			s.clock = s.clock.Add(keepFor - time.Second)
			if n, _ := s.get(t, "a", life); n != "1" {
				t.Errorf("%s of life: not kept for %s", life, keepFor)
			}
			s.clock = s.clock.Add(time.Second)
		}
		if n, _ := s.get(t, "a", life); n != "2" {
			t.Errorf("%s of life: still kept after %s", life, keepFor)
		}
	}
}

func TestForget(t *testing.T) {
	s := newIssuer()
	_, first := s.get(t, "a", time.Hour)
	first()
	n, second := s.get(t, "a", time.Hour)
	first() // does not drop the second credential
	if again, _ := s.get(t, "a", time.Hour); n != "2" || again != "2" {
		t.Errorf("got %s, then %s", n, again)
	}
	second()
	second()
	if n, _ := s.get(t, "a", time.Hour); n != "3" {
		t.Errorf("got %s", n)
	}
}

func TestBound(t *testing.T) {
	s := newIssuer()
	for i := range 3 * exchange.MaxCredentials {
		s.get(t, fmt.Sprint(i), time.Hour+time.Duration(i)) // the first ones expire first
	}
	for i := 2 * exchange.MaxCredentials; i < 3*exchange.MaxCredentials; i++ {
		s.get(t, fmt.Sprint(i), time.Hour)
	}
	if s.issued != 3*exchange.MaxCredentials {
		t.Errorf("issued %d: the last %d were not kept", s.issued, exchange.MaxCredentials)
	}
	if s.get(t, "0", time.Hour); s.issued != 3*exchange.MaxCredentials+1 {
		t.Error("more was kept")
	}
}

// TestWaiting: a caller that waits for the request of another ends with its own context,
// and sends its own request if the other failed.
func TestWaiting(t *testing.T) {
	s := newIssuer()
	began, end := make(chan bool), make(chan error)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, err := s.Get(t.Context(), s.now, "a", func(context.Context) (source.Credential, error) {
			close(began)
			return source.Credential{}, <-end
		})
		if err == nil {
			t.Error("no error")
		}
	})
	<-began
	if n, _ := s.get(t, "b", time.Hour); n != "1" {
		t.Error("another key waits")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	_, err := s.Get(ctx, s.now, "a", nil)
	if err == nil || err.Error() != "given up" {
		t.Errorf("while waiting: %v", err)
	}
	wg.Go(func() {
		if c, err := s.Get(t.Context(), s.now, "a", func(context.Context) (source.Credential, error) { return source.Credential{Token: "7"}, nil }); c.Token != "7" || err != nil {
			t.Errorf("after the other's failure: %s, %v", c.Token, err)
		}
	})
	end <- errors.New("failed")
}

// TestMaxWait: a request that never ends delays other callers by at most Patience.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k exchange.Credentials
		issued := 0
		get := func() (string, error) {
			c, err := k.Get(t.Context(), nil, "a", func(context.Context) (source.Credential, error) {
				issued++
				return source.Credential{Token: fmt.Sprint(issued), Expires: time.Now().Add(time.Hour)}, nil
			})
			return c.Token, err
		}
		end := make(chan error)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := k.Get(t.Context(), nil, "a", func(context.Context) (source.Credential, error) { return source.Credential{}, <-end })
			if err == nil {
				t.Error("the stalled request: no error")
			}
		})
		synctest.Wait()
		for range 3 { // the first waits, the others use its result
			if n, err := get(); n != "1" || err != nil {
				t.Errorf("beside a request that stalls: %s, %v", n, err)
			}
		}
		end <- errors.New("failed")
		wg.Wait()
		if n, err := get(); n != "1" || err != nil {
			t.Errorf("after it: %s, %v", n, err)
		}
	})
}

// TestZones follows no redirect from a wide network to a narrower one.
func TestZones(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	var requests int
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer target.Close()
	to, _ := url.Parse(target.URL)
	for _, n := range testenv.PrivateHosts(t) {
		from := httptest.NewServer(http.RedirectHandler("http://"+n.Host+":"+to.Port(), http.StatusFound))
		at, _ := url.Parse(from.URL)
		client := exchange.Client(transport.Client(transport.Config{}))
		resp, err := client.Get("http://wide.example:" + at.Port())
		if err == nil {
			resp.Body.Close()
		}
		if err == nil || requests > 0 {
			t.Errorf("%s: %v, %d requests", n.Host, err, requests)
		}
		from.Close()
	}
}

var must = testenv.Must
