package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/headgate-io/headgate/source/serve/api"
)

const (
	names    = `[...document.querySelectorAll("tbody th a")].map((a) => a.textContent).join(" ")`
	said     = `document.querySelector("#announcements").textContent`
	isLive   = `document.querySelector("#live").textContent == "live"`
	isCut    = `/^(reconnecting|stale since .*)$/.test(document.querySelector("#live").textContent)` // the second after a while
	checkout = "GitRepository/payments/checkout"
)

// tableRow is the row of a source in the list, as an expression and as a selector.
func tableRow(name string) string {
	return `[...document.querySelectorAll("tbody tr")].find((r) => r.querySelector("th a").textContent == ` + encoded(name) + `)`
}

// lists opens the list and returns when it is whole and live.
func (p *tab) lists(s *keeper, query string) {
	p.t.Helper()
	p.open("about:blank")
	p.open(s.url + "/ui/" + query)
	p.until(isLive + ` && !document.querySelector("main").innerText.includes("Loading")`)
}

// Every source is there with its state in words, and what keeps it from being ready.
func TestServeWebList(t *testing.T) {
	p := newTab(t)
	s := keep(t, stagedSources()...) // last, as it holds times
	p.lists(s, "")
	for name, words := range map[string][]string{
		"payments/checkout": {"Not ready", "GitRepository", "credentials were refused (401)", "main@sha1:4f1c0a9e…", "7 h ago", "1 min ago", "in 6 min"},
		"catalog/images":    {"Stalled", "Bucket", "is no name of a bucket"},
		"shop/cart":         {"Ready", "v2.3.1@sha1:8b7c6d5e…"},
	} {
		text := eval[string](p, tableRow(name)+`.innerText`)
		for _, want := range words {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q lacks %q", name, text, want)
			}
		}
	}
	p.sees("Suspended by ada: not before the sale ends")
	p.sees("Waits for PkgRepository/shop/charts")
	p.until(`document.title.startsWith("(2) Sources")`) // two of them are not as they should be
	full := "main@sha1:" + strings.Repeat("4f1c0a9e", 5)
	if title := eval[string](p, tableRow("payments/checkout")+`.querySelector("[data-action=revision]").title`); title != full {
		t.Errorf("the title of the revision is %q", title)
	}
	eval[bool](p, tableRow("payments/checkout")+`.querySelector("[data-action=revision]").click() ?? true`)
	p.sees(full)
	p.until(`document.querySelector("[data-action=revision][aria-expanded=true]")`)
	s.edit("GitRepository/shop/cart", func(one *api.Source) { one.Ready, one.Message = "False", "the disk is full" })
	p.sees("the disk is full") // by itself
	p.until(`document.title.startsWith("(3) Sources")`)
	s.remove(checkout)
	p.until(`!document.body.innerText.includes("payments/checkout")`)
	p.sees("1 to 6 of 6 sources")
	p.until(`document.querySelectorAll("section [hidden]:not(option)").length && !document.querySelector(".failures li")`)
	s.mu.Lock()
	s.defects = []string{"sources/shop.yaml: document 3: yaml: line 12: mapping values are not allowed here"}
	s.mu.Unlock()
	p.lists(s, "")
	p.sees("Problems of documents")
	p.sees("mapping values are not allowed here")
}

