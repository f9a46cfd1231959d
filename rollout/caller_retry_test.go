package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

// waits records the durations that a Caller would have waited.
type waits []time.Duration

func (w *waits) wait(_ context.Context, d time.Duration) error {
	*w = append(*w, d)
	return nil
}

const s = time.Second

func TestRetries(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ok, down := reply(200, "fine"), reply(500, "down")
	for name, test := range map[string]struct {
		answers  []string
		retries  int
		status   int
		attempts int
		waits    waits
		body     string
	}{
		"none on success":           {[]string{ok}, 3, 200, 1, nil, "fine"},
		"until success":             {[]string{down, reply(502, ""), reply(504, ""), ok}, 9, 200, 4, waits{1 * s, 2 * s, 4 * s}, "fine"},
		"the last body is kept":     {[]string{down, down, reply(503, "the reason")}, 2, 503, 3, waits{1 * s, 2 * s}, "the reason"},
		"capped":                    {[]string{down}, 8, 500, 9, waits{1 * s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s, 30 * s}, "down"},
		"429":                       {[]string{reply(429, "busy")}, 1, 429, 2, waits{1 * s}, "busy"},
		"not 501":                   {[]string{reply(501, "no"), ok}, 3, 501, 1, nil, "no"},
		"not 203":                   {[]string{reply(203, "no"), ok}, 3, 203, 1, nil, "no"},
		"not redirects":             {[]string{reply(302, "no", "Location: /x"), ok}, 3, 302, 1, nil, "no"},
		"hung up":                   {[]string{"", "", ok}, 2, 200, 3, waits{1 * s, 2 * s}, "fine"},
		"no HTTP":                   {[]string{"SSH-2.0-x Connection: close\r\n", ok}, 1, 200, 2, waits{1 * s}, "fine"},
		"retry after seconds":       {[]string{reply(429, "", "Retry-After: 7"), reply(503, "", "Retry-After: 0"), ok}, 2, 200, 3, waits{7 * s, 0}, "fine"},
		"retry after a date":        {[]string{reply(503, "", "Retry-After: Fri, 02 Jan 2026 03:04:15 GMT"), ok}, 1, 200, 2, waits{10 * s}, "fine"},
		"retry after is capped":     {[]string{reply(429, "", "Retry-After: 3600"), ok}, 1, 200, 2, waits{30 * s}, "fine"},
		"retry after nonsense":      {[]string{reply(429, "", "Retry-After: -1"), reply(429, "", "Retry-After: 9999999999"), ok}, 2, 200, 3, waits{1 * s, 2 * s}, "fine"},
		"retry after of others":     {[]string{reply(500, "", "Retry-After: 7"), ok}, 1, 200, 2, waits{1 * s}, "fine"},
		"a body that breaks off":    {[]string{"HTTP/1.1 200 X\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhal", ok}, 1, 200, 2, waits{1 * s}, "fine"},
		"its status is not success": {[]string{"HTTP/1.1 200 X\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhal"}, 0, 200, 1, nil, "hal"},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, inTurn(test.answers...))
			var waited waits
			c := rollout.Caller{Wait: waited.wait, Now: func() time.Time { return now }}
			defer c.Close()
			got, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL, Retries: test.retries}, small)
			if got.Status != test.status || got.Attempts != test.attempts || string(got.Body) != test.body {
				t.Errorf("got %d after %d attempts: %s", got.Status, got.Attempts, got.Body)
			}
			testenv.Equal(t, err == nil, test.body == "fine", "error %v", err)
			testenv.Equal(t, waited, test.waits, "waited")
			refused, ok := errors.AsType[*rollout.StatusError](err)
			if want := err != nil && test.status > 202; ok != want || ok && (refused.Code != test.status || string(refused.Body) != test.body) {
				t.Errorf("error %#v", err)
			}
			if err != nil && test.retries > 0 && !strings.Contains(err.Error(), fmt.Sprintf("attempt %d of %d", test.attempts, test.retries+1)) {
				t.Errorf("attempts are not named: %v", err)
			}
			all, _ := r.seen()
			for i, request := range all {
				testenv.Equal(t, request, all[0], "request %d is another", i)
			}
			testenv.Equal(t, len(all), test.attempts)
		})
	}
}

