package tester_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const gatePath = "/api/v1/gates/gate/shop/podinfo/default"

// state returns a gate of the canary.
func (d *door) state(kind api.Kind) api.Gate {
	return d.Gates.Gate(api.Key{Kind: kind, Namespace: "shop", Name: "podinfo", Gate: api.DefaultGate})
}

// TestGGateAbuse: who opens a gate did so on purpose, for what it saw, and is known.
func TestGGateAbuse(t *testing.T) {
	d := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, tenants) })
	d.token = allToken
	check := func(checksum string) int {
		return d.post("/gate/check", strings.Replace(canary("shop", `{}`), "abc", checksum, 1)).status
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "open"} {
		for _, path := range []string{"/gate/open", "/gate/close", "/rollback/open", "/rollback/close", "/gate/x/open", gatePath + "/open", gatePath + "/reject"} {
			if got := d.call(method, path, canary("shop", `{}`)); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "POST" {
				t.Errorf("%s %s: %d, Allow %q", method, path, got.status, got.header.Get("Allow"))
			}
		}
	}
	if d.state(api.KindGate).Open || d.state(api.KindRollback).Open {
		t.Fatal("something is open")
	}

	// For one revision.
	check("a")
	d.post(gatePath+"/open", `{"checksum": "a", "reason": "looks good", "actor": "mallory"}`).is(t, "bound", 200, `"mode":"checksum"`)
	if check("a") != 200 || check("b") != 403 {
		t.Error("an approval of one revision counts for another")
	}
	d.post(gatePath+"/open", `{"mode": "one-shot"}`).is(t, "one-shot", 200, "")
	var answers []int
	for _, checksum := range []string{"b", "b", "c", "b"} {
		answers = append(answers, check(checksum))
	}
	if !slices.Equal(answers, []int{200, 200, 403, 403}) {
		t.Error("a one-shot approval counts for more than one revision")
	}
	d.post(gatePath+"/open", `{"ttl": "0"}`).is(t, "a time that is none", 400, "")

	// By a link: looking does nothing, the button does it once.
	check("d")
	var link, next api.Link
	for _, l := range []*api.Link{&link, &next} {
		if err := json.Unmarshal([]byte(d.post(gatePath+"/link", `{"ttl": "1h"}`).body), l); err != nil {
			t.Fatal(err)
		}
	}
	d.token = ""
	path := func(u string) string { return strings.TrimPrefix(u, d.url) }
	for _, method := range []string{"GET", "HEAD", "GET"} {
		d.call(method, path(link.Approve), "").is(t, "looking at a link", 200, "")
	}
	d.call("PUT", path(link.Approve), "").is(t, "another method", 405, "")
	d.call("POST", path(link.Approve), "", "Origin", "https://other.example.com").is(t, "a form of another site", 403, "")
	d.call("POST", path(link.Approve), "", "Origin", "null").is(t, "a form of nowhere", 403, "")
	for name, broken := range map[string]string{
		"changed": path(link.Approve)[:len(path(link.Approve))-2] + "xx", "swapped": strings.Replace(path(link.Reject), "/link/", "/link/x", 1), "short": "/link/x", "escaped": "/link/%2e%2e",
	} {
		if got := d.call("POST", broken, ""); got.status != http.StatusGone && got.status != http.StatusNotFound {
			t.Errorf("a link that is %s: %d", name, got.status)
		}
	}
	d.token = allToken
	if check("d") != 403 {
		t.Fatal("the gate is open")
	}
	d.token = ""
	d.call("POST", path(link.Approve), "", "Origin", d.url).is(t, "the button", 200, "")
	d.call("POST", path(link.Approve), "").is(t, "the button again", 410, "")
	d.call("POST", path(link.Reject), "").is(t, "the other button", 410, "")
	d.token = allToken
	if check("d") != 200 || check("e") != 403 {
		t.Error("the link opened something else")
	}
	d.token = ""
	d.call("POST", path(next.Reject), "").is(t, "an older link when another revision waits", 410, "")
	if d.state(api.KindRollback).Open {
		t.Error("the rollback switch is open")
	}

	// All of it is on record.
	d.token = allToken
	trail := d.call("GET", "/api/v1/audit?namespace=shop", "").body
	for _, want := range []string{`"actor":"all"`, `"reason":"looks good"`, `"action":"link"`, `"actor":"a link"`, `"action":"consume"`} {
		if !strings.Contains(trail, want) {
			t.Errorf("the audit trail has no %s: %s", want, trail)
		}
	}
	if strings.Contains(trail, "mallory") {
		t.Error("a caller chose the actor")
	}

	// Who decides while it ends is told to come again, and nothing was decided.
	if err := json.Unmarshal([]byte(d.post(gatePath+"/link", "{}").body), &next); err != nil {
		t.Fatal(err)
	}
	if err := d.Gates.Close(); err != nil {
		t.Fatal(err)
	}
	for p, body := range map[string]string{path(next.Approve): "", "/gate/open": canary("shop", `{}`), gatePath + "/open": ""} {
		got := d.post(p, body)
		if got.is(t, "a change when the gates are closed for good", 503, "shutting down"); got.header.Get("Retry-After") == "" {
			t.Errorf("%s: it was not told to come again: %v", p, got.header)
		}
	}
	if strings.Contains(d.log.String(), path(next.Approve)) {
		t.Error("the log has a link that works")
	}
}

