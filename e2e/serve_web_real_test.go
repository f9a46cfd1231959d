package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// A sourceServer is a headgate serve with the source GitRepository shop/app, which has its own
// repository.
type sourceServer struct {
	*serveProcess
	repo string // local repository that replaces the origin of app
}

const appDocument = `apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app, namespace: shop}
spec: {interval: 1h, url: "https://git.example.com/app.git", ref: {branch: main}}
`

// serveSources starts headgate serve on loopback with the source GitRepository shop/app.
func serveSources(t *testing.T, args ...string) *sourceServer {
	t.Helper()
	repo := t.TempDir()
	s := &sourceServer{newServeProcess(t, append([]string{"--from", "https://git.example.com/app.git=" + repo}, args...)...), repo}
	s.git("init", "-q", "-b", "main")
	s.commit("first")
	write(t, filepath.Join(s.sources, "app.yaml"), appDocument)
	s.start()
	return s
}

func (s *sourceServer) git(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = s.repo, testenv.GitEnv(s.t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit creates a commit with a file called name and returns its hash.
func (s *sourceServer) commit(name string) string {
	s.t.Helper()
	write(s.t, filepath.Join(s.repo, name+".txt"), name)
	s.git("add", ".")
	s.git("commit", "-q", "-m", name)
	return s.git("rev-parse", "HEAD")
}

// TestServeWebReal tests the page with a real server: reconcile, suspend, resume, files, links, an
// invalid document, an unreachable origin, and a restart of the server.
func TestServeWebReal(t *testing.T) {
	t.Parallel()
	s := serveSources(t)
	p := newTab(t)
	p.open(s.url + "/ui/")
	p.waitText("shop/app")
	p.waitUntil(tableRow("shop/app") + `.innerText.includes("Ready") && ` + isLive)
	second := s.commit("second")
	p.click(`[data-action=reconcile]`)
	p.waitUntil(announcement + `.startsWith("GitRepository shop/app: a new artifact was stored after")`)
	p.waitText(second[:8])
	p.click(`[data-action=reconcile]`)
	p.waitUntil(announcement + `.startsWith("GitRepository shop/app: nothing has changed after")`)
	p.click(`[data-action=suspend]`)
	p.waitUntil(`document.activeElement.name == "by"`)
	p.press("Ada", kb.Tab, "not today", kb.Tab, kb.Enter)
	p.waitText("Suspended by Ada: not today")

	p.click(`tbody th a`)
	p.waitText("main@sha1:" + second)
	p.waitText("https://git.example.com/app.git")
	p.waitText("kind: GitRepository")
	p.waitUntil(`document.body.innerText.includes("NewArtifact") && document.body.innerText.includes("unchanged")`) // events and runs
	eval[bool](p, `[...document.querySelectorAll("button")].find((b) => b.innerText == "Show the files").click() ?? true`)
	p.waitText("second.txt")
	for _, link := range eval[[]string](p, `[...document.querySelectorAll("a[download]")].map((a) => a.href)`) {
		if status := eval[int](p, `(() => { const q = new XMLHttpRequest(); q.open("HEAD", `+toJSON(link)+`, false); q.send(); return q.status })()`); status != 200 {
			t.Errorf("%s: %d", link, status)
		}
	}
	p.click(`[data-action=resume]`)
	p.waitUntil(`document.querySelector("[data-action=suspend]")`)

	write(t, filepath.Join(s.sources, "app.yaml"), strings.Replace(appDocument, "app.git", "gone.git", 1)+"---\n"+strings.NewReplacer("app, ", "other, ", "https://git.example.com/app.git", "http://127.0.0.1:1/x.git").Replace(appDocument))
	write(t, filepath.Join(s.sources, "bad.yaml"), "kind: [\n")
	p.open(s.url + "/ui/")
	p.waitText("Problems in documents")
	p.waitText("bad.yaml")
	p.waitUntil(tableRow("shop/other") + `?.innerText.includes("connection refused")`)

	s.end(syscall.SIGTERM)
	p.waitUntil(isDisconnected)
	write(t, filepath.Join(s.sources, "bad.yaml"), "")
	write(t, filepath.Join(s.sources, "app.yaml"), appDocument)
	s.start()
	p.waitUntil(isLive)
	p.waitUntil(tableRow("shop/app") + `?.innerText.includes("Ready")`)
	p.waitUntil(`!document.body.innerText.includes("Problems in documents")`)
}

// TestServeWebTokens tests the page of a server with authentication. The page asks for a token,
// shows what the token permits, and hides it from scripts.
func TestServeWebTokens(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), `tokens:
- {name: ada, token: `+adminToken+`}
- {name: viewer, token: `+viewerToken+`, may: [read]}
- {name: ci, token: `+scopedToken+`, namespaces: [team-*]}
`)
	s := serveSources(t, "--tokens", file)
	p := newTab(t)
	p.open(s.url + "/ui/")
	p.waitUntil(`document.activeElement.name == "token"`)
	p.checkView("login")
	p.press("wrong-token-0123456789", kb.Enter)
	p.waitText("This token is not known.")
	p.press(viewerToken, kb.Enter)
	p.waitText("shop/app")
	p.waitText("Read-only: viewer may look at sources and change nothing.")
	p.waitUntil(tableRow("shop/app") + `.innerText.includes("Ready")`)
	actions := `document.querySelectorAll("main :is([data-action=reconcile], [data-action=suspend], [data-action=resume])").length`
	testenv.Equal(t, eval[int](p, actions), 0, "buttons of who may only look")
	p.click(`tbody th a`)
	p.waitText("kind: GitRepository")
	testenv.Equal(t, eval[int](p, actions), 0, "buttons of who may only look")
	p.click("#session button")
	p.waitUntil(`document.activeElement.name == "token"`)
	if eval[bool](p, `document.body.innerText.includes("shop/app")`) {
		t.Error("who has signed out sees sources")
	}
	p.press(scopedToken, kb.Enter)
	p.waitText("You may not do this") // the source shown before
	p.click(`nav a[href="#/"]`)
	p.waitText("There are no sources.") // that this token may see
	p.click("#session button")
	p.waitUntil(`document.activeElement.name == "token"`)
	p.press(adminToken, kb.Enter)
	p.waitText("shop/app")
	p.click(`[data-action=suspend]`)
	p.waitUntil(`document.querySelector("dialog[open]") && !document.querySelector("dialog [name=by]")`) // the server knows the user
	p.write("dialog [name=reason]", "not today")
	p.click("dialog .primary")
	p.waitText("Suspended by ada: not today")
	if leaked := eval[string](p, `document.cookie + location.href + JSON.stringify({...localStorage, ...sessionStorage})`); leaked != s.url+"/ui/#/{}" {
		t.Errorf("scripts can read %s", leaked)
	}
}