func TestRefusedConnectionIsRetried(t *testing.T) {
	const addr = "127.0.0.1:1"
	var waited waits
	c := rollout.Caller{Wait: waited.wait}
	answer, err := c.Call(t.Context(), rollout.Hook{Name: "load", URL: "http://user:canary@" + addr + "/?q=canary", Retries: 1}, small)
	if answer.Attempts != 2 || answer.Status != 0 || len(waited) != 1 {
		t.Errorf("got %+v, waited %v", answer, waited)
	}
	want := "rollout webhook load: POST http://" + addr + "/: attempt 2 of 2: dial tcp " + addr
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "canary") {
		t.Errorf("got  %v\nwant %s…", err, want)
	}
	if rollout.HookRollout.Judge(err) != rollout.Halt || rollout.HookConfirmRollout.Judge(err) != rollout.Pause {
		t.Error("judged wrongly")
	}
}

// Each attempt has the full timeout.
func TestTimeoutIsRetried(t *testing.T) {
	block := make(chan struct{})
	r := record(t, func(n int) string {
		if n < 2 {
			<-block
		}
		return reply(200, "")
	})
	defer close(block)
	var waited waits
	c := rollout.Caller{Wait: waited.wait}
	defer c.Close()
	hook := rollout.Hook{Name: "a", URL: r.URL, Timeout: rollout.Duration(50 * time.Millisecond), Retries: 1}
	answer, err := c.Call(t.Context(), hook, small)
	if answer.Attempts != 2 || len(waited) != 1 || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v", answer, err)
	}
	if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Error(err)
	}
}

// The end of the context is neither the outcome of a webhook nor that of an attempt.
func TestContextEnds(t *testing.T) {
	t.Run("during an attempt", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		block := make(chan struct{})
		r := record(t, func(int) string { cancel(); <-block; return "" })
		defer close(block)
		var waited waits
		c := rollout.Caller{Wait: waited.wait}
		answer, err := c.Call(ctx, rollout.Hook{Name: "a", URL: r.URL, Retries: 5}, small)
		if !errors.Is(err, context.Canceled) || answer.Attempts != 1 || len(waited) != 0 {
			t.Errorf("got %+v, %v, waited %v", answer, err, waited)
		}
	})
	t.Run("during a wait", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := record(t, always(reply(503, "busy", "Retry-After: 30")))
		c := rollout.Caller{Wait: func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }}
		defer c.Close()
		answer, err := c.Call(ctx, rollout.Hook{Name: "a", URL: r.URL, Retries: 5}, small)
		if !errors.Is(err, context.Canceled) || answer.Attempts != 1 || answer.Status != 503 || !strings.Contains(err.Error(), "status 503: busy") {
			t.Errorf("got %+v, %v", answer, err)
		}
	})
	t.Run("by the clock", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := record(t, always(reply(503, "", "Retry-After: 30")))
		c := rollout.Caller{Now: func() time.Time { cancel(); return time.Now() }} // called between answer and wait
		defer c.Close()
		if _, err := c.Call(ctx, rollout.Hook{Name: "a", URL: r.URL, Retries: 5}, small); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestBadWebhooks(t *testing.T) {
	for name, test := range map[string]struct {
		hook rollout.Hook
		want string
	}{
		"no host":          {rollout.Hook{URL: "http:///path"}, "url: has no host"},
		"no URL":           {rollout.Hook{}, "url: "},
		"password, slash":  {rollout.Hook{URL: "http://user:canary/x@host/"}, "url: "},
		"token as scheme":  {rollout.Hook{URL: "canary:x@host/"}, "url: "},
		"control":          {rollout.Hook{URL: "http://host/\x1b[31m"}, "url: "},
		"negative timeout": {rollout.Hook{URL: "http://host/", Timeout: -1}, "timeout: "},
		"negative retries": {rollout.Hook{URL: "http://host/", Retries: -1}, "retries: "},
		"unknown type":     {rollout.Hook{URL: "http://host/", Type: "confirm"}, "type: "},
	} {
		t.Run(name, func(t *testing.T) {
			var c rollout.Caller
			answer, err := c.Call(t.Context(), test.hook, small)
			if answer.Attempts != 0 || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %+v, %v", answer, err)
			}
			if strings.Contains(fmt.Sprint(err), "canary") || strings.Contains(fmt.Sprint(err), "\x1b") {
				t.Errorf("leaks %q", err)
			}
		})
	}
}

