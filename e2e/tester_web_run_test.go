package e2e

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate-io/headgate/internal/testenv"
)

// startCommand starts a command in the background and returns the address of its page.
func (r *testRunner) startCommand(name, cmd string) string {
	r.t.Helper()
	r.wantStatus("/", canaryPayload("shop", name, "Progressing", "5594979469", stringMap{"type": "cmd", "cmd": cmd}), 202)
	return r.url + "/ui/#/runs/" + r.runs()[0].ID
}

// Output appears while the run is under way, and the page says how it ended.
func TestTesterWebOutput(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.waitText("Nothing is running.")
	p.waitUntil(`document.querySelector("#live").textContent == "live"`)
	flag := filepath.Join(t.TempDir(), "flag")
	await := "; while [ ! -e " + flag + " ]; do sleep 0.05; done; "
	r.startCommand("frontend", "seq -f 'early %g' 300"+await+"seq -f 'late %g' 300; exit 3")
	p.click(`main a[href^="#/runs/"]`) // the list of running commands has updated without a reload
	p.waitText("early 300")
	p.waitUntil(`document.querySelector("main dl")?.innerText.includes("running")`)
	end := `(() => { const b = document.querySelector(".output"); return b.scrollHeight - b.scrollTop - b.clientHeight < 2 })()`
	p.waitUntil(end)
	eval[int](p, `document.querySelector(".output").scrollTop = 100`)
	p.waitUntil(`document.querySelector("[aria-pressed]").ariaPressed == "false"`)
	write(t, flag, "")
	p.waitUntil(`document.querySelector(".output").textContent.includes("late 300")`)
	p.waitUntil(`document.querySelector("main dl")?.innerText.includes("failed")`)
	testenv.Equal(t, eval[int](p, `document.querySelector(".output").scrollTop`), 100, "who reads is moved to")
	p.waitText("exit status 3")
	if got := eval[bool](p, `document.querySelector(".output").textContent.endsWith("late 299\nlate 300\n")`); !got {
		t.Error("the output is not whole")
	}
}

// TestTesterWebOutputBounded checks that the page shows a bounded part of a long
// output, with its end.
func TestTesterWebOutputBounded(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	p := newTab(t)
	p.open(r.startCommand("frontend", "yes 0123456789 | head -c 5000000; echo; echo the end"))
	p.waitUntil(`document.querySelector(".output")?.textContent.trimEnd().endsWith("the end")`)
	p.waitUntil(`document.querySelector("main dl")?.innerText.includes("succeeded")`)
	p.waitText("The beginning is not shown.")
	if n := eval[int](p, `document.querySelector(".output").textContent.length`); n > 200_000 {
		t.Errorf("%d characters are shown", n)
	}
}

func TestTesterWebCancel(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	p := newTab(t)
	p.open(r.startCommand("frontend", "echo begun\nsleep 3600"))
	p.waitText("echo begun\nsleep 3600") // the metadata, unchanged
	p.click(`[data-action=cancel]`)
	p.waitUntil(`document.querySelector("dialog[open]")`)
	p.click("dialog .danger")
	p.waitUntil(`document.querySelector("main dl")?.innerText.includes("cancelled")`)
	p.waitUntil(`!document.querySelector("[data-action=cancel]")`)
	testenv.Equal(t, r.runs()[0].State, "cancelled", "the run")
}

// TestTesterWebFilter checks that runs can be filtered by canary, type and state,
// and that the address has the filter.
func TestTesterWebFilter(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	test := func(name, kind, cmd string, status int) {
		r.wantStatus("/", canaryPayload("shop", name, "Progressing", "1", stringMap{"type": kind, "cmd": cmd}), status)
	}
	test("cart", "bash", "printf 'TAP version 13\n1..2\nok 1 adds\nnot ok 2 pays\n'; exit 1", 422)
	test("cart", "bash", "true", 200)
	test("search", "bash", "true", 200)
	p := newTab(t)
	p.open(r.url + "/ui/#/runs")
	rows := `document.querySelectorAll("tbody tr").length`
	p.waitUntil(rows + " == 3")
	p.waitText("exit status 1")
	p.write("[name=canary]", "shop/cart")
	p.click(".filter button")
	p.waitUntil(rows + " == 2")
	eval[string](p, `document.querySelector("[name=state]").value = "failed"`)
	p.click(".filter button")
	p.waitUntil(rows + " == 1")
	testenv.Equal(t, eval[string](p, "location.hash"), "#/runs?canary=shop%2Fcart&state=failed", "the address")
	test("cart", "bash", "exit 7", 422) // appears in the filtered list without a reload
	test("search", "bash", "exit 7", 422)
	p.waitUntil(rows + " == 2")
}

// TestTesterWebMore checks that a long list is shown in parts.
func TestTesterWebMore(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	for i := range 60 {
		r.wantStatus("/", canaryPayload("shop", "cart", "Progressing", strconv.Itoa(i), stringMap{"type": "bash", "cmd": "true"}), 200)
	}
	p := newTab(t)
	p.open(r.url + "/ui/#/runs")
	rows := `document.querySelectorAll("tbody tr").length`
	p.waitUntil(rows + " == 50")
	p.do(chromedp.Focus(chromedp.CSS("section > button")))
	p.press(kb.Enter)
	p.waitUntil(rows + " == 60")
	p.waitUntil(`document.querySelector("section > button").hidden`)
}

// TestTesterWebHostile checks that text from callers never becomes markup: names,
// reasons, metadata and output.
func TestTesterWebHostile(t *testing.T) {
	t.Parallel()
	const (
		script = "<script>alert(1)</script>"
		image  = "<img src=x onerror=alert(1)>"
		quote  = `"><svg onload=alert(1)>`
		bidi   = "safe\u202egnp.exe"
	)
	r := startTester(t)
	hostile := canaryPayload("shop", "cart", image, quote, stringMap{"type": "bash", "x": script, quote: image,
		"cmd": "printf '1..1\nnot ok 1 %s\n\033[31mred\033[0m \033]0;title\007 \u202e%s\n' '" + script + "' '" + image + "'; exit 1"})
	r.wantStatus("/", canaryPayload("shop", script, image, quote, stringMap{"type": "bash", "cmd": "exit 1"}), 422)
	r.wantStatus("/", hostile, 422)
	r.wantStatus("/gate/check", hostile, 403)
	r.wantStatus("/gate/check?gate=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", hostile, 403)
	r.call("POST", "/api/v1/gates/gate/shop/cart/default/close", map[string]any{"actor": script, "reason": bidi + image})
	r.wantStatus("/gate/check", hostile, 403)

	p := newTab(t)
	p.checkHostileText(r.url+"/ui/", []struct{ path, shows string }{
		{"", image}, {"#/gates", image}, {"#/audit", script}, {"#/gates/gate/shop/cart/default", image},
		{"#/runs", script}, {"#/runs/" + r.runs()[0].ID, script},
		{"#/gates/gate/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E/a/b", image}, {"#/runs?canary=" + "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E", "No run matches"},
		{"#/%zz", "nothing at this address"}, {"#/gates/gate/../../x", "alone has no address"}, {"#/runs/..", "nothing at this address"},
	})
	p.open(r.url + "/ui/#/runs/" + r.runs()[0].ID)
	p.waitText("red ⟨U+001B⟩]0;title⟨U+0007⟩ ⟨U+202E⟩")
	p.open(r.url + "/ui/#/audit")
	p.waitText("safe⟨U+202E⟩gnp.exe")
}
