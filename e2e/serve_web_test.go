package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

const (
	listedNames    = `[...document.querySelectorAll("tbody th a")].map((a) => a.textContent).join(" ")`
	announcement   = `document.querySelector("#announcements").textContent`
	isLive         = `document.querySelector("#live").textContent == "live"`
	isDisconnected = `/^(reconnecting|stale since .*)$/.test(document.querySelector("#live").textContent)` // the second text appears after some time
	checkout       = "GitRepository/payments/checkout"
)

// tableRow returns a JavaScript expression for the table row of a source.
func tableRow(name string) string {
	return `[...document.querySelectorAll("tbody tr")].find((r) => r.querySelector("th a").textContent == ` + toJSON(name) + `)`
}

// openList opens a view and waits until it is complete and live.
func (p *tab) openList(s *fakeServeAPI, query string) {
	p.t.Helper()
	p.open("about:blank")
	p.open(s.url + "/ui/" + query)
	p.waitUntil(isLive + ` && !document.querySelector("main").innerText.includes("Loading")`)
}

// TestServeWebList checks that the list shows every source with its state, and
// the reason if it is not ready.
func TestServeWebList(t *testing.T) {
	t.Parallel()
	p := newTab(t)
	s := startFakeAPI(t, sampleSources()...) // created late, because the sources have relative times
	p.openList(s, "")
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
	p.waitText("Suspended by ada: not before the sale ends")
	p.waitText("Waits for PkgRepository/shop/charts")
	p.waitUntil(`document.title.startsWith("(2) Sources")`) // two sources need attention
	full := "main@sha1:" + strings.Repeat("4f1c0a9e", 5)
	if title := eval[string](p, tableRow("payments/checkout")+`.querySelector("[data-action=revision]").title`); title != full {
		t.Errorf("the title of the revision is %q", title)
	}
	eval[bool](p, tableRow("payments/checkout")+`.querySelector("[data-action=revision]").click() ?? true`)
	p.waitText(full)
	p.waitUntil(`document.querySelector("[data-action=revision][aria-expanded=true]")`)
	s.edit("GitRepository/shop/cart", func(one *api.Source) { one.Ready, one.Message = "False", "the disk is full" })
	p.waitText("the disk is full") // without a reload
	p.waitUntil(`document.title.startsWith("(3) Sources")`)
	s.remove(checkout)
	p.waitUntil(`!document.body.innerText.includes("payments/checkout")`)
	p.waitText("1 to 6 of 6 sources")
	p.waitUntil(`document.querySelectorAll("section [hidden]:not(option)").length && !document.querySelector(".failures li")`)
	s.mu.Lock()
	s.defects = []string{"sources/shop.yaml: document 3: yaml: line 12: mapping values are not allowed here"}
	s.mu.Unlock()
	p.openList(s, "")
	p.waitText("Problems in documents")
	p.waitText("mapping values are not allowed here")
}

// TestServeWebFilter checks that the filter is part of the address, and that the
// address restores it.
func TestServeWebFilter(t *testing.T) {
	t.Parallel()
	s := startFakeAPI(t, sampleSources()...)
	p := newTab(t)
	p.openList(s, "")
	if got := eval[string](p, listedNames); got != "catalog/images payments/checkout shop/frontend shop/frontend catalog/search shop/cart shop/charts" { // failures first
		t.Fatalf("the list has %s", got)
	}
	p.write("[name=q]", "shop front")
	p.waitUntil(listedNames + ` == "shop/frontend shop/frontend"`)
	p.click(`[data-state=suspended]`)
	p.waitUntil(listedNames + ` == "shop/frontend"`)
	p.waitUntil(`location.hash == "#/?q=shop+front&state=suspended"`)
	p.openList(s, "#/?namespace=shop&kind=PkgRepository")
	p.waitUntil(listedNames + ` == "shop/charts" && document.querySelector("[name=kind]").value == "PkgRepository"`)
	p.openList(s, "#/?state=not-ready")
	p.waitUntil(listedNames + ` == "payments/checkout" && document.querySelector("[data-state=not-ready]").ariaPressed == "true"`)
	p.waitText("Ready 3") // the counts ignore the filter
	p.openList(s, "#/?sort=name")
	p.waitUntil(listedNames + `.startsWith("catalog/images catalog/search")`)
	p.click("thead th:nth-child(4) button")
	p.waitUntil(listedNames + `.startsWith("catalog/search shop/cart")`) // newest artifacts first
	p.click("thead th:nth-child(4) button")
	p.waitUntil(listedNames + `.endsWith("shop/cart catalog/search")`)
	p.waitUntil(`document.querySelector("thead th:nth-child(4)").ariaSort == "descending" && location.hash == "#/?sort=-artifact"`)
	p.write("[name=q]", "nothing like that")
	p.waitText("No source matches.")
}

