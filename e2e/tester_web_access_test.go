package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

const (
	adminToken  = "admin-token-0123456789"
	viewerToken = "viewer-token-0123456789"
	scopedToken = "scoped-token-0123456789"
)

// guarded starts a test runner that asks who callers are, and returns it with
// the path of the file that says so.
func guarded(t *testing.T) (*runner, string) {
	t.Helper()
	file := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), `tokens:
- {name: ada, token: `+adminToken+`}
- {name: viewer, token: `+viewerToken+`, readOnly: true}
- {name: ci, token: `+scopedToken+`, kinds: [gate]}
`)
	check(t, os.Chmod(file, 0o600))
	r := serveTester(t, "--tokens", file)
	r.token = adminToken
	r.checks("/gate/check", asks("shop", "cart", "Waiting", "5594979469", nil), 403)
	return r, file
}

func TestTesterWebLogin(t *testing.T) {
	r, _ := guarded(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.until(`document.activeElement.name == "token"`)
	if eval[bool](p, `document.body.innerText.includes("shop/cart")`) {
		t.Error("a stranger sees what waits")
	}
	p.press("wrong-token-0123456789", kb.Enter)
	p.sees("This token is not known.")
	p.until(`document.activeElement.name == "token" && document.activeElement.value == ""`)
	p.press(adminToken, kb.Enter)
	p.sees("shop/cart")
	p.until(`document.querySelector("#session").innerText.startsWith("ada")`)
	if leaked := eval[string](p, `document.cookie + location.href + JSON.stringify({...localStorage, ...sessionStorage})`); leaked != r.url+"/ui/{}" {
		t.Errorf("scripts can read %s", leaked)
	}
	p.open("about:blank")
	p.open(r.url + "/ui/#/gates") // the cookie is still there
	p.sees("shop/cart")
	p.click("#session button")
	p.until(`document.activeElement.name == "token"`)
	if eval[bool](p, `document.body.innerText.includes("shop/cart")`) {
		t.Error("who has signed out sees what waits")
	}
	p.press(adminToken, kb.Enter)
	p.sees("shop/cart")
	p.click(`nav a[href="#/"]`)
	p.click(approve)
	p.until(`document.querySelector("dialog[open]") && !document.querySelector("dialog [name=actor]")`) // it is known who that is
	p.click("dialog .primary")
	p.sees("Nothing waits for approval.")
	if g := r.gate("gate/shop/cart/default"); !g.Open || g.Actor != "ada" {
		t.Errorf("the gate is %+v", g)
	}
}

// A token that may only look has no buttons, and the page says why.
func TestTesterWebReadOnly(t *testing.T) {
	r, _ := guarded(t)
	url := r.load("frontend", "sleep 3600")
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.write("[name=token]", viewerToken)
	p.click("form .primary")
	p.sees("Read-only: viewer may look at everything here and change nothing.")
	p.sees("You may look, not decide.")
	for _, address := range []string{r.url + "/ui/#/", r.url + "/ui/#/gates", url} {
		p.open(address)
		p.until(`document.querySelector("main .hint, main table")`)
		if n := eval[int](p, `document.querySelectorAll("main [data-action]").length`); n != 0 {
			t.Errorf("%s: %d buttons", address, n)
		}
	}
	p.sees("You may look, not cancel.")
}

// What is refused is said in the dialog, in words.
func TestTesterWebRefused(t *testing.T) {
	r, file := guarded(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.write("[name=token]", scopedToken)
	p.click("form .primary")
	p.click(`.pending [data-action=reject]`) // which opens a rollback switch, too
	p.click("dialog .danger")
	p.sees("You may not do this:")
	p.until(`document.querySelector("dialog [role=alert]").offsetHeight > 0`)
	p.press(kb.Escape)
	if r.gate("gate/shop/cart/default").Open {
		t.Error("the gate is open")
	}
	p.click("#session button")
	p.write("[name=token]", adminToken)
	p.click("form .primary")
	p.click(approve)
	p.until(`document.querySelector("dialog[open]")`)
	write(t, file, "tokens: [{name: other, token: other-token-0123456789}]\n") // ada may not do anything any more
	r.token = "other-token-0123456789"
	for status := 0; status != 200; {
		status, _ = r.call("GET", "/api/v1/session", nil)
	}
	p.click("dialog .primary")
	p.sees("You are not signed in any more")
	p.press(kb.Escape)
	p.click(`nav a[href="#/gates"]`)
	p.until(`document.activeElement.name == "token"`)
}

// All addresses are relative: the page works below a prefix, and with a token in its path.
func TestTesterWebPrefix(t *testing.T) {
	r, _ := guarded(t)
	target, err := url.Parse(r.url)
	check(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(q *httputil.ProxyRequest) { q.SetURL(target); q.Out.Host = q.In.Host }, FlushInterval: -1}
	front := httptest.NewServer(http.StripPrefix("/team/tester", proxy))
	t.Cleanup(front.Close)
	for _, base := range []string{r.url + "/token/" + adminToken, front.URL + "/team/tester/token/" + adminToken} {
		r.checks("/gate/check", asks("shop", "cart", "Waiting", base, nil), 403)
		p := newTab(t)
		p.open(base + "/ui") // without the slash
		p.click(approve)
		p.click("dialog .primary")
		p.sees("Nothing waits for approval.")
		p.until(`document.querySelector("#live").textContent == "live"`)
		if elsewhere := eval[[]string](p, `performance.getEntriesByType("resource").map((e) => e.name).filter((n) => !n.startsWith(`+encoded(base)+`))`); len(elsewhere) > 0 {
			t.Errorf("%s: requests elsewhere: %q", base, elsewhere)
		}
		if !eval[bool](p, `document.querySelector("#session button").hidden`) {
			t.Error("one can sign out of an address")
		}
		if at := eval[string](p, "location.href"); at != base+"/ui/" {
			t.Errorf("the page is at %s", at)
		}
	}
}

// A page that nobody looks at holds no connection, of which browsers have few,
// and is right again when it is looked at.
func TestTesterWebHidden(t *testing.T) {
	r := serveTester(t)
	var streams atomic.Int64
	target, err := url.Parse(r.url)
	check(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/api/v1/watch" || q.URL.Query().Has("follow") {
			streams.Add(1)
			defer streams.Add(-1)
		}
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(front.Close)
	p := newTab(t)
	p.open(strings.Replace(r.load("frontend", "echo begun; sleep 3600"), r.url, front.URL, 1))
	p.sees("begun")
	p.until(`document.querySelector("#live").textContent == "live"`)
	hide := func(hidden string) {
		eval[bool](p, `Object.defineProperty(document, "hidden", {configurable: true, value: `+hidden+`}) && document.dispatchEvent(new Event("visibilitychange"))`)
	}
	hide("true")
	p.until(`document.querySelector("#live").textContent == "paused"`)
	for streams.Load() != 0 {
		eval[bool](p, "true")
	}
	r.checks("/gate/check", asks("shop", "cart", "Waiting", "1", nil), 403)
	hide("false")
	p.until(`document.title.startsWith("(1)")`)
	p.until(`document.querySelector(".output").textContent == "begun\n"`) // once
}

// When the connection breaks the page says so, and catches up when it is there again.
func TestTesterWebReconnect(t *testing.T) {
	r := serveTester(t)
	target, err := url.Parse(r.url)
	check(t, err)
	var broken atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if broken.Load() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(front.Close)
	p := newTab(t)
	p.open(front.URL + "/ui/")
	p.until(`document.querySelector("#live").textContent == "live"`)
	r.checks("/gate/check", asks("shop", "cart", "Waiting", "1", nil), 403)
	p.sees("shop/cart")
	broken.Store(true)
	front.CloseClientConnections()
	p.until(`document.querySelector("#live").textContent == "reconnecting"`)
	r.checks("/gate/check", asks("shop", "late", "Waiting", "1", nil), 403)
	p.click(approve)
	p.click("dialog .primary")
	p.sees("The test runner does not answer.")
	p.press(kb.Escape)
	broken.Store(false)
	p.until(`document.querySelector("#live").textContent == "live"`)
	p.sees("shop/late")
	p.sees("shop/cart")
}