// TestServeWebHostile checks that text from documents, origins and callers becomes neither markup
// nor an external link, and that invisible characters are made visible.
func TestServeWebHostile(t *testing.T) {
	t.Parallel()
	const (
		script = "<script>alert(1)</script>"
		image  = "<img src=x onerror=alert(1)>"
		bidi   = "safe\u202egnp.exe"
		escape = "\x1b]0;title\x07"
	)
	sources := sampleSources()
	bad := sources[0]
	bad.Name, bad.Namespace, bad.Message, bad.Origin = image, bidi, script+escape+"\nsecond line", "javascript:alert(1)"
	bad.Revision, bad.Reason, bad.Interval, bad.Phase = `"><svg onload=alert(1)>`, script, image, "__proto__"
	bad.URL, bad.Hook, bad.Document = "javascript:alert(1)", "javascript:alert(1)", "# "+script+escape+bidi
	bad.Blockers = []string{"javascript:alert(1)/" + image + "/x"}
	artifact := *bad.Artifact
	artifact.Path, artifact.URL, artifact.Metadata = "javascript:alert(1)//x/y", "javascript:alert(1)", map[string]string{script: image}
	bad.Artifact = &artifact
	bad.Conditions = []source.Condition{{Type: script, Status: "__proto__", Reason: image, Message: bidi}}
	s := startFakeAPI(t, append(sources, bad)...)
	key := keyOf(bad.Kind, bad.Namespace, bad.Name)
	s.runs[key] = []api.Run{{Number: 1, Trigger: image, Outcome: "toString", Error: script + bidi}}
	s.events = []api.Event{{ID: 1, Event: source.Event{InvolvedObject: source.ObjectReference{Kind: image, Namespace: "..", Name: script}, Severity: "constructor", Message: script + escape, Reason: bidi}}}
	s.files = []api.File{{Path: image + bidi}}
	s.defects = []string{script + bidi}

	p := newTab(t)
	const bidiShown = "safe⟨U+202E⟩gnp.exe"
	address := "#/sources/GitRepository/safe%E2%80%AEgnp.exe/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
	p.checkHostileText(s.url+"/ui/", []struct{ path, shows string }{
		{"", image}, {"#/?q=%3Cscript%3E", image}, {"#/?state=__proto__&sort=constructor&page=-7&kind=%3Cimg%3E", "No source matches"}, {address, script + "⟨U+001B⟩]0;title⟨U+0007⟩"}, {address, bidiShown},
		{"#/events", image}, {"#/events?severity=%22%3E%3Cscript%3E", "There are no events yet"}, {"#/%zz", "nothing at this address"}, {"#/sources/../../x", "alone has no address"}, {"#/sources/a/b", "nothing at this address"},
	})
	p.openList(s, address)
	eval[bool](p, `[...document.querySelectorAll("button")].find((b) => b.innerText == "Show the files").click() ?? true`)
	p.waitText(image + bidiShown)
	p.click(`[data-action=suspend]`)
	p.waitUntil(`document.querySelector("dialog h2")?.innerText.includes(` + toJSON(image) + `)`)
	p.press(kb.Escape)
}