// TestServeWebKeyboard checks that the page can be used with the keyboard only,
// by focus and by shortcuts.
func TestServeWebKeyboard(t *testing.T) {
	t.Parallel()
	s := startFakeAPI(t, sampleSources()...)
	p := newTab(t)
	p.openList(s, "#/?sort=name")
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
	testenv.Equal(t, strings.Join(order, "; "), want, "the order of the focus")
	at := func(name string) string { return `document.activeElement.textContent == ` + toJSON(name) }
	p.press("j")
	p.waitUntil(at("catalog/search"))
	p.press("j", "j", "k")
	p.waitUntil(at("payments/checkout"))
	p.press("r")
	p.waitUntil(announcement + ` == "GitRepository payments/checkout: reconciling."`)
	p.waitUntil(tableRow("payments/checkout") + `.innerText.includes("running")`)
	p.waitUntil(at("payments/checkout")) // the row was redrawn, the focus is unchanged
	p.press("s")
	p.waitUntil(`document.querySelector("dialog[open]") && document.activeElement.name == "by"`)
	p.press("r", kb.Escape)
	p.waitUntil(`!document.querySelector("dialog") && ` + at("payments/checkout"))
	testenv.Equal(t, strings.Join(s.requestLog(), " "), "reconcile "+checkout, "the server was asked for")
	p.pressKey("/")
	p.waitUntil(`document.activeElement.name == "q" && document.activeElement.value == ""`)
	p.press("search?")
	p.waitUntil(`document.activeElement.value == "search?" && !document.querySelector("dialog")`) // shortcuts are plain letters in a text field
	p.press(kb.Tab, kb.Tab, kb.Tab, "?")
	p.waitUntil(`document.querySelector("dialog[open]")?.innerText.includes("Reconcile the source")`)
	p.click("#keys-on")
	p.press(kb.Escape)
	p.pressKey("/")
	p.press("?")
	p.waitUntil(`document.activeElement.dataset.state == "" && !document.querySelector("dialog")`) // shortcuts are off
	p.click("#keys")
	p.click("#keys-on")
	p.press(kb.Escape)
	p.openList(s, "#/?q=frontend&sort=name")
	p.press("j", kb.Enter)
	p.waitUntil(`document.activeElement.localName == "h1" && document.activeElement.innerText == "OCIRepository shop/frontend"`)
	p.press("s") // resumes it, because it is suspended
	p.waitUntil(announcement + ` == "OCIRepository shop/frontend: resumed."`)
	p.press("u")
	p.waitUntil(listedNames + ` == "shop/frontend shop/frontend"`) // the list keeps its filter
}

