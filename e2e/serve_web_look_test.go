package e2e

import (
	"bytes"
	"flag"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Every view has enough contrast, light and dark, fits 320 pixels without
// scrolling sideways, and says to assistive technology what there is.
func TestServeWebLook(t *testing.T) {
	s := keepStaged(t)
	p := newTab(t)
	views := map[string]string{
		"list": "", "failing": "#/sources/" + checkout, "suspended": "#/sources/OCIRepository/shop/frontend", "blocked": "#/sources/PkgChart/shop/frontend",
		"events": "#/events", "none": "#/nothing", "empty": "#/?q=nothing",
	}
	for name, path := range views {
		for _, scheme := range []string{"light", "dark"} {
			p.look(1100, 800, scheme)
			p.lists(s, path)
			eval[bool](p, `[...document.querySelectorAll("button")].find((b) => b.innerText == "Show the files")?.click() ?? true`)
			eval[bool](p, `document.querySelector("[data-action=revision]")?.click() ?? true`)
			p.examine(name + ", " + scheme)
			p.look(320, 640, scheme)
			p.examine(name + ", small, " + scheme)
		}
	}
	p.look(640, 400, "dark") // 1280 × 800 at 200 %
	p.lists(s, "")
	p.click(`[data-action=suspend]`)
	p.until(`document.querySelector("dialog[open]")`)
	p.examine("dialog")
	p.look(320, 640, "light")
	p.examine("dialog, small")
	p.press(kb.Escape)
	p.click("#keys")
	p.until(`document.querySelector("dialog[open]")`)
	p.examine("keys, small")
	p.press(kb.Escape)
	p.click(`[data-action=reconcile]`)
	p.until(said)
	p.examine("result, small")
	if moving := eval[[]string](p, `document.getAnimations().map((a) => a.animationName)`); len(moving) > 0 {
		t.Errorf("who wants less motion sees %q", moving)
	}
}

// States differ in shape, not in colour alone.
func TestServeWebShapes(t *testing.T) {
	s := keepStaged(t)
	p := newTab(t)
	p.lists(s, "")
	shapes := eval[map[string]string](p, `Object.fromEntries([...document.querySelectorAll("tbody .badge")].map((b) => {
		const s = getComputedStyle(b, "::before");
		return [b.textContent, [s.borderRadius, s.transform, s.borderTopWidth, s.borderRightColor == s.borderLeftColor, s.backgroundColor == "rgba(0, 0, 0, 0)"].join(" ")];
	}))`)
	seen := map[string]string{}
	for _, state := range []string{"Ready", "Not ready", "Stalled", "Suspended", "Reconciling"} {
		shape := shapes[state]
		if other := seen[shape]; other != "" || shape == "" {
			t.Errorf("%s looks like %s: %q", state, other, shape)
		}
		seen[shape] = state
	}
}

// All addresses are relative: the page works below a prefix, and so do its links to artifacts.
func TestServeWebPrefix(t *testing.T) {
	s := keepStaged(t)
	target, err := url.Parse(s.url)
	check(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(q *httputil.ProxyRequest) { q.SetURL(target) }, FlushInterval: -1}
	front := httptest.NewServer(http.StripPrefix("/team/sources", proxy))
	t.Cleanup(front.Close)
	base := front.URL + "/team/sources/"
	p := newTab(t)
	p.open(base + "ui") // without the slash
	p.click(`[data-action=reconcile][aria-label$="payments/checkout"]`)
	p.until(said + `.endsWith("reconciling.")`)
	p.until(isLive)
	p.open(base + "ui/#/sources/" + checkout)
	p.sees("look at Secret")
	p.sees(base + "hook/" + checkout)
	if elsewhere := eval[[]string](p, `[...performance.getEntriesByType("resource").map((e) => e.name), ...[...document.querySelectorAll("a")].map((a) => a.href)].filter((n) => !n.startsWith(`+encoded(base)+`))`); len(elsewhere) > 0 {
		t.Errorf("requests and links elsewhere: %q", elsewhere)
	}
}

var updateImage = flag.Bool("update-image", false, "write the picture of the page in docs/images anew")

// The picture of the README is small, and as large as the page now.
func TestServeWebImage(t *testing.T) {
	const width, height = 1000, 640
	s := keepStaged(t)
	p := newTab(t)
	p.look(width, height, "light")
	p.lists(s, "")
	now, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	check(t, err)
	const file = "../docs/images/serve.png"
	if *updateImage {
		check(t, os.WriteFile(file, now, 0o644))
	}
	kept, err := os.ReadFile(file)
	check(t, err)
	for what, content := range map[string][]byte{"now": now, "kept": kept} {
		if size, err := png.DecodeConfig(bytes.NewReader(content)); err != nil || size.Width != width || size.Height != height || len(kept) > 100<<10 {
			t.Errorf("%s: %+v, %v, %d bytes", what, size, err, len(kept))
		}
	}
}
