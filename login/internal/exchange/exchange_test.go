package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/login/internal/exchange"
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

func TestSize(t *testing.T) {
	for size, good := range map[int]bool{exchange.MaxAnswer: true, exchange.MaxAnswer + 1: false, 8 * exchange.MaxAnswer: false} {
		client := exchange.Client(nil)
		resp, err := client.Get(serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", size)) }))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if (err == nil) != good || n > exchange.MaxAnswer || good && n != int64(size) {
			t.Errorf("%d bytes: read %d, %v", size, n, err)
		}
		if _, again := resp.Body.Read(make([]byte, 1)); !good && again == nil {
			t.Error("reading goes on behind the bound")
		}
		resp.Body.Close()
		client.CloseIdleConnections()
	}
}

func TestUntil(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" {
			cancel(errors.New("given up"))
			<-r.Context().Done()
		}
		fmt.Fprint(w, `{}`)
	})
	client := exchange.Until(ctx, exchange.Client(nil))
	var out struct{}
	if err := ask(t, t.Context(), client, u, &out); err != nil {
		t.Error(err)
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

// FuzzJSON checks that no answer makes JSON panic, print what it was asked
// with, or more than a line of bounded length.
func FuzzJSON(f *testing.F) {
	f.Add(200, `{"a":1}`)
	f.Add(500, `{"message":"canary \u001b[0m"}`)
	f.Add(400, `{"error":"invalid","error_description":"Y2FuYXJ5"}`)
	f.Add(403, `{"error":{"code":[[[]]]}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 {
			return
		}
		client := &http.Client{Transport: fixed{status, body}}
		req, _ := http.NewRequest(http.MethodGet, "https://example.com/", nil)
		req.Header.Set("Authorization", "Bearer canary")
		var out struct{ A int }
		err := exchange.JSON(client, req, &out)
		if err == nil {
			return
		}
		if text := err.Error(); strings.Contains(text, "canary") || strings.ContainsAny(text, "\n\x1b") || len(text) > 4096 {
			t.Errorf("%q", text)
		}
	})
}

// fixed answers every request alike.
type fixed struct {
	status int
	body   string
}

func (f fixed) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: f.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f.body))}, nil
}