// TestServeWebReconcile checks that the page shows and announces a reconciliation
// while it runs.
func TestServeWebReconcile(t *testing.T) {
	t.Parallel()
	s := startFakeAPI(t, sampleSources()...)
	p := newTab(t)
	p.openList(s, "")
	p.click(`[data-action=reconcile][aria-label$="payments/checkout"]`)
	p.waitUntil(tableRow("payments/checkout") + `.innerText.includes("running")`)
	p.waitUntil(tableRow("payments/checkout") + `.querySelector("[data-action=reconcile]").ariaDisabled == "true"`)
	p.waitUntil(`document.activeElement.dataset.action == "reconcile"`)
	p.click(`[data-action=reconcile][aria-label$="payments/checkout"]`) // has no effect now
	revision := "main@sha1:" + strings.Repeat("0d1e2f3a", 5)
	s.endRun(checkout, api.Run{Number: 45, Trigger: "request", Started: time.Now(), Took: 1.5, Outcome: "stored", Revision: revision}, func(one *api.Source) {
		one.Ready, one.Revision, one.Failures = "True", revision, 0
	})
	p.waitUntil(announcement + ` == "GitRepository payments/checkout: a new artifact was stored after 1.5 s: main@sha1:0d1e2f3a…."`)
	p.waitUntil(tableRow("payments/checkout") + `.innerText.includes("Ready") && ` + tableRow("payments/checkout") + `.innerText.includes("0d1e2f3a")`)
	testenv.Equal(t, len(s.requestLog()), 1, "requests")
	p.click(`[data-action=reconcile][aria-label$="shop/cart"]`)
	p.waitUntil(tableRow("shop/cart") + `.innerText.includes("running")`)
	s.endRun("GitRepository/shop/cart", api.Run{Number: 42, Trigger: "request", Started: time.Now(), Took: 0.02, Outcome: "failed", Error: "resolve v2: connection refused"}, func(one *api.Source) {
		one.Ready, one.Message = "False", "resolve v2: connection refused"
	})
	p.waitUntil(announcement + ` == "GitRepository shop/cart: failed after 20 ms: resolve v2: connection refused."`)
	s.mu.Lock()
	delete(s.sources, "GitRepository/catalog/search")
	s.mu.Unlock()
	p.click(`[data-action=reconcile][aria-label$="catalog/search"]`)
	p.waitUntil(announcement + ` == "GitRepository catalog/search: The server refused this (404): there is no such source"`)
}

// TestServeWebSuspend checks that suspend asks for a name and a reason, that
// other users see both, and that resume ends the suspension.
func TestServeWebSuspend(t *testing.T) {
	t.Parallel()
	s := startFakeAPI(t, sampleSources()...)
	p, other := newTab(t), newTab(t)
	other.openList(s, "#/sources/GitRepository/shop/cart")
	p.openList(s, "")
	p.click(`[data-action=suspend][aria-label$="shop/cart"]`)
	p.waitUntil(`document.querySelector("dialog[open] h2")?.innerText == "Suspend GitRepository shop/cart"`)
	p.write("dialog [name=by]", "Grace")
	p.write("dialog [name=reason]", "the branch is broken")
	p.click("dialog .primary")
	p.waitUntil(announcement + ` == "GitRepository shop/cart: suspended."`)
	p.waitUntil(tableRow("shop/cart") + `.innerText.includes("Suspended by Grace: the branch is broken")`)
	p.waitUntil(tableRow("shop/cart") + `.contains(document.activeElement) || document.activeElement.localName == "h1"`)
	other.waitText("by Grace: the branch is broken")
	other.waitUntil(`!document.querySelector("[data-action=reconcile]")`)
	other.click(`[data-action=resume]`)
	p.waitUntil(tableRow("shop/cart") + `.innerText.includes("Ready")`)
	s.edit("GitRepository/shop/cart", func(one *api.Source) { one.Suspended, one.Phase = true, "suspended" })
	other.waitText("Suspended by its document: spec.suspend is true.")
	other.waitUntil(`!document.querySelector("main [data-action]:is([data-action=reconcile], [data-action=suspend], [data-action=resume])")`)
}