// TestGCrossSite: what a page of another site can make a browser send, with the
// session of the person in front of it.
func TestGCrossSite(t *testing.T) {
	d := openDoor(t, func(w *doorway) {
		w.server.Guard, w.server.BaseURL = guard(t, tenants), "https://tests.example.com/tester"
	})
	got := d.post("/api/v1/session", `{"token": "`+allToken+`"}`)
	got.is(t, "login", 200, `"actor":"all"`)
	cookie := got.header.Get("Set-Cookie")
	for _, attribute := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, attribute) {
			t.Errorf("the cookie has no %s: %s", attribute, cookie)
		}
	}
	cookie, _, _ = strings.Cut(cookie, ";")
	command, marks := marker(t)
	task := canary("shop", `{"type": "bash", "cmd": "`+command+`"}`)
	for name, headers := range map[string][]string{
		"another origin":                {"Origin", "https://other.example.com"},
		"another port":                  {"Origin", "http://127.0.0.1:1"},
		"another scheme and port":       {"Origin", "https://127.0.0.1"},
		"no origin":                     {"Origin", "null"},
		"a name that begins the same":   {"Origin", "https://tests.example.com.attacker.example.net"},
		"another host of the base":      {"Origin", "https://www.tests.example.com"},
		"the scheme of the base":        {"Origin", "http://tests.example.com"},
		"the browser says so":           {"Sec-Fetch-Site", "cross-site"},
		"another host of the same site": {"Sec-Fetch-Site", "same-site"},
	} {
		for path, body := range map[string]string{
			"/": task, "/prefix": task, "/launch-test": task, "/gate/open": task, "/rollback/open": task, gatePath + "/open": "{}", gatePath + "/reject": "{}", gatePath + "/link": "{}",
			"/api/v1/session": `{"token": "` + lookToken + `"}`,
		} {
			for _, kind := range []string{"application/json", "text/plain", "application/x-www-form-urlencoded"} {
				got := d.call("POST", path, body, append(headers, "Cookie", cookie, "Content-Type", kind)...)
				if got.status != 403 || got.header.Get("Access-Control-Allow-Origin") != "" || got.header.Get("Set-Cookie") != "" {
					t.Errorf("%s: %s as %s: %d %s %v", name, path, kind, got.status, got.body, got.header)
				}
			}
		}
		d.call("DELETE", "/api/v1/session", "", append(headers, "Cookie", cookie)...).is(t, name+": logout", 403, "")
	}
	if n := marks(); n != 0 || d.state(api.KindGate).Open || d.state(api.KindRollback).Open {
		t.Errorf("another site ran %d commands, or opened something", n)
	}
	// A request that a page may make without asking first, as a form or text, is no request of the API.
	d.call("POST", gatePath+"/open", "{}", "Cookie", cookie, "Content-Type", "text/plain").is(t, "not JSON", 415, "")
	for name, headers := range map[string][]string{
		"no browser": {"A", "b"}, "the page": {"Origin", d.url, "Sec-Fetch-Site", "same-origin"}, "without the newer header": {"Origin", d.url}, "by the base URL": {"Origin", "https://tests.example.com"},
	} {
		d.post(gatePath+"/open", "{}", append(headers, "Cookie", cookie)...).is(t, name, 200, `"open":true`)
	}
	for _, path := range []string{"/api/v1/gates", "/api/v1/session", "/gate/check", "/healthz"} {
		got := d.call("OPTIONS", path, "", "Origin", "https://other.example.com", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type")
		for name := range got.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s lets other sites in: %v", path, got.header)
			}
		}
	}
	d.call("DELETE", "/api/v1/session", "", "Cookie", cookie).is(t, "logout", 204, "")
	d.call("GET", "/api/v1/gates", "", "Cookie", cookie).is(t, "after the logout", 401, "")
}

const markup = `<script>alert(1)</script><img src=x onerror=alert(1)>`

