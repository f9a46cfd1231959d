package e2e

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
)

// contrast is JavaScript that returns what has less contrast than WCAG 2.2 AA
// wants: 4.5 for text, 3 for the borders of what can be operated.
//
//go:embed testdata/contrast.js
var contrast string

// A stagedPage is a test runner where something of everything is to be seen.
func staged(t *testing.T) (r *runner, running, failed string) {
	t.Helper()
	r = serveTester(t)
	checkout := asks("payments", "checkout", "WaitingPromotion", "5594979469", nil)
	r.checks("/gate/promotion/check", checkout, 403)
	r.checks("/api/v1/gates/gate/catalog/search/default/close", map[string]any{"actor": "Grace", "reason": "not before the sale ends"}, 200)
	r.checks("/gate/check", asks("catalog", "search", "Waiting", "6f8f9c6b58", nil), 403)
	r.checks("/api/v1/gates/gate/payments/ledger/default/open", map[string]any{"actor": "Ada", "reason": "looks good", "mode": "one-shot", "ttl": "8h"}, 200)
	r.checks("/api/v1/gates/rollback/shop/frontend/default/open", map[string]any{"actor": "Ada", "reason": "errors after the release"}, 200)
	r.checks("/", asks("payments", "checkout", "Progressing", "5594979469", keys{"type": "bash",
		"cmd": "printf 'TAP version 13\n1..3\nok 1 adds to the cart\nnot ok 2 pays by card\n# expected 200, got 502\nok 3 refunds\n'; exit 1"}), 422)
	failed = r.runs()[0].ID
	r.checks("/", asks("catalog", "search", "Progressing", "6f8f9c6b58", keys{"type": "bash", "cmd": "echo all is well"}), 200)
	r.load("frontend", "for i in $(seq 40); do echo \"request $i: 200 in $((i * 7 % 23 + 4)) ms\"; done; sleep 3600")
	return r, r.runs()[0].ID, failed
}

// loaded returns when the view is what the server says.
func (p *tab) loaded(url string) {
	p.t.Helper()
	p.open("about:blank")
	p.open(url)
	p.until(`document.querySelector("#live").textContent == "live" && !document.querySelector("main").innerText.includes("Loading")`)
	p.until(`!location.hash.includes("runs/") || document.querySelector(".output").textContent`)
}

// Every view has enough contrast, light and dark, fits 320 pixels without
// scrolling sideways, and says to assistive technology what there is.
func TestTesterWebLook(t *testing.T) {
	r, running, failed := staged(t)
	p := newTab(t)
	views := map[string]string{
		"approvals": "", "gates": "#/gates", "gate": "#/gates/gate/catalog/search/default", "audit": "#/audit",
		"runs": "#/runs", "running": "#/runs/" + running, "failed": "#/runs/" + failed, "none": "#/nothing",
	}
	for name, path := range views {
		for _, scheme := range []string{"light", "dark"} {
			p.look(1100, 800, scheme)
			p.loaded(r.url + "/ui/" + path)
			p.examine(name + ", " + scheme)
			p.look(320, 640, scheme)
			p.examine(name + ", small, " + scheme)
		}
	}
	p.look(640, 400, "dark") // 1280 × 800 at 200 %
	p.loaded(r.url + "/ui/")
	p.click(approve)
	p.until(`document.querySelector("dialog[open]")`)
	p.examine("dialog")
	p.look(320, 640, "light")
	p.examine("dialog, small")

	guard, _ := guarded(t)
	p.open(guard.url + "/ui/")
	p.until(`document.querySelector("[name=token]")`)
	p.examine("login")
}

// examine checks what is on the page now.
func (p *tab) examine(name string) {
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
	p.assisted(name)
}

// operable are the roles of what can be operated, which have to have a name.
var operable = map[string]bool{
	"button": true, "link": true, "textbox": true, "searchbox": true, "combobox": true, "listbox": true, "radio": true, "checkbox": true,
	"radiogroup": true, "group": true, "dialog": true, "table": true, "navigation": true, "search": true, "region": true,
}

// assisted checks what assistive technology is told.
func (p *tab) assisted(name string) {
	p.t.Helper()
	tree, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	check(p.t, err)
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
		if operable[role] && called == "" {
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