// TestServeWebSource checks that the view of a source shows all its data, and
// updates live.
func TestServeWebSource(t *testing.T) {
	t.Parallel()
	s := startFakeAPI(t, sampleSources()...)
	for i := range 1200 {
		s.files = append(s.files, api.File{Path: fmt.Sprintf("manifests/%04d.yaml", i), Size: int64(i)})
	}
	s.files = append(s.files, api.File{Path: "run.sh", Size: 70_000, Executable: true}, api.File{Path: "vendor", Dir: true})
	p := newTab(t)
	p.openList(s, "#/sources/"+checkout)
	hash := strings.Repeat("b5bb9d80", 8)
	for _, want := range []string{
		"GitRepository payments/checkout", "Not ready", "GitOperationFailed", "look at Secret payments/git", "main@sha1:" + strings.Repeat("4f1c0a9e", 5), "https://git.example.com/payments/checkout.git",
		"sha256:" + hash, "47.1 KiB", "FetchFailed", "ArtifactInStorage", "url: https://git.example.com/payments/checkout.git", s.url + "/hook/" + checkout, "10m0s",
		"There are no runs yet.", "There are no events yet.",
	} {
		p.waitText(want)
	}
	dir := s.url + "/gitrepository/payments/checkout/"
	if got, want := eval[string](p, `[...document.querySelectorAll("a[download]")].map((a) => a.href).join(" ")`), dir+hash+"/checkout.tar.gz "+dir+"latest.tar.gz"; got != want {
		t.Errorf("links to %s, want %s", got, want)
	}
	p.click(`[aria-label="Copy the digest"]`)
	p.waitUntil(announcement + ` == "The digest was copied."`)

	const files = `[...document.querySelectorAll("caption")].find((c) => c.innerText == "Entries of the artifact").parentElement.querySelectorAll("tbody tr")`
	more := `[...document.querySelectorAll("button")].find((b) => ["Show the files", "Show more"].includes(b.innerText) && b.closest("section").innerText.startsWith("Files"))`
	eval[bool](p, more+`.click() ?? true`)
	p.waitUntil(files + `.length == 100`)
	eval[bool](p, more+`.click() ?? true`)
	p.waitUntil(files + `.length == 200`)
	p.waitText("200 of at least 500")
	eval[bool](p, `[...document.querySelectorAll("input[type=search]")].find((i) => i.labels[0].innerText == "Find a file").focus() ?? true`)
	p.press("run.sh")
	p.waitUntil(files + `.length == 1`)
	p.waitText("68.4 KiB")
	p.waitText("executable")

	s.mu.Lock()
	s.events = append(s.events, api.Event{ID: 7, Event: source.Event{InvolvedObject: source.ObjectReference{Kind: "GitRepository", Namespace: "payments", Name: "checkout"},
		Severity: "info", Timestamp: time.Now(), Reason: "NewArtifact", Message: "stored artifact for commit 'pay later'"}})
	s.mu.Unlock()
	revision := "main@sha1:" + strings.Repeat("0d1e2f3a", 5)
	s.endRun(checkout, api.Run{Number: 45, Trigger: "hook", Started: time.Now(), Took: 1.5, Outcome: "stored", Why: "the branch has moved"}, func(one *api.Source) {
		one.Ready, one.Revision, one.Message, one.Conditions = "True", revision, "stored", one.Conditions[1:2]
		changed := *one.Artifact
		changed.Digest = "sha256:" + strings.Repeat("c", 64)
		one.Artifact = &changed
		one.Document = "kind: GitRepository # anew\n"
	})
	for _, want := range []string{"pay later", "the branch has moved", revision, strings.Repeat("c", 64), "kind: GitRepository # anew"} {
		p.waitText(want)
	}
	p.waitUntil(`!document.body.innerText.includes("FetchFailed")`)
	p.open(s.url + "/ui/#/events")
	p.waitText("pay later")
	p.click("tbody th + td + td a")
	p.waitUntil(`document.querySelector("h1")?.innerText == "GitRepository payments/checkout"`)
	p.open(s.url + "/ui/#/sources/GitRepository/payments/nothing")
	p.waitText("there is no such source")
	p.open(s.url + "/ui/#/sources/PkgChart/shop/frontend")
	p.click(`a[href="#/sources/PkgRepository/shop/charts"]`) // the source that it waits for
	p.waitUntil(`document.querySelector("h1")?.innerText == "PkgRepository shop/charts"`)
}

// TestServeWebRestart checks that the page reports a lost server with the time,
// and shows the current state after the server is back.
func TestServeWebRestart(t *testing.T) {
	t.Parallel()
	s := startFakeAPI(t, sampleSources()...)
	p := newTab(t)
	p.openList(s, "")
	p.click(`[data-action=reconcile][aria-label$="shop/cart"]`)
	p.waitUntil(tableRow("shop/cart") + `.innerText.includes("running")`)
	s.restart(func() {
		p.waitUntil(isDisconnected)
		p.click(`[data-action=reconcile][aria-label$="catalog/search"]`)
		p.waitUntil(announcement + ` == "GitRepository catalog/search: The server does not answer. It may be down, or the network is. Try again."`)
		p.waitUntil(`/^stale since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/.test(document.querySelector("#live").textContent)`)
		s.remove(checkout)
		s.edit("GitRepository/shop/cart", func(one *api.Source) { one.Phase = "idle" })
	})
	p.waitUntil(isLive)
	p.waitUntil(listedNames + ` == "catalog/images shop/frontend shop/frontend catalog/search shop/cart shop/charts"`)
	p.waitUntil(tableRow("shop/cart") + `.querySelector("[data-action=reconcile]").ariaDisabled != "true"`)
}
