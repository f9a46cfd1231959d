package e2e

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate-io/headgate/internal/testenv"
)

// load starts a command in the background and returns the address of its page.
func (r *testRunner) load(name, cmd string) string {
	r.t.Helper()
	r.checks("/", asks("shop", name, "Progressing", "5594979469", keys{"type": "cmd", "cmd": cmd}), 202)
	return r.url + "/ui/#/runs/" + r.runs()[0].ID
}

// Output appears while the run is under way, and the page says how it ended.
func TestTesterWebOutput(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	p := newTab(t)
	p.open(r.url + "/ui/")
	p.sees("Nothing is running.")
	p.until(`document.querySelector("#live").textContent == "live"`)
	flag := filepath.Join(t.TempDir(), "flag")
	await := "; while [ ! -e " + flag + " ]; do sleep 0.05; done; "
	r.load("frontend", "seq -f 'early %g' 300"+await+"seq -f 'late %g' 300; exit 3")
	p.click(`main a[href^="#/runs/"]`) // the list of running commands has updated without a reload
	p.sees("early 300")
	p.until(`document.querySelector("main dl")?.innerText.includes("running")`)
	end := `(() => { const b = document.querySelector(".output"); return b.scrollHeight - b.scrollTop - b.clientHeight < 2 })()`
	p.until(end)
	eval[int](p, `document.querySelector(".output").scrollTop = 100`)
	p.until(`document.querySelector("[aria-pressed]").ariaPressed == "false"`)
	write(t, flag, "")
	p.until(`document.querySelector(".output").textContent.includes("late 300")`)
	p.until(`document.querySelector("main dl")?.innerText.includes("failed")`)
	testenv.Equal(t, eval[int](p, `document.querySelector(".output").scrollTop`), 100, "who reads is moved to")
	p.sees("exit status 3")
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
	p.open(r.load("frontend", "yes 0123456789 | head -c 5000000; echo; echo the end"))
	p.until(`document.querySelector(".output")?.textContent.trimEnd().endsWith("the end")`)
	p.until(`document.querySelector("main dl")?.innerText.includes("succeeded")`)
	p.sees("The beginning is not shown.")
	if n := eval[int](p, `document.querySelector(".output").textContent.length`); n > 200_000 {
		t.Errorf("%d characters are shown", n)
	}
}

func TestTesterWebCancel(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	p := newTab(t)
	p.open(r.load("frontend", "echo begun\nsleep 3600"))
	p.sees("echo begun\nsleep 3600") // the metadata, unchanged
	p.click(`[data-action=cancel]`)
	p.until(`document.querySelector("dialog[open]")`)
	p.click("dialog .danger")
	p.until(`document.querySelector("main dl")?.innerText.includes("cancelled")`)
	p.until(`!document.querySelector("[data-action=cancel]")`)
	testenv.Equal(t, r.runs()[0].State, "cancelled", "the run")
}

// TestTesterWebFilter checks that runs can be filtered by canary, type and state,
// and that the address has the filter.
func TestTesterWebFilter(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	test := func(name, kind, cmd string, status int) {
		r.checks("/", asks("shop", name, "Progressing", "1", keys{"type": kind, "cmd": cmd}), status)
	}
	test("cart", "bash", "printf 'TAP version 13\n1..2\nok 1 adds\nnot ok 2 pays\n'; exit 1", 422)
	test("cart", "bash", "true", 200)
	test("search", "bash", "true", 200)
	p := newTab(t)
	p.open(r.url + "/ui/#/runs")
	rows := `document.querySelectorAll("tbody tr").length`
	p.until(rows + " == 3")
	p.sees("exit status 1")
	p.write("[name=canary]", "shop/cart")
	p.click(".filter button")
	p.until(rows + " == 2")
	eval[string](p, `document.querySelector("[name=state]").value = "failed"`)
	p.click(".filter button")
	p.until(rows + " == 1")
	testenv.Equal(t, eval[string](p, "location.hash"), "#/runs?canary=shop%2Fcart&state=failed", "the address")
	test("cart", "bash", "exit 7", 422) // appears in the filtered list without a reload
	test("search", "bash", "exit 7", 422)
	p.until(rows + " == 2")
}

// TestTesterWebMore checks that a long list is shown in parts.
func TestTesterWebMore(t *testing.T) {
	t.Parallel()
	r := startTester(t)
	for i := range 60 {
		r.checks("/", asks("shop", "cart", "Progressing", strconv.Itoa(i), keys{"type": "bash", "cmd": "true"}), 200)
	}
	p := newTab(t)
	p.open(r.url + "/ui/#/runs")
	rows := `document.querySelectorAll("tbody tr").length`
	p.until(rows + " == 50")
	p.do(chromedp.Focus(chromedp.CSS("section > button")))
	p.press(kb.Enter)
	p.until(rows + " == 60")
	p.until(`document.querySelector("section > button").hidden`)
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
	hostile := asks("shop", "cart", image, quote, keys{"type": "bash", "x": script, quote: image,
		"cmd": "printf '1..1\nnot ok 1 %s\n\033[31mred\033[0m \033]0;title\007 \u202e%s\n' '" + script + "' '" + image + "'; exit 1"})
	r.checks("/", asks("shop", script, image, quote, keys{"type": "bash", "cmd": "exit 1"}), 422)
	r.checks("/", hostile, 422)
	r.checks("/gate/check", hostile, 403)
	r.checks("/gate/check?gate=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", hostile, 403)
	r.call("POST", "/api/v1/gates/gate/shop/cart/default/close", map[string]any{"actor": script, "reason": bidi + image})
	r.checks("/gate/check", hostile, 403)

	p := newTab(t)
	p.harmless(r.url+"/ui/", []struct{ path, shows string }{
		{"", image}, {"#/gates", image}, {"#/audit", script}, {"#/gates/gate/shop/cart/default", image},
		{"#/runs", script}, {"#/runs/" + r.runs()[0].ID, script},
		{"#/gates/gate/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E/a/b", image}, {"#/runs?canary=" + "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E", "No run matches"},
		{"#/%zz", "nothing at this address"}, {"#/gates/gate/../../x", "alone has no address"}, {"#/runs/..", "nothing at this address"},
	})
	p.open(r.url + "/ui/#/runs/" + r.runs()[0].ID)
	p.sees("red ⟨U+001B⟩]0;title⟨U+0007⟩ ⟨U+202E⟩")
	p.open(r.url + "/ui/#/audit")
	p.sees("safe⟨U+202E⟩gnp.exe")
}
