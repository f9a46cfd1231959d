package e2e

import (
	"context"
	_ "embed"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is the browser that all tests share. The first tab starts it and
// [TestMain] ends it.
var chromium struct {
	once sync.Once
	ctx  context.Context
	err  error
}

func startChromium(path string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Flag("headless", "new"),
		chromedp.Flag("lang", "en-US"),
		chromedp.Flag("hide-scrollbars", false),
		chromedp.DisableGPU,
		chromedp.WindowSize(1400, 800),
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	chromium.ctx, _ = chromedp.NewContext(allocator)
	chromium.err = chromedp.Do(chromium.ctx) // without a timeout, which would apply to the browser
}

// stopChromium ends the browser if it was started.
func stopChromium() {
	if chromium.ctx != nil {
		chromedp.Cancel(chromium.ctx)
	}
}

// A tab is a page in its own browser context, with its own cookies. The test
// fails at its end if the page caused errors, violations of its content security
// policy, or dialogs of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// newTab opens a tab, which is closed when the test ends.
func newTab(t *testing.T) *tab {
	t.Helper()
	path := tool(t, "chromium")
	chromium.once.Do(func() { startChromium(path) })
	if chromium.err != nil {
		t.Fatalf("start chromium: %v", chromium.err)
	}
	p := &tab{t: t}
	p.ctx, _ = chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.recordProblems))
	t.Cleanup(func() {
		if t.Failed() {
			p.shows()
		}
		chromedp.Cancel(p.ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.problems {
			t.Errorf("the page: %s", line)
		}
	})
	must(t, chromedp.Do(p.ctx))
	_, err := chromedp.Call(p.ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	must(t, err)
	_, err = chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `addEventListener("securitypolicyviolation", (e) => console.error("violation of", e.violatedDirective, "by", e.blockedURI))`,
	})
	must(t, err)
	return p
}

// recordProblems records the errors of the page. It ignores console messages about failed
// requests, which some tests cause on purpose.
func (p *tab) recordProblems(event any) {
	line := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		line = "exception " + toJSON(e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		line = "console " + toJSON(e.Args)
	case *page.EventJavascriptDialogOpening:
		line = "dialog " + e.Message
		go chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	case *cdplog.EventEntryAdded:
		if e.Entry.Level != "verbose" && (e.Entry.Source != "network" || !strings.Contains(e.Entry.Text, "Failed to load resource")) {
			line = "log " + e.Entry.Text
		}
	}
	if line != "" {
		p.mu.Lock()
		p.problems = append(p.problems, line)
		p.mu.Unlock()
	}
}

func toJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// do performs actions of a user, with a time limit. If the page redraws a node
// between the moments when it is found and used, do retries the action.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	for _, action := range actions {
		err := chromedp.Do(ctx, action)
		for err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "Could not find node with given id") {
			err = chromedp.Do(ctx, action)
		}
		must(p.t, err)
	}
}

func (p *tab) open(url string) { p.t.Helper(); p.do(chromedp.Navigate(url)) }

// click clicks with the mouse on the element of a CSS selector. It waits until
// the element exists.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// press sends keys to the focused element.
func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.do(chromedp.KeyEvent(key))
	}
}

// pressKey presses one key as a keyboard does: if a listener prevents the default,
// no character is inserted. press would insert it anyway.
func (p *tab) pressKey(key string) {
	p.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Text: key})
		must(p.t, err)
	}
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// waitUntil waits until an expression is true.
func (p *tab) waitUntil(expression string) {
	p.t.Helper()
	waitUntil(p.t, expression, func() bool { return eval[bool](p, "Boolean("+expression+")") })
}

// waitText waits until text is on the page.
func (p *tab) waitText(text string) {
	p.t.Helper()
	p.waitUntil("document.body.innerText.includes(" + toJSON(text) + ")")
}

// shows logs the text of the page.
func (p *tab) shows() {
	p.t.Helper()
	if text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.title + '\\n' + document.body.innerText")); err == nil {
		p.t.Logf("the page shows:\n%s", text)
	}
}

