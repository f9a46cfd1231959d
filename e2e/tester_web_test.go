package e2e

import (
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

const approve = `.pending [data-action=approve]`

// TestTesterWebApprove approves a waiting gate with the mouse. Only the waiting revision may pass.
func TestTesterWebApprove(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.waitText("Nothing is waiting for approval.")
	p.waitUntil(`document.querySelector("#live").textContent == "live"`)
	checkout := canaryPayload("payments", "checkout", "WaitingPromotion", "5594979469", nil)
	r.wantStatus("/gate/promotion/check", checkout, 403)
	p.waitText("payments/checkout") // without a reload
	p.waitUntil(`document.title.startsWith("(1) ")`)
	p.waitUntil(`document.querySelector("#announcements").textContent.includes("payments/checkout waits for approval at gate promotion")`)
	p.click(approve)
	p.waitUntil(`document.activeElement.value == "checksum" && document.activeElement.checked`)
	p.write("dialog [name=actor]", "Ada")
	p.write("dialog [name=reason]", "looks good")
	p.click("dialog .primary")
	p.waitText("Nothing is waiting for approval.")
	p.waitUntil(`document.title.startsWith("Approvals")`)
	if g := r.gate("gate/payments/checkout/promotion"); !g.Open || g.Mode != "checksum" || g.Checksum != "5594979469" || g.Actor != "Ada" || g.Reason != "looks good" {
		t.Errorf("the gate is %+v", g)
	}
	r.wantStatus("/gate/promotion/check", checkout, 200)
	r.wantStatus("/gate/promotion/check", canaryPayload("payments", "checkout", "WaitingPromotion", "6f8f9c6b58", nil), 403)
	p.waitText("6f8f9c6b58") // it is waiting now
}

// TestTesterWebKeyboard checks that the page can be used with the keyboard only.
func TestTesterWebKeyboard(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	r.wantStatus("/gate/check", canaryPayload("shop", "frontend", "Waiting", "aaa", nil), 403)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.waitText("shop/frontend")
	visible := `(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle != "none" && parseFloat(s.outlineWidth) >= 2 })()`
	var order []string
	for range 20 {
		p.press(kb.Tab)
		name := eval[string](p, `document.activeElement.getAttribute("aria-label") ?? document.activeElement.innerText.trim()`)
		order = append(order, name)
		if !eval[bool](p, visible) {
			t.Errorf("the focus on %q cannot be seen", name)
		}
		if strings.HasPrefix(name, "Approve shop/frontend") {
			break
		}
	}
	want := []string{"Skip to the content", "Approvals 1", "Gates", "Runs", "Audit", "shop/frontend", "Approve shop/frontend, gate default"}
	if got := strings.Join(order, "; "); got != strings.Join(want, "; ") {
		t.Fatalf("the order of the focus: %s", got)
	}
	p.press(kb.Enter)
	p.waitUntil(`document.activeElement.name == "mode"`)
	p.press(kb.Escape)
	p.waitUntil(`!document.querySelector("dialog") && document.activeElement.dataset.action == "approve"`)
	p.press(kb.Enter)
	p.waitUntil(`document.activeElement.name == "mode"`)
	p.press(kb.ArrowDown) // one-shot
	p.press(kb.Tab)
	p.waitUntil(`document.activeElement.name == "ttl"`)
	p.press("1") // 15 minutes
	p.press(kb.Tab, kb.Tab)
	p.waitUntil(`document.activeElement.name == "reason"`)
	p.press("all by keys")
	p.press(kb.Tab, kb.Enter)
	p.waitText("Nothing is waiting for approval.")
	p.waitUntil(`document.activeElement.innerText == "Pending approvals"`) // the button no longer exists
	if g := r.gate("gate/shop/frontend/default"); !g.Open || g.Mode != "one-shot" || g.Expires == "" || g.Reason != "all by keys" {
		t.Errorf("the gate is %+v", g)
	}
	p.open("about:blank")
	p.open(r.url + "/ui/")
	p.waitText("Nothing is waiting")
	p.press(kb.Tab, kb.Enter) // the link that skips the navigation
	p.waitUntil(`document.activeElement.id == "main"`)
}

// TestTesterWebReject checks that a rejection closes the gate and opens the rollback switch, for
// the waiting revision only.
func TestTesterWebReject(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	search := canaryPayload("catalog", "search", "Waiting", "7bcdfgh245", nil)
	r.wantStatus("/gate/check", search, 403)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.click(`.pending [data-action=reject]`)
	p.write("dialog [name=reason]", "errors in the logs")
	p.click("dialog .danger")
	p.waitUntil(`document.querySelector("#announcements").textContent.includes("rejected")`)
	r.wantStatus("/gate/check", search, 403)
	r.wantStatus("/rollback/check", search, 200)
	r.wantStatus("/rollback/check", canaryPayload("catalog", "search", "Progressing", "another", nil), 403)
	p.click(`nav a[href="#/audit"]`)
	p.waitText("errors in the logs")
	p.waitText("reject")
	p.click(`nav a[href="#/gates"]`)
	p.click(`[data-action=close][aria-label*="rollback switch"]`)
	p.click("dialog .primary")
	p.waitUntil(`document.querySelector("[data-action=rollback]")`)
	r.wantStatus("/rollback/check", search, 403)
}

// TestTesterWebOver checks that a wait is dimmed and not counted if its checks stop, and disappears
// when the rollout ends.
func TestTesterWebOver(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.waitUntil(`document.querySelector("#live").textContent == "live"`)
	cart := canaryPayload("shop", "cart", "Waiting", "first", nil)
	r.wantStatus("/gate/check", cart, 403)
	p.waitUntil(`document.title.startsWith("(1) ")`)
	r.wantStatus("/gate/check", cart, 403)
	p.waitUntil(`document.querySelector(".pending.stale")?.innerText.includes("Asked last")`)
	p.waitUntil(`document.title.startsWith("Approvals") && document.querySelector("#count").textContent == ""`)
	r.wantStatus("/gate/check", cart, 403)
	p.waitUntil(`document.title.startsWith("(1) ") && !document.querySelector(".stale")`)
	r.wantStatus("/rollback/check", canaryPayload("shop", "cart", "Failed", "first", nil), 403)
	p.waitText("Nothing is waiting for approval.")
}

// TestTesterWebAbout checks that the card and the dialog of a waiting gate show what its caller
// sent, and the results of its tests.
func TestTesterWebAbout(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	about := stringMap{"headgate.revision": "main@sha1:69d8", "headgate.weight": "20", "headgate.step": "2/5", "headgate.threshold": "5", "headgate.failures": "1"}
	r.wantStatus("/gate/check", canaryPayload("shop", "cart", "Waiting", "first", about), 403)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.waitUntil(`document.querySelector("#live").textContent == "live" && document.querySelector(".pending")`)
	r.wantStatus("/", canaryPayload("shop", "cart", "Progressing", "first", stringMap{"type": "bash", "cmd": "exit 3"}), 422)
	shows := func(where string) {
		t.Helper()
		for _, text := range []string{"main@sha1:69d8", "first", "20%", "2/5", "1 of 5", "failed bash"} {
			p.waitUntil(`document.querySelector("` + where + `")?.innerText.replace(/\s+/g, " ").includes("` + text + `")`)
		}
	}
	shows(".pending")
	p.click(approve)
	shows("dialog[open]")
}

// TestTesterWebStale checks that a user is told if another revision begins to wait while the
// approval dialog is open, and cannot approve then.
func TestTesterWebStale(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	r.wantStatus("/gate/check", canaryPayload("shop", "cart", "Waiting", "first", nil), 403)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.waitUntil(`document.querySelector("#live").textContent == "live"`)
	p.click(approve)
	p.waitUntil(`document.querySelector("dialog[open]")`)
	r.wantStatus("/gate/check", canaryPayload("shop", "cart", "Waiting", "second", nil), 403)
	p.waitText("Another revision is waiting now: second.")
	if !eval[bool](p, `document.querySelector("dialog .primary").disabled`) {
		t.Error("it can still be approved")
	}
	p.press(kb.Escape)
	p.waitUntil(`!document.querySelector("dialog")`)
	if r.gate("gate/shop/cart/default").Open {
		t.Error("the gate is open")
	}
}

const (
	adminToken  = "admin-token-0123456789"
	viewerToken = "viewer-token-0123456789"
	scopedToken = "scoped-token-0123456789"
)

// startTesterWithTokens starts a test runner with authentication and returns it with the path of its token file.
func startTesterWithTokens(t *testing.T) (*testRunner, string) {
	t.Helper()
	file := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), `tokens:
- {name: ada, token: `+adminToken+`}
- {name: viewer, token: `+viewerToken+`, readOnly: true}
- {name: ci, token: `+scopedToken+`, kinds: [gate]}
`)
	must(t, os.Chmod(file, 0o600))
	r := startTester(t, "--tokens", file)
	r.token = adminToken
	r.wantStatus("/gate/check", canaryPayload("shop", "cart", "Waiting", "5594979469", nil), 403)
	return r, file
}