// TestGOutputIsText: what tests and callers write is never a page.
func TestGOutputIsText(t *testing.T) {
	d := openDoor(t, nil)
	m := func(pairs ...string) string {
		return metadata(append([]string{"type", "bash", "returnCmdOutput", "true"}, pairs...)...)
	}
	d.post("/", canary("shop", m("cmd", "printf '%s' '<!DOCTYPE html>"+markup+"'"))).is(t, "output", 200, markup)
	id := d.Server.Runs.Runs(api.Filter{})[0].ID
	d.post("/gate/check", `{"name": "`+`<b>podinfo`+`", "namespace": "shop", "checksum": "<i>"}`)
	escaped := url.PathEscape(markup)
	for name, got := range map[string]reply{
		"output":          d.post("/", canary("shop", m("cmd", "printf '%s' '<!DOCTYPE html>"+markup+"'", "n", "1"))),
		"failure":         d.post("/", canary("shop", m("cmd", "echo '"+markup+"'; exit 1"))),
		"type":            d.post("/", canary("shop", m("type", markup))),
		"key":             d.post("/", canary("shop", m("cmd", "x", "env."+markup, "x"))),
		"body":            d.post("/", markup),
		"body of a gate":  d.post("/gate/open", markup),
		"path":            d.call("GET", "/gate/"+escaped, ""),
		"path of the API": d.call("GET", "/api/v1/"+escaped, ""),
		"gate":            d.call("GET", "/api/v1/gates/"+escaped+"/a/b/c", ""),
		"query":           d.call("GET", "/api/v1/runs?"+escaped+"=1", ""),
		"run":             d.call("GET", "/api/v1/runs/"+escaped, ""),
		"page":            d.call("GET", "/ui/"+escaped, ""),
		"live output":     d.call("GET", "/api/v1/runs/"+id+"/output", ""),
		"record":          d.call("GET", "/api/v1/runs/"+id, ""),
		"gates":           d.call("GET", "/api/v1/gates", ""),
		"token":           d.call("GET", "/token/"+escaped+"/gate/check", ""),
		"origin":          d.call("POST", "/", "", "Origin", "https://"+markup),
		"host":            d.call("GET", "/healthz", "", "Host", "attacker.example.com"),
		"method":          d.call("SCRIPT", "/gate/open", ""),
	} {
		kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
		if kind != "text/plain" && kind != "application/json" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d as %q, %q", name, got.status, got.header.Get("Content-Type"), got.header.Get("X-Content-Type-Options"))
		}
		if kind == "application/json" && strings.Contains(got.body, "<script>") {
			t.Errorf("%s: markup in JSON is not escaped: %s", name, got.body)
		}
	}
	for _, path := range []string{"/ui/", "/link/x"} {
		got := d.call("GET", path, "")
		policy := got.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy has no %s: %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("X-Frame-Options") != "DENY" || strings.Contains(got.body, "<script>") {
			t.Errorf("%s: %v", path, got.header)
		}
	}
}

// TestGLogInjection: no text of a request makes a line of the log.
func TestGLogInjection(t *testing.T) {
	const forged = "\nlevel=ERROR msg=forged\r\n\x1b[31m\x1b]0;title\x07\u202e\u2028forged\u0085"
	for name, handler := range map[string]func(*logBuffer) slog.Handler{
		"text": func(b *logBuffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"JSON": func(b *logBuffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var buffer logBuffer
		d := openDoor(t, func(w *doorway) {
			w.server.Log = slog.New(handler(&buffer))
			w.server.Guard = guard(t, tenants)
		})
		d.token = allToken
		text, err := json.Marshal(forged)
		if err != nil {
			t.Fatal(err)
		}
		one := strings.Trim(string(text), `"`)
		d.post("/", `{"name": "`+one+`", "namespace": "`+one+`", "phase": "`+one+`", "checksum": "`+one+`", "metadata": {"type": "bash", "logCmdOutput": "true", "cmd": "printf 'a\\nlevel=ERROR msg=forged\\n\\033[31mb\\rc'; exit 1"}}`)
		d.post("/gate/"+url.PathEscape(forged)+"/open", `{"name": "`+one+`", "namespace": "`+one+`", "reason": "`+one+`", "actor": "`+one+`", "checksum": "`+one+`", "mode": "checksum"}`)
		d.token = teamToken
		d.post("/", `{"name": "x", "namespace": "`+one+`", "metadata": {"type": "`+one+`", "cmd": "x"}}`).is(t, "a namespace", 403, "")
		d.call("POST", "/gate/open", "{}", "Origin", "https://x/"+url.QueryEscape(forged))
		if err := d.end(); err != nil {
			t.Error(err)
		}
		log := buffer.String()
		for line := range strings.Lines(log) {
			if strings.HasPrefix(line, "level=ERROR") || !strings.Contains(line, "time") {
				t.Errorf("%s: a line of a caller: %q", name, line)
			}
		}
		if i := strings.IndexFunc(log, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: a control character in %q", name, log[max(0, i-80):min(len(log), i+20)])
		}
		if !strings.Contains(log, "forged") {
			t.Errorf("%s: what callers said is not logged at all: %s", name, log)
		}
	}
}