// setViewport sets the size of the window and the preferred colour scheme.
func (p *tab) setViewport(width, height int64, scheme string) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"},
		},
	})
	must(p.t, err)
}

// checkHostileText opens views of a page and checks that hostile text is shown, but did
// not become markup, external links or control characters.
func (p *tab) checkHostileText(base string, views []struct{ path, shows string }) {
	p.t.Helper()
	for _, view := range views {
		p.open("about:blank")
		p.open(base + view.path)
		p.waitText(view.shows)
		if n := eval[int](p, `document.querySelectorAll("main script, main img, main svg, main style, main iframe").length`); n != 0 {
			p.t.Errorf("%s: %d elements were made of text", view.path, n)
		}
		if shown := eval[string](p, `document.body.innerText`); strings.ContainsAny(shown, "\u202e\x1b\x07") {
			p.t.Errorf("%s: control characters are on the page", view.path)
		}
		if elsewhere := eval[[]string](p, `[...document.querySelectorAll("a")].map((a) => a.href).filter((href) => !href.startsWith(location.origin))`); len(elsewhere) > 0 {
			p.t.Errorf("%s: links to %q", view.path, elsewhere)
		}
	}
}

// checkViews examines views of a page in two sizes and two colour schemes.
func (p *tab) checkViews(views map[string]string, open func(path string)) {
	p.t.Helper()
	for name, path := range views {
		for _, scheme := range []string{"light", "dark"} {
			p.setViewport(1100, 800, scheme)
			open(path)
			p.checkView(name + ", " + scheme)
			p.setViewport(320, 640, scheme)
			p.checkView(name + ", small, " + scheme)
		}
	}
}

// contrast is JavaScript that returns the elements with less contrast than WCAG
// 2.2 AA requires: 4.5 for text, 3 for the borders of controls.
//
//go:embed testdata/contrast.js
var contrast string

// startSampleTester starts a test runner that has at least one item of every kind.
func startSampleTester(t *testing.T) (r *testRunner, running, failed string) {
	t.Helper()
	r = startTester(t)
	checkout := canaryPayload("payments", "checkout", "WaitingPromotion", "5594979469", nil)
	r.wantStatus("/gate/promotion/check", checkout, 403)
	r.wantStatus("/api/v1/gates/gate/catalog/search/default/close", map[string]any{"actor": "Grace", "reason": "not before the sale ends"}, 200)
	r.wantStatus("/gate/check", canaryPayload("catalog", "search", "Waiting", "6f8f9c6b58", nil), 403)
	r.wantStatus("/api/v1/gates/gate/payments/ledger/default/open", map[string]any{"actor": "Ada", "reason": "looks good", "mode": "one-shot", "ttl": "8h"}, 200)
	r.wantStatus("/api/v1/gates/rollback/shop/frontend/default/open", map[string]any{"actor": "Ada", "reason": "errors after the release"}, 200)
	r.wantStatus("/", canaryPayload("payments", "checkout", "Progressing", "5594979469", stringMap{"type": "bash",
		"cmd": "printf 'TAP version 13\n1..3\nok 1 adds to the cart\nnot ok 2 pays by card\n# expected 200, got 502\nok 3 refunds\n'; exit 1"}), 422)
	failed = r.runs()[0].ID
	r.wantStatus("/", canaryPayload("catalog", "search", "Progressing", "6f8f9c6b58", stringMap{"type": "bash", "cmd": "echo all is well"}), 200)
	r.startCommand("frontend", "for i in $(seq 40); do echo \"request $i: 200 in $((i * 7 % 23 + 4)) ms\"; done; sleep 3600")
	return r, r.runs()[0].ID, failed
}

// openLoaded opens a view and waits until it shows the data of the server.
func (p *tab) openLoaded(url string) {
	p.t.Helper()
	p.open("about:blank")
	p.open(url)
	p.waitUntil(`document.querySelector("#live").textContent == "live" && !document.querySelector("main").innerText.includes("Loading")`)
	p.waitUntil(`!location.hash.includes("runs/") || document.querySelector(".output").textContent`)
}