func TestTesterWebLogin(t *testing.T) {
	t.Parallel()
	r, _ := startTesterWithTokens(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.waitUntil(`document.activeElement.name == "token"`)
	if eval[bool](p, `document.body.innerText.includes("shop/cart")`) {
		t.Error("a stranger sees what waits")
	}
	p.press("wrong-token-0123456789", kb.Enter)
	p.waitText("This token is not known.")
	p.waitUntil(`document.activeElement.name == "token" && document.activeElement.value == ""`)
	p.press(adminToken, kb.Enter)
	p.waitText("shop/cart")
	p.waitUntil(`document.querySelector("#session").innerText.startsWith("ada")`)
	if leaked := eval[string](p, `document.cookie + location.href + JSON.stringify({...localStorage, ...sessionStorage})`); leaked != r.url+"/ui/{}" {
		t.Errorf("scripts can read %s", leaked)
	}
	p.open("about:blank")
	p.open(r.url + "/ui/#/gates") // the cookie still exists
	p.waitText("shop/cart")
	p.click("#session button")
	p.waitUntil(`document.activeElement.name == "token"`)
	if eval[bool](p, `document.body.innerText.includes("shop/cart")`) {
		t.Error("who has signed out sees what waits")
	}
	p.press(adminToken, kb.Enter)
	p.waitText("shop/cart")
	p.waitUntil(`document.querySelector("#session").innerText.startsWith("ada") && document.title.startsWith("(1) ")`) // the page is fully drawn
	p.click(`nav a[href="#/"]`)
	p.click(approve)
	p.waitUntil(`document.querySelector("dialog[open]") && !document.querySelector("dialog [name=actor]")`) // the server knows the user
	p.click("dialog .primary")
	p.waitText("Nothing is waiting for approval.")
	if g := r.gate("gate/shop/cart/default"); !g.Open || g.Actor != "ada" {
		t.Errorf("the gate is %+v", g)
	}
}

// TestTesterWebReadOnly checks that the page has no buttons for a read-only token, and says why.
func TestTesterWebReadOnly(t *testing.T) {
	t.Parallel()
	r, _ := startTesterWithTokens(t)
	url := r.startCommand("frontend", "sleep 3600")
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.write("[name=token]", viewerToken)
	p.click("form .primary")
	p.waitText("Read-only: viewer may look at everything here and change nothing.")
	p.waitText("You may look, not decide.")
	for _, address := range []string{r.url + "/ui/#/", r.url + "/ui/#/gates", url} {
		p.open(address)
		p.waitUntil(`document.querySelector("main .hint, main table")`)
		if n := eval[int](p, `document.querySelectorAll("main [data-action]").length`); n != 0 {
			t.Errorf("%s: %d buttons", address, n)
		}
	}
	p.waitText("You may look, not cancel.")
}

// TestTesterWebRefused checks that the dialog says why an action was refused.
func TestTesterWebRefused(t *testing.T) {
	t.Parallel()
	r, file := startTesterWithTokens(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.write("[name=token]", scopedToken)
	p.click("form .primary")
	p.click(`.pending [data-action=reject]`) // also needs permission for the rollback switch
	p.click("dialog .danger")
	p.waitText("You may not do this:")
	p.waitUntil(`document.querySelector("dialog [role=alert]").offsetHeight > 0`)
	p.press(kb.Escape)
	if r.gate("gate/shop/cart/default").Open {
		t.Error("the gate is open")
	}
	p.click("#session button")
	p.write("[name=token]", adminToken)
	p.click("form .primary")
	p.click(approve)
	p.waitUntil(`document.querySelector("dialog[open]")`)
	write(t, file, "tokens: [{name: other, token: other-token-0123456789}]\n") // revokes the token of ada
	r.token = "other-token-0123456789"
	for status := 0; status != 200; {
		status, _ = r.call("GET", "/api/v1/session", nil)
	}
	p.click("dialog .primary")
	p.waitText("You are not signed in any more")
	p.press(kb.Escape)
	p.click(`nav a[href="#/gates"]`)
	p.waitUntil(`document.activeElement.name == "token"`)
}

// TestTesterWebPrefix checks that the page works below a path prefix and with a token in its path,
// because all its URLs are relative.
func TestTesterWebPrefix(t *testing.T) {
	t.Parallel()
	r, _ := startTesterWithTokens(t)
	front := startReverseProxy(t, r.url, func(tester *httputil.ReverseProxy) http.Handler { return http.StripPrefix("/team/tester", tester) })
	for _, base := range []string{r.url + "/token/" + adminToken, front.URL + "/team/tester/token/" + adminToken} {
		r.wantStatus("/gate/check", canaryPayload("shop", "cart", "Waiting", base, nil), 403)
		p := newTab(t)
		p.open(base + "/ui") // without the slash
		p.click(approve)
		p.click("dialog .primary")
		p.waitText("Nothing is waiting for approval.")
		p.waitUntil(`document.querySelector("#live").textContent == "live"`)
		if elsewhere := eval[[]string](p, `performance.getEntriesByType("resource").map((e) => e.name).filter((n) => !n.startsWith(`+toJSON(base)+`))`); len(elsewhere) > 0 {
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

// TestTesterWebHidden checks that a hidden page closes its streams, because browsers limit
// connections, and is up to date when it is visible again.
func TestTesterWebHidden(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	var streams atomic.Int64
	front := startReverseProxy(t, r.url, func(tester *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/api/v1/watch" || q.URL.Query().Has("follow") {
				streams.Add(1)
				defer streams.Add(-1)
			}
			tester.ServeHTTP(w, q)
		})
	})
	p := newTab(t)
	p.open(strings.Replace(r.startCommand("frontend", "echo begun; sleep 3600"), r.url, front.URL, 1))
	p.waitText("begun")
	p.waitUntil(`document.querySelector("#live").textContent == "live"`)
	hide := func(hidden string) {
		eval[bool](p, `Object.defineProperty(document, "hidden", {configurable: true, value: `+hidden+`}) && document.dispatchEvent(new Event("visibilitychange"))`)
	}
	hide("true")
	p.waitUntil(`document.querySelector("#live").textContent == "paused"`)
	for streams.Load() != 0 {
		eval[bool](p, "true")
	}
	r.wantStatus("/gate/check", canaryPayload("shop", "cart", "Waiting", "1", nil), 403)
	hide("false")
	p.waitUntil(`document.title.startsWith("(1)")`)
	p.waitUntil(`document.querySelector(".output").textContent == "begun\n"`) // not duplicated
}

// TestTesterWebReconnect checks that the page reports a broken connection, and catches up after it
// is restored.
func TestTesterWebReconnect(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	var broken atomic.Bool
	front := startReverseProxy(t, r.url, func(tester *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if broken.Load() {
				panic(http.ErrAbortHandler)
			}
			tester.ServeHTTP(w, q)
		})
	})
	p := newTab(t)
	p.open(front.URL + "/ui/")
	p.waitUntil(`document.querySelector("#live").textContent == "live"`)
	r.wantStatus("/gate/check", canaryPayload("shop", "cart", "Waiting", "1", nil), 403)
	p.waitText("shop/cart")
	broken.Store(true)
	front.CloseClientConnections()
	p.waitUntil(`document.querySelector("#live").textContent == "reconnecting"`)
	r.wantStatus("/gate/check", canaryPayload("shop", "late", "Waiting", "1", nil), 403)
	p.click(approve)
	p.click("dialog .primary")
	p.waitText("The server does not answer.")
	p.press(kb.Escape)
	broken.Store(false)
	p.waitUntil(`document.querySelector("#live").textContent == "live"`)
	p.waitText("shop/late")
	p.waitText("shop/cart")
}