// The timeout of an attempt is 10 s by default, and the waits are as documented.
func TestDefaultTimeoutAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var starts, limits []time.Duration
		c := rollout.Caller{Proxy: func(req *http.Request) (*url.URL, error) {
			if end, ok := req.Context().Deadline(); ok { // of an attempt
				starts, limits = append(starts, time.Since(start)), append(limits, time.Until(end))
				return nil, errors.New("down")
			}
			return nil, nil
		}}
		defer c.Close()
		answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: "http://tester.invalid/", Retries: 7}, small)
		if err == nil || answer.Attempts != 8 {
			t.Errorf("got %+v, %v", answer, err)
		}
		testenv.Equal(t, starts, []time.Duration{0, 1 * s, 3 * s, 7 * s, 15 * s, 31 * s, 61 * s, 91 * s}, "attempts began at")
		for _, limit := range limits {
			testenv.Equal(t, limit, 10*s, "timeout")
		}
		limits = nil
		hook := rollout.Hook{Name: "a", URL: "http://tester.invalid/", Timeout: rollout.Duration(3 * time.Minute)}
		if _, err := c.Call(t.Context(), hook, small); err == nil || !slices.Equal(limits, []time.Duration{180 * s}) {
			t.Errorf("timeouts %v, %v", limits, err)
		}
	})
}

// refusal calls the webhook and returns its StatusError.
func refusal(t *testing.T, c *rollout.Caller, hook rollout.Hook) (*rollout.StatusError, error) {
	t.Helper()
	defer c.Close()
	_, err := c.Call(t.Context(), hook, small)
	refused, ok := errors.AsType[*rollout.StatusError](err)
	if !ok {
		t.Fatalf("no StatusError: %v", err)
	}
	return refused, err
}

func TestRedirectsThatAreNotFollowed(t *testing.T) {
	other := record(t, always(reply(200, "")))
	for _, code := range []int{300, 301, 302, 303, 304, 305, 306, 307, 308} {
		for name, location := range map[string]string{
			"other host":      other.URL + "/taken",
			"other name":      strings.Replace(other.URL, "127.0.0.1", "localhost", 1),
			"scheme relative": strings.TrimPrefix(other.URL, "http:"),
			"user":            strings.Replace(other.URL, "://", "://user:canary@", 1),
			"no URL":          "http://[::1",
			"none":            "",
			"escapes":         other.URL + "/x\u009b31m\u202e",
			"query":           other.URL + "/?token=canary",
			"long":            other.URL + "/" + strings.Repeat("x", 100<<10),
		} {
			if code != http.StatusTemporaryRedirect && name != "other host" {
				continue // the handling of a location does not depend on the code
			}
			t.Run(fmt.Sprintf("%d %s", code, name), func(t *testing.T) {
				body := "see there"
				if code == http.StatusNotModified {
					body = ""
				}
				r := record(t, always(reply(code, body, "Location: "+location)))
				refused, err := refusal(t, &rollout.Caller{Secrets: secrets("bearerToken", "tok3n")},
					rollout.Hook{Name: "a", URL: r.URL, Retries: 3, SecretRef: &rollout.SecretRef{Name: "creds"}})
				testenv.Equal(t, refused.Code, code, "code")
				shown := strings.NewReplacer("user:canary@", "", "token=canary", "token=***", "\u009b31m\u202e", "\ufffd31m\ufffd").Replace(location)
				if name == "long" {
					shown = shown[:200]
				}
				if !strings.Contains(refused.Location, shown) || !strings.Contains(err.Error(), shown) {
					t.Errorf("location %q, error %v", refused.Location, err)
				}
				if text := fmt.Sprintf("%v %q", err, refused.Location); strings.Contains(text, "canary") || strings.ContainsAny(err.Error(), "\u009b\u202e\r\n") || len(text) > 3000 {
					t.Errorf("leaks, or is long: %q", text)
				}
				if all, _ := r.seen(); len(all) != 1 {
					t.Errorf("%d requests", len(all))
				}
			})
		}
	}
	if all, _ := other.seen(); len(all) > 0 {
		t.Errorf("another origin got %q", all)
	}
}

