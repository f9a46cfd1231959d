package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
)

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
			"other scheme":    "ftp://127.0.0.1/x",
			"https":           "https://127.0.0.1/x",
			"no URL":          "http://[::1",
			"none":            "",
			"escapes":         other.URL + "/x\u009b31m\u202e",
			"query":           other.URL + "/?token=canary",
			"long":            other.URL + "/" + strings.Repeat("x", 100<<10),
		} {
			t.Run(fmt.Sprintf("%d %s", code, name), func(t *testing.T) {
				body := "see there"
				if code == http.StatusNotModified {
					body = ""
				}
				r := record(t, always(reply(code, body, "Location: "+location)))
				refused, err := refusal(t, &rollout.Caller{Secrets: secrets("bearerToken", "tok3n")},
					rollout.Hook{Name: "a", URL: r.URL, Retries: 3, SecretRef: &rollout.SecretRef{Name: "creds"}})
				if refused.Code != code {
					t.Errorf("code %d", refused.Code)
				}
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

// A header with control characters is none.
func TestLocationWithEscape(t *testing.T) {
	r := record(t, always(reply(307, "", "Location: /x\x1b[31m")))
	var c rollout.Caller
	defer c.Close()
	_, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL}, small)
	if err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %q", err)
	}
}

// 301 to 303 and the like are not followed within the origin either.
func TestRedirectsThatWouldChangeTheMethod(t *testing.T) {
	for _, code := range []int{300, 301, 302, 303, 304, 305} {
		r := record(t, inTurn(reply(code, "", "Location: /there"), reply(200, "")))
		refused, _ := refusal(t, &rollout.Caller{}, rollout.Hook{Name: "a", URL: r.URL})
		if all, _ := r.seen(); len(all) != 1 || refused.Location != "/there" {
			t.Errorf("%d: %d requests, location %q", code, len(all), refused.Location)
		}
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

func TestRedirectLoop(t *testing.T) {
	r := record(t, always(reply(307, "", "Location: /again")))
	refused, _ := refusal(t, &rollout.Caller{}, rollout.Hook{Name: "a", URL: r.URL, Retries: 3})
	if all, conns := r.seen(); len(all) != 11 || conns != 1 || refused.Location != "/again" {
		t.Errorf("%d requests by %d connections, location %q", len(all), conns, refused.Location)
	}
}

// Eleven requests end, the tenth redirect being the last that is followed.
func TestTenRedirects(t *testing.T) {
	r := record(t, func(n int) string {
		if n < 10 {
			return reply(308, "", "Location: /again")
		}
		return reply(200, "")
	})
	var c rollout.Caller
	defer c.Close()
	if _, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL}, small); err != nil {
		t.Error(err)
	}
}

// A port that is the default one is no other origin.
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

// Letters that only Unicode has in two cases make other hosts.
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
