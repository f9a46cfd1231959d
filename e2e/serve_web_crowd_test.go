package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// Nothing that documents, origins and callers say becomes markup or a link to
// anywhere else, and what cannot be seen is shown.
func TestServeWebHostile(t *testing.T) {
	const (
		script = "<script>alert(1)</script>"
		image  = "<img src=x onerror=alert(1)>"
		bidi   = "safe\u202egnp.exe"
		escape = "\x1b]0;title\x07"
	)
	sources := stagedSources()
	bad := sources[0]
	bad.Name, bad.Namespace, bad.Message, bad.Origin = image, bidi, script+escape+"\nsecond line", "javascript:alert(1)"
	bad.Revision, bad.Reason, bad.Interval, bad.Phase = `"><svg onload=alert(1)>`, script, image, "__proto__"
	bad.URL, bad.Hook, bad.Document = "javascript:alert(1)", "javascript:alert(1)", "# "+script+escape+bidi
	bad.Blockers = []string{"javascript:alert(1)/" + image + "/x"}
	artifact := *bad.Artifact
	artifact.Path, artifact.URL, artifact.Metadata = "javascript:alert(1)//x/y", "javascript:alert(1)", map[string]string{script: image}
	bad.Artifact = &artifact
	bad.Conditions = []source.Condition{{Type: script, Status: "__proto__", Reason: image, Message: bidi}}
	s := keep(t, append(sources, bad)...)
	key := keyOf(bad.Kind, bad.Namespace, bad.Name)
	s.runs[key] = []api.Run{{Number: 1, Trigger: image, Outcome: "toString", Error: script + bidi}}
	s.events = []api.Event{{ID: 1, Event: source.Event{InvolvedObject: source.ObjectReference{Kind: image, Namespace: "..", Name: script}, Severity: "constructor", Message: script + escape, Reason: bidi}}}
	s.files = []api.File{{Path: image + bidi}}
	s.defects = []string{script + bidi}

	p := newTab(t)
	const bidiShown = "safe⟨U+202E⟩gnp.exe"
	address := "#/sources/GitRepository/safe%E2%80%AEgnp.exe/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
	for _, view := range []struct{ path, shows string }{
		{"", image}, {"#/?q=%3Cscript%3E", image}, {"#/?state=__proto__&sort=constructor&page=-7&kind=%3Cimg%3E", "No source is like that"}, {address, script + "⟨U+001B⟩]0;title⟨U+0007⟩"}, {address, bidiShown},
		{"#/events", image}, {"#/events?severity=%22%3E%3Cscript%3E", "Nothing happened yet"}, {"#/%zz", "nothing at this address"}, {"#/sources/../../x", "alone has no address"}, {"#/sources/a/b", "nothing at this address"},
	} {
		p.open("about:blank")
		p.open(s.url + "/ui/" + view.path)
		p.sees(view.shows)
		if n := eval[int](p, `document.querySelectorAll("main script, main img, main svg, main style, main iframe").length`); n != 0 {
			t.Errorf("%s: %d elements were made of text", view.path, n)
		}
		if shown := eval[string](p, `document.body.innerText`); strings.ContainsAny(shown, "\u202e\x1b\x07") {
			t.Errorf("%s: control characters are on the page", view.path)
		}
		if elsewhere := eval[[]string](p, `[...document.querySelectorAll("a")].map((a) => a.href).filter((href) => !href.startsWith(location.origin))`); len(elsewhere) > 0 {
			t.Errorf("%s: links to %q", view.path, elsewhere)
		}
	}
	p.lists(s, address)
	eval[bool](p, `[...document.querySelectorAll("button")].find((b) => b.innerText == "Show the files").click() ?? true`)
	p.sees(image + bidiShown)
	p.click(`[data-action=suspend]`)
	p.until(`document.querySelector("dialog h2")?.innerText.includes(` + encoded(image) + `)`)
	p.press(kb.Escape)
}

// Ten thousand sources: a page of them is there soon, filters and changes cost
// little. How long it takes is said, not judged.
func TestServeWebCrowd(t *testing.T) {
	const n = 10_000
	model := stagedSources()[5]
	var sources []api.Source
	for i := range n {
		one := model
		one.Namespace, one.Name = fmt.Sprintf("team-%02d", i%40), fmt.Sprintf("app-%05d", i)
		one.Document, one.Conditions = "", nil
		sources = append(sources, one)
	}
	s := keep(t, sources...)
	p := newTab(t)
	started := time.Now()
	p.open(s.url + "/ui/")
	p.until(`document.querySelectorAll("tbody tr").length == 50`)
	first := time.Since(started)
	p.sees("1 to 50 of 10,000 sources")
	whole := time.Since(started)
	timed := func(act string) time.Duration { // of what runs at once, layout with it
		return time.Duration(eval[float64](p, `(() => { const t = performance.now(); `+act+`; document.body.offsetHeight; return performance.now() - t })()`) * float64(time.Millisecond))
	}
	find := timed(`const q = document.querySelector("[name=q]"); q.value = "app-07777"; q.dispatchEvent(new Event("input"))`)
	p.until(names + ` == "team-17/app-07777"`)
	all := timed(`const q = document.querySelector("[name=q]"); q.value = ""; q.dispatchEvent(new Event("input"))`)
	sorted := timed(`document.querySelector("thead th:nth-child(5) button").click()`)
	heap := eval[float64](p, `performance.memory.usedJSHeapSize`) / (1 << 20)
	p.lists(s, "#/?page=200")
	p.sees("9,951 to 10,000 of 10,000 sources")
	p.press("p")
	p.sees("9,901 to 9,950 of 10,000 sources")
	p.until(`location.hash == "#/?page=199"`)
	eval[int](p, `window.changes = 0, new MutationObserver(() => changes++).observe(document.querySelector("tbody"), {childList: true}), 0`)
	for i := range 2000 { // a burst, most of it elsewhere
		s.edit(keyOf(model.Kind, fmt.Sprintf("team-%02d", i%40), fmt.Sprintf("app-%05d", i)), func(one *api.Source) { one.Ready, one.Message = "False", "out of order" })
	}
	p.until(`document.querySelector("[data-state=not-ready]").innerText == "Not ready 2,000"`)
	p.sees("9,901 to 9,950 of 10,000 sources") // the reader stays where they are
	t.Logf("%d sources: rows after %v, all after %v; find %v, all again %v, other order %v; heap %.0f MiB; %d draws for a burst of 2000 changes",
		n, first, whole, find, all, sorted, heap, eval[int](p, "changes"))
	p.do(chromedp.Focus(chromedp.CSS("[aria-label=Pages] button")))
	p.press(kb.Enter)
	p.sees("9,851 to 9,900 of 10,000 sources")
}