// TestTesterWebLook checks that every view has enough contrast in both colour
// schemes, fits 320 pixels without horizontal scrolling, and is accessible to
// assistive technology.
func TestTesterWebLook(t *testing.T) {
	t.Parallel()
	r, running, failed := startSampleTester(t)
	p := newTab(t)
	p.checkViews(map[string]string{
		"approvals": "", "gates": "#/gates", "gate": "#/gates/gate/catalog/search/default", "audit": "#/audit",
		"runs": "#/runs", "running": "#/runs/" + running, "failed": "#/runs/" + failed, "none": "#/nothing",
	}, func(path string) { p.openLoaded(r.url + "/ui/" + path) })
	p.setViewport(640, 400, "dark") // 1280 × 800 at 200 %
	p.openLoaded(r.url + "/ui/")
	p.click(approve)
	p.waitUntil(`document.querySelector("dialog[open]")`)
	p.checkView("dialog")
	p.setViewport(320, 640, "light")
	p.checkView("dialog, small")

	guard, _ := startTesterWithTokens(t)
	p.open(guard.url + "/ui/")
	p.waitUntil(`document.querySelector("[name=token]")`)
	p.checkView("login")
}

// checkView checks the current view.
func (p *tab) checkView(name string) {
	p.t.Helper()
	for _, line := range eval[[]string](p, contrast) {
		p.t.Errorf("%s: contrast: %s", name, line)
	}
	if wide := eval[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
		p.t.Errorf("%s: it is %d pixels too wide", name, wide)
	}
	if twice := eval[[]string](p, `[...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) != i)`); len(twice) > 0 {
		p.t.Errorf("%s: ids that are there twice: %q", name, twice)
	}
	levels := eval[[]int](p, `[...document.querySelectorAll("main :is(h1, h2, h3, h4), dialog :is(h1, h2, h3)")].filter((e) => e.checkVisibility()).map((e) => Number(e.localName[1]))`)
	for i, level := range levels {
		if i == 0 && level != 1 || i > 0 && level > levels[i-1]+1 {
			p.t.Errorf("%s: the order of headings is %v", name, levels)
		}
	}
	p.checkAccessibility(name)
}

// namedRoles are the roles of elements that must have a name.
var namedRoles = map[string]bool{
	"button": true, "link": true, "textbox": true, "searchbox": true, "combobox": true, "listbox": true, "radio": true, "checkbox": true,
	"radiogroup": true, "group": true, "dialog": true, "table": true, "navigation": true, "search": true, "region": true,
}

// checkAccessibility checks the accessibility tree.
func (p *tab) checkAccessibility(name string) {
	p.t.Helper()
	tree, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	must(p.t, err)
	count := map[string]int{}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		count[role]++
		called := ""
		if node.Name != nil {
			called = strings.Trim(string(node.Name.Value), `" `)
		}
		if namedRoles[role] && called == "" {
			p.t.Errorf("%s: a %s without a name", name, role)
		}
	}
	modal := eval[bool](p, `Boolean(document.querySelector("dialog[open]"))`)
	for role, want := range map[string]int{"main": 1, "banner": 1, "navigation": 1} {
		if role == "navigation" && eval[bool](p, `document.body.classList.contains("signed-out")`) {
			want = 0
		}
		if count[role] != want && !modal {
			p.t.Errorf("%s: %d of role %s, want %d", name, count[role], role, want)
		}
	}
	if tables := eval[int](p, `[...document.querySelectorAll("table")].filter((e) => e.checkVisibility()).length`); count["table"] != tables && !modal {
		p.t.Errorf("%s: %d tables of %d are tables", name, count["table"], tables)
	}
	if rows := eval[int](p, `[...document.querySelectorAll("tbody tr")].filter((e) => e.checkVisibility()).length`); !modal && (count["row"] < rows || count["rowheader"] != rows) {
		p.t.Errorf("%s: %d rows and %d headers of rows, want %d", name, count["row"], count["rowheader"], rows)
	}
}
