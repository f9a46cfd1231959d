package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

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
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer canary")
	return exchange.JSON(client, req, out)
}

// far is the way that the caller gave.
type far struct{ seen []string }

func (f *far) RoundTrip(r *http.Request) (*http.Response, error) {
	f.seen = append(f.seen, r.URL.String())
	return nil, errors.New("far away")
}

func TestWays(t *testing.T) {
	given := &far{}
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

func TestUntil(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" {
			cancel(errors.New("given up"))
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // an answer could still reach a client that is closing
		}
		fmt.Fprint(w, `{}`)
	})
	client := exchange.Until(ctx, exchange.Client(nil))
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
	if _, err := client.Do(req); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Errorf("with a body: %v", err)
	}
}

// What libraries would follow or print is an error that is fit to be shown.
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		if got := exchange.Host(u); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
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
		"own trust":       {source.LoginRequest{OwnTrust: true}, find, false, "spec.certSecretRef: ca.crt"},
		"CA of a Secret":  {source.LoginRequest{OwnTrust: true, SecretName: "default/ca"}, find, false, "secret default/ca: ca.crt"},
	} {
		if c.request.URL == nil {
			c.request.URL = &url.URL{Scheme: "https", Host: "example.com"}
		}
		at, client, err := exchange.Begin(c.request, c.find)
		if c.say == "" {
			if at != "here" || err != nil {
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

func TestSafe(t *testing.T) {
	for s, want := range map[string]bool{
		"https://example.com": true, "http://127.0.0.1:1": true, "http://127.9.9.9": true, "http://[::1]:1/a": true, "http://localhost": true,
		"http://example.com": false, "http://localhost.example.com": false, "http://169.254.169.254": false, "http://127.0.0.1.example.com": false,
		"https://": false, "https:example.com": false, "ftp://localhost": false, "": false, "//localhost": false,
	} {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := exchange.Safe(u); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}