// TestServeWebManySources tests filters, sorting, pages and a burst of changes with ten thousand sources.
func TestServeWebManySources(t *testing.T) {
	t.Parallel()
	const n = 10_000
	model := sampleSources()[5]
	var sources []api.Source
	for i := range n {
		one := model
		one.Namespace, one.Name = fmt.Sprintf("team-%02d", i%40), fmt.Sprintf("app-%05d", i)
		one.Document, one.Conditions = "", nil
		sources = append(sources, one)
	}
	s := startFakeAPI(t, sources...)
	p := newTab(t)
	p.open(s.url + "/ui/")
	p.waitUntil(`document.querySelectorAll("tbody tr").length == 50`)
	p.waitText("1 to 50 of 10,000 sources")
	find := func(text string) {
		eval[bool](p, `(() => { const q = document.querySelector("[name=q]"); q.value = `+toJSON(text)+`; return q.dispatchEvent(new Event("input")) })()`)
	}
	find("app-07777")
	p.waitUntil(listedNames + ` == "team-17/app-07777"`)
	find("")
	p.click("thead th:nth-child(5) button")
	p.openList(s, "#/?page=200")
	p.waitText("9,951 to 10,000 of 10,000 sources")
	p.press("p")
	p.waitText("9,901 to 9,950 of 10,000 sources")
	p.waitUntil(`location.hash == "#/?page=199"`)
	for i := range 2000 { // a burst, mostly on other pages
		s.edit(keyOf(model.Kind, fmt.Sprintf("team-%02d", i%40), fmt.Sprintf("app-%05d", i)), func(one *api.Source) { one.Ready, one.Message = "False", "out of order" })
	}
	p.waitUntil(`document.querySelector("[data-state=not-ready]").innerText == "Not ready 2,000"`)
	p.waitText("9,901 to 9,950 of 10,000 sources") // the page stays the same
	p.do(chromedp.Focus(chromedp.CSS("[aria-label=Pages] button")))
	p.press(kb.Enter)
	p.waitText("9,851 to 9,900 of 10,000 sources")
}

// TestServeWebLook checks that every view has enough contrast in both colour schemes, fits 320
// pixels without horizontal scrolling, and is accessible to assistive technology.
func TestServeWebLook(t *testing.T) {
	t.Parallel()
	s := startSampleAPI(t)
	p := newTab(t)
	p.checkViews(map[string]string{
		"list": "", "failing": "#/sources/" + checkout, "suspended": "#/sources/OCIRepository/shop/frontend", "blocked": "#/sources/PkgChart/shop/frontend",
		"events": "#/events", "none": "#/nothing", "empty": "#/?q=nothing",
	}, func(path string) {
		p.openList(s, path)
		eval[bool](p, `[...document.querySelectorAll("button")].find((b) => b.innerText == "Show the files")?.click() ?? true`)
		eval[bool](p, `document.querySelector("[data-action=revision]")?.click() ?? true`)
	})
	p.setViewport(640, 400, "dark") // 1280 × 800 at 200 %
	p.openList(s, "")
	p.click(`[data-action=suspend]`)
	p.waitUntil(`document.querySelector("dialog[open]")`)
	p.checkView("dialog")
	p.setViewport(320, 640, "light")
	p.checkView("dialog, small")
	p.press(kb.Escape)
	p.click("#keys")
	p.waitUntil(`document.querySelector("dialog[open]")`)
	p.checkView("keys, small")
	p.press(kb.Escape)
	p.click(`[data-action=reconcile]`)
	p.waitUntil(announcement)
	p.checkView("result, small")
	if moving := eval[[]string](p, `document.getAnimations().map((a) => a.animationName)`); len(moving) > 0 {
		t.Errorf("who wants less motion sees %q", moving)
	}
}

var updateImage = flag.Bool("update-image", false, "write the picture of the page in docs/images anew")

// TestServeWebShapes checks that states differ in shape, not only in colour.
func TestServeWebShapes(t *testing.T) {
	t.Parallel()
	s := startSampleAPI(t)
	p := newTab(t)
	p.setViewport(1200, 800, "light")
	p.openList(s, "")
	if *updateImage {
		image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		must(t, os.WriteFile("../docs/images/serve.png", image, 0o644))
	}
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

// TestServeWebPrefix checks that the page and its links to artifacts work below a path prefix,
// because all its URLs are relative.
func TestServeWebPrefix(t *testing.T) {
	t.Parallel()
	s := startSampleAPI(t)
	front := startReverseProxy(t, s.url, func(server *httputil.ReverseProxy) http.Handler { return http.StripPrefix("/team/sources", server) })
	base := front.URL + "/team/sources/"
	p := newTab(t)
	p.open(base + "ui") // without the slash
	p.click(`[data-action=reconcile][aria-label$="payments/checkout"]`)
	p.waitUntil(announcement + `.endsWith("reconciling.")`)
	p.waitUntil(isLive)
	p.open(base + "ui/#/sources/" + checkout)
	p.waitText("look at Secret")
	p.waitText(base + "hook/" + checkout)
	if elsewhere := eval[[]string](p, `[...performance.getEntriesByType("resource").map((e) => e.name), ...[...document.querySelectorAll("a")].map((a) => a.href)].filter((n) => !n.startsWith(`+toJSON(base)+`))`); len(elsewhere) > 0 {
		t.Errorf("requests and links elsewhere: %q", elsewhere)
	}
}