func TestRedirectsThatAreFollowed(t *testing.T) {
	for _, code := range []int{307, 308} {
		var r *recorder
		r = record(t, func(n int) string {
			host := strings.TrimPrefix(r.URL, "http://")
			return []string{
				reply(code, strings.Repeat("x", 100), "Location: /b?x=1"),
				reply(code, strings.Repeat("x", 100<<10), "Location: http://user:canary@"+host+"/c"),
				reply(code, "", "Location: HTTP://"+host+"/d#x"),
				reply(200, "done"),
			}[n]
		})
		c := rollout.Caller{Secrets: secrets("bearerToken", "tok3n")}
		answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL + "/a", SecretRef: &rollout.SecretRef{Name: "creds"}}, small)
		c.Close()
		if err != nil || string(answer.Body) != "done" || answer.Attempts != 1 {
			t.Errorf("%d: %+v, %v", code, answer, err)
		}
		all, _ := r.seen()
		for i, path := range []string{"/a", "/b?x=1", "/c", "/d"} {
			want := raw(strings.TrimPrefix(r.URL, "http://"), path, "Authorization: Bearer tok3n\r\n", smallBody, "")
			if i >= len(all) || all[i] != want {
				t.Fatalf("%d: request %d of %q is not %q", code, i, all, want)
			}
		}
	}
}

// A redirect to the explicit default port stays on the same origin.
func TestRedirectToDefaultPort(t *testing.T) {
	r := record(t, inTurn(reply(307, "", "Location: http://TESTER.invalid:80/b"), reply(200, "")))
	c := rollout.Caller{Proxy: proxyAt(r.URL)}
	defer c.Close()
	if _, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: "http://tester.invalid/a"}, small); err != nil {
		t.Error(err)
	}
	if all, _ := r.seen(); len(all) != 2 || !strings.HasPrefix(all[1], "POST http://TESTER.invalid:80/b ") {
		t.Errorf("%q", all)
	}
}

// A host that differs from the host of the webhook before Unicode lower-casing is another origin.
func TestRedirectToOtherLetter(t *testing.T) {
	for _, host := range []string{"\u0130.invalid", "\u212a.invalid"} { // lower-case: i with a dot above, k
		r := record(t, always(reply(307, "", "Location: http://"+host+"/taken")))
		c := &rollout.Caller{Proxy: proxyAt(r.URL), Secrets: secrets("bearerToken", "tok3n")}
		refusal(t, c, rollout.Hook{Name: "a", URL: "http://" + strings.ToLower(host) + "/", SecretRef: &rollout.SecretRef{Name: "creds"}})
		if all, _ := r.seen(); len(all) != 1 {
			t.Errorf("%q", all)
		}
	}
}