// What is asked for is in the address, and the address shows it again.
func TestServeWebFilter(t *testing.T) {
	s := keep(t, stagedSources()...)
	p := newTab(t)
	p.lists(s, "")
	if got := eval[string](p, names); got != "catalog/images payments/checkout shop/frontend shop/frontend catalog/search shop/cart shop/charts" { // failures first
		t.Fatalf("the list has %s", got)
	}
	p.write("[name=q]", "shop front")
	p.until(names + ` == "shop/frontend shop/frontend"`)
	p.click(`[data-state=suspended]`)
	p.until(names + ` == "shop/frontend"`)
	p.until(`location.hash == "#/?q=shop+front&state=suspended"`)
	p.lists(s, "#/?namespace=shop&kind=PkgRepository")
	p.until(names + ` == "shop/charts" && document.querySelector("[name=kind]").value == "PkgRepository"`)
	p.lists(s, "#/?state=not-ready")
	p.until(names + ` == "payments/checkout" && document.querySelector("[data-state=not-ready]").ariaPressed == "true"`)
	p.sees("Ready 3") // the others are still counted
	p.lists(s, "#/?sort=name")
	p.until(names + `.startsWith("catalog/images catalog/search")`)
	p.click("thead th:nth-child(4) button")
	p.until(names + `.startsWith("catalog/search shop/cart")`) // the newest artifacts first
	p.click("thead th:nth-child(4) button")
	p.until(names + `.endsWith("shop/cart catalog/search")`)
	p.until(`document.querySelector("thead th:nth-child(4)").ariaSort == "descending" && location.hash == "#/?sort=-artifact"`)
	p.write("[name=q]", "nothing like that")
	p.sees("No source is like that.")
}

// Everything can be done with the keyboard alone: by focus, and by keys.
func TestServeWebKeyboard(t *testing.T) {
	s := keep(t, stagedSources()...)
	p := newTab(t)
	p.lists(s, "#/?sort=name")
	visible := `(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle != "none" && parseFloat(s.outlineWidth) >= 2 })()`
	var order []string
	for range 40 {
		p.press(kb.Tab)
		name := eval[string](p, `(document.activeElement.labels?.[0]?.innerText || document.activeElement.getAttribute("aria-label")) ?? document.activeElement.innerText.trim()`)
		order = append(order, name)
		if !eval[bool](p, visible) {
			t.Errorf("the focus on %q cannot be seen", name)
		}
		if strings.HasPrefix(name, "Suspend Bucket") {
			break
		}
	}
	want := "Skip to the content; Sources; Events; Keys; Find; Kind; Namespace; All 7; Stalled 1; Not ready 1; Reconciling 1; Suspended 1; Ready 3; " +
		"Source; State; Revision; Artifact; Checked; Next; catalog/images; sha256:9a0b9a0b…; Reconcile Bucket catalog/images; Suspend Bucket catalog/images"
	if got := strings.Join(order, "; "); got != want {
		t.Errorf("the order of the focus: %s", got)
	}
	at := func(name string) string { return `document.activeElement.textContent == ` + encoded(name) }
	p.press("j")
	p.until(at("catalog/search"))
	p.press("j", "j", "k")
	p.until(at("payments/checkout"))
	p.press("r")
	p.until(said + ` == "GitRepository payments/checkout: reconciling."`)
	p.until(tableRow("payments/checkout") + `.innerText.includes("running")`)
	p.until(at("payments/checkout")) // the row has changed, the focus has not
	p.press("s")
	p.until(`document.querySelector("dialog[open]") && document.activeElement.name == "by"`)
	p.press("r", kb.Escape)
	p.until(`!document.querySelector("dialog") && ` + at("payments/checkout"))
	if got := s.asked(); strings.Join(got, " ") != "reconcile "+checkout {
		t.Errorf("the server was asked for %q", got)
	}
	p.strike("/")
	p.until(`document.activeElement.name == "q" && document.activeElement.value == ""`)
	p.press("search?")
	p.until(`document.activeElement.value == "search?" && !document.querySelector("dialog")`) // keys are letters there
	p.press(kb.Tab, kb.Tab, kb.Tab, "?")
	p.until(`document.querySelector("dialog[open]")?.innerText.includes("Reconcile the source")`)
	p.click("#keys-on")
	p.press(kb.Escape)
	p.strike("/")
	p.press("?")
	p.until(`document.activeElement.dataset.state == "" && !document.querySelector("dialog")`) // they are off
	p.click("#keys")
	p.click("#keys-on")
	p.press(kb.Escape)
	p.lists(s, "#/?q=frontend&sort=name")
	p.press("j", kb.Enter)
	p.until(`document.activeElement.localName == "h1" && document.activeElement.innerText == "OCIRepository shop/frontend"`)
	p.press("s") // it is suspended
	p.until(said + ` == "OCIRepository shop/frontend: resumed."`)
	p.press("u")
	p.until(names + ` == "shop/frontend shop/frontend"`) // as it was left
}
