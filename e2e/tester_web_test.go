package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// A runner is a headgate tester, as the page and webhooks have it.
type runner struct {
	t     *testing.T
	url   string
	token string // of what call sends
}

// serveTester starts headgate tester on loopback.
func serveTester(t *testing.T, args ...string) *runner {
	t.Helper()
	cmd := exec.Command(command, append([]string{"tester", "--addr", "127.0.0.1:0"}, args...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	check(t, err)
	start(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	check(t, err)
	_, url, found := strings.Cut(strings.TrimSpace(line), " at ")
	if !found {
		t.Fatalf("headgate tester says %q", line)
	}
	return &runner{t: t, url: url}
}

// call sends a request as webhooks and clients do, and returns status and body.
func (r *runner) call(method, path string, body any) (int, string) {
	r.t.Helper()
	b, err := json.Marshal(body)
	check(r.t, err)
	q, err := http.NewRequest(method, r.url+path, bytes.NewReader(b))
	check(r.t, err)
	q.Header.Set("Content-Type", "application/json")
	if r.token != "" {
		q.Header.Set("Authorization", "Bearer "+r.token)
	}
	a, err := http.DefaultClient.Do(q)
	check(r.t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	check(r.t, err)
	return a.StatusCode, string(text)
}

// asks is what a canary sends to a webhook.
func asks(namespace, name, phase, checksum string, metadata keys) map[string]any {
	return map[string]any{"namespace": namespace, "name": name, "phase": phase, "checksum": checksum, "metadata": metadata}
}

// checks asks at a gate and expects the status.
func (r *runner) checks(path string, payload map[string]any, status int) {
	r.t.Helper()
	if got, text := r.call("POST", path, payload); got != status {
		r.t.Fatalf("POST %s: %d %s, want %d", path, got, text, status)
	}
}

// gate returns the state of a gate by the API.
func (r *runner) gate(path string) (g struct {
	Open                          bool
	Mode, Checksum, Actor, Reason string
	Expires                       string
}) {
	r.t.Helper()
	status, text := r.call("GET", "/api/v1/gates/"+path, nil)
	if status != 200 {
		r.t.Fatalf("%s: %d %s", path, status, text)
	}
	check(r.t, json.Unmarshal([]byte(text), &g))
	return g
}

const approve = `.pending [data-action=approve]`

// A gate that waits is approved with the mouse: for its revision, and no other.
func TestTesterWebApprove(t *testing.T) {
	r := serveTester(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.sees("Nothing waits for approval.")
	p.until(`document.querySelector("#live").textContent == "live"`)
	checkout := asks("payments", "checkout", "WaitingPromotion", "5594979469", nil)
	r.checks("/gate/promotion/check", checkout, 403)
	p.sees("payments/checkout") // without being asked to look again
	p.until(`document.title.startsWith("(1) ")`)
	p.until(`document.querySelector("#announcements").textContent.includes("payments/checkout waits for approval at gate promotion")`)
	p.click(approve)
	p.until(`document.activeElement.value == "checksum" && document.activeElement.checked`)
	p.write("dialog [name=actor]", "Ada")
	p.write("dialog [name=reason]", "looks good")
	p.click("dialog .primary")
	p.sees("Nothing waits for approval.")
	p.until(`document.title.startsWith("Approvals")`)
	if g := r.gate("gate/payments/checkout/promotion"); !g.Open || g.Mode != "checksum" || g.Checksum != "5594979469" || g.Actor != "Ada" || g.Reason != "looks good" {
		t.Errorf("the gate is %+v", g)
	}
	r.checks("/gate/promotion/check", checkout, 200)
	r.checks("/gate/promotion/check", asks("payments", "checkout", "WaitingPromotion", "6f8f9c6b58", nil), 403)
	p.sees("6f8f9c6b58") // which waits now
}

// Everything can be done with the keyboard alone.
func TestTesterWebKeyboard(t *testing.T) {
	r := serveTester(t)
	r.checks("/gate/check", asks("shop", "frontend", "Waiting", "aaa", nil), 403)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.sees("shop/frontend")
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
	p.until(`document.activeElement.name == "mode"`)
	p.press(kb.Escape)
	p.until(`!document.querySelector("dialog") && document.activeElement.dataset.action == "approve"`)
	p.press(kb.Enter)
	p.until(`document.activeElement.name == "mode"`)
	p.press(kb.ArrowDown) // one-shot
	p.press(kb.Tab)
	p.until(`document.activeElement.name == "ttl"`)
	p.press("1") // 15 minutes
	p.press(kb.Tab, kb.Tab)
	p.until(`document.activeElement.name == "reason"`)
	p.press("all by keys")
	p.press(kb.Tab, kb.Enter)
	p.sees("Nothing waits for approval.")
	p.until(`document.activeElement.innerText == "Pending approvals"`) // its button is gone
	if g := r.gate("gate/shop/frontend/default"); !g.Open || g.Mode != "one-shot" || g.Expires == "" || g.Reason != "all by keys" {
		t.Errorf("the gate is %+v", g)
	}
	p.open("about:blank")
	p.open(r.url + "/ui/")
	p.sees("Nothing waits")
	p.press(kb.Tab, kb.Enter) // the way past the navigation
	p.until(`document.activeElement.id == "main"`)
}

// A rejection closes the gate and opens the rollback switch, for the revision that waits.
func TestTesterWebReject(t *testing.T) {
	r := serveTester(t)
	search := asks("catalog", "search", "Waiting", "7bcdfgh245", nil)
	r.checks("/gate/check", search, 403)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.click(`.pending [data-action=reject]`)
	p.write("dialog [name=reason]", "errors in the logs")
	p.click("dialog .danger")
	p.until(`document.querySelector("#announcements").textContent.includes("rejected")`)
	r.checks("/gate/check", search, 403)
	r.checks("/rollback/check", search, 200)
	r.checks("/rollback/check", asks("catalog", "search", "Progressing", "another", nil), 403)
	p.click(`nav a[href="#/audit"]`)
	p.sees("errors in the logs")
	p.sees("reject")
	p.click(`nav a[href="#/gates"]`)
	p.click(`[data-action=close][aria-label*="rollback switch"]`)
	p.click("dialog .primary")
	p.until(`document.querySelector("[data-action=rollback]")`)
	r.checks("/rollback/check", search, 403)
}

// A wait that is not asked for again is dimmed and not counted; the end of the rollout ends it.
func TestTesterWebOver(t *testing.T) {
	r := serveTester(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.until(`document.querySelector("#live").textContent == "live"`)
	cart := asks("shop", "cart", "Waiting", "first", nil)
	r.checks("/gate/check", cart, 403)
	p.until(`document.title.startsWith("(1) ")`)
	r.checks("/gate/check", cart, 403)
	p.until(`document.querySelector(".pending.stale")?.innerText.includes("Asked last")`)
	p.until(`document.title.startsWith("Approvals") && document.querySelector("#count").textContent == ""`)
	r.checks("/gate/check", cart, 403)
	p.until(`document.title.startsWith("(1) ") && !document.querySelector(".stale")`)
	r.checks("/rollback/check", asks("shop", "cart", "Failed", "first", nil), 403)
	p.sees("Nothing waits for approval.")
}

// The card and the dialog of what waits say what its caller says of it, and how its tests ended.
func TestTesterWebAbout(t *testing.T) {
	r := serveTester(t)
	about := keys{"headgate.revision": "main@sha1:69d8", "headgate.weight": "20", "headgate.step": "2/5", "headgate.threshold": "5", "headgate.failures": "1"}
	r.checks("/gate/check", asks("shop", "cart", "Waiting", "first", about), 403)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.until(`document.querySelector("#live").textContent == "live" && document.querySelector(".pending")`)
	r.checks("/", asks("shop", "cart", "Progressing", "first", keys{"type": "bash", "cmd": "exit 3"}), 422)
	shows := func(where string) {
		t.Helper()
		for _, text := range []string{"main@sha1:69d8", "first", "20%", "2/5", "1 of 5", "failed bash"} {
			p.until(`document.querySelector("` + where + `")?.innerText.replace(/\s+/g, " ").includes("` + text + `")`)
		}
	}
	shows(".pending")
	p.click(approve)
	shows("dialog[open]")
}

// Who approves while another revision begins to wait is told, and approves nothing.
func TestTesterWebStale(t *testing.T) {
	r := serveTester(t)
	r.checks("/gate/check", asks("shop", "cart", "Waiting", "first", nil), 403)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.until(`document.querySelector("#live").textContent == "live"`)
	p.click(approve)
	p.until(`document.querySelector("dialog[open]")`)
	r.checks("/gate/check", asks("shop", "cart", "Waiting", "second", nil), 403)
	p.sees("Another revision waits by now: second.")
	if !eval[bool](p, `document.querySelector("dialog .primary").disabled`) {
		t.Error("it can still be approved")
	}
	p.press(kb.Escape)
	p.until(`!document.querySelector("dialog")`)
	if r.gate("gate/shop/cart/default").Open {
		t.Error("the gate is open")
	}
}
