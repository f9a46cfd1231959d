package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A sourceServer keeps GitRepository shop/app, of a repository of its own.
type sourceServer struct {
	*servedStore
	repo string // that stands in for the origin of apps
}

const app = `apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app, namespace: shop}
spec: {interval: 1h, url: "https://git.example.com/app.git", ref: {branch: main}}
`

// serveSources starts headgate serve on loopback with the source GitRepository shop/app.
func serveSources(t *testing.T, args ...string) *sourceServer {
	t.Helper()
	repo := t.TempDir()
	s := &sourceServer{newServedStore(t, append([]string{"--from", "https://git.example.com/app.git=" + repo}, args...)...), repo}
	s.git("init", "-q", "-b", "main")
	s.commit("first")
	write(t, filepath.Join(s.sources, "app.yaml"), app)
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

// commit makes a commit with a file of that name and returns its hash.
func (s *sourceServer) commit(name string) string {
	s.t.Helper()
	write(s.t, filepath.Join(s.repo, name+".txt"), name)
	s.git("add", ".")
	s.git("commit", "-q", "-m", name)
	return s.git("rev-parse", "HEAD")
}

// The page of a server that does all of it: reconcile, suspend, resume, files,
// links, a document that cannot be read, an origin that is not there, and a
// server that is started anew.
func TestServeWebReal(t *testing.T) {
	s := serveSources(t)
	p := newTab(t)
	p.open(s.url + "/ui/")
	p.sees("shop/app")
	p.until(tableRow("shop/app") + `.innerText.includes("Ready") && ` + isLive)
	second := s.commit("second")
	p.click(`[data-action=reconcile]`)
	p.until(said + `.startsWith("GitRepository shop/app: a new artifact was stored after")`)
	p.sees(second[:8])
	p.click(`[data-action=reconcile]`)
	p.until(said + `.startsWith("GitRepository shop/app: nothing has changed after")`)
	p.click(`[data-action=suspend]`)
	p.until(`document.activeElement.name == "by"`)
	p.press("Ada", kb.Tab, "not today", kb.Tab, kb.Enter)
	p.sees("Suspended by Ada: not today")

	p.click(`tbody th a`)
	p.sees("main@sha1:" + second)
	p.sees("https://git.example.com/app.git")
	p.sees("kind: GitRepository")
	p.until(`document.body.innerText.includes("NewArtifact") && document.body.innerText.includes("unchanged")`) // events and runs
	eval[bool](p, `[...document.querySelectorAll("button")].find((b) => b.innerText == "Show the files").click() ?? true`)
	p.sees("second.txt")
	for _, link := range eval[[]string](p, `[...document.querySelectorAll("a[download]")].map((a) => a.href)`) {
		if status := eval[int](p, `(() => { const q = new XMLHttpRequest(); q.open("HEAD", `+encoded(link)+`, false); q.send(); return q.status })()`); status != 200 {
			t.Errorf("%s: %d", link, status)
		}
	}
	p.click(`[data-action=resume]`)
	p.until(`document.querySelector("[data-action=suspend]")`)

	write(t, filepath.Join(s.sources, "app.yaml"), strings.Replace(app, "app.git", "gone.git", 1)+"---\n"+strings.NewReplacer("app, ", "other, ", "https://git.example.com/app.git", "http://127.0.0.1:1/x.git").Replace(app))
	write(t, filepath.Join(s.sources, "bad.yaml"), "kind: [\n")
	p.open(s.url + "/ui/")
	p.sees("Problems of documents")
	p.sees("bad.yaml")
	p.until(tableRow("shop/other") + `?.innerText.includes("connection refused")`)

	s.end(syscall.SIGTERM)
	p.until(isCut)
	write(t, filepath.Join(s.sources, "bad.yaml"), "")
	write(t, filepath.Join(s.sources, "app.yaml"), app)
	s.start()
	p.until(isLive)
	p.until(tableRow("shop/app") + `?.innerText.includes("Ready")`)
	p.until(`!document.body.innerText.includes("Problems of documents")`)
}

// A server that asks who callers are: the page asks for a token, shows what it
// allows, and keeps it from scripts.
func TestServeWebTokens(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), `tokens:
- {name: ada, token: `+adminToken+`}
- {name: viewer, token: `+viewerToken+`, may: [read]}
- {name: ci, token: `+scopedToken+`, namespaces: [team-*]}
`)
	s := serveSources(t, "--tokens", file)
	p := newTab(t)
	p.open(s.url + "/ui/")
	p.until(`document.activeElement.name == "token"`)
	p.examine("login")
	p.press("wrong-token-0123456789", kb.Enter)
	p.sees("This token is not known.")
	p.press(viewerToken, kb.Enter)
	p.sees("shop/app")
	p.sees("Read-only: viewer may look at sources and change nothing.")
	p.until(tableRow("shop/app") + `.innerText.includes("Ready")`)
	actions := `document.querySelectorAll("main :is([data-action=reconcile], [data-action=suspend], [data-action=resume])").length`
	if n := eval[int](p, actions); n != 0 {
		t.Errorf("who may only look has %d buttons", n)
	}
	p.click(`tbody th a`)
	p.sees("kind: GitRepository")
	if n := eval[int](p, actions); n != 0 {
		t.Errorf("who may only look has %d buttons", n)
	}
	p.click("#session button")
	p.until(`document.activeElement.name == "token"`)
	if eval[bool](p, `document.body.innerText.includes("shop/app")`) {
		t.Error("who has signed out sees sources")
	}
	p.press(scopedToken, kb.Enter)
	p.sees("You may not do this") // the source that it was at
	p.click(`nav a[href="#/"]`)
	p.sees("There are no sources.") // that it may see
	p.click("#session button")
	p.until(`document.activeElement.name == "token"`)
	p.press(adminToken, kb.Enter)
	p.sees("shop/app")
	p.click(`[data-action=suspend]`)
	p.until(`document.querySelector("dialog[open]") && !document.querySelector("dialog [name=by]")`) // it is known who that is
	p.write("dialog [name=reason]", "not today")
	p.click("dialog .primary")
	p.sees("Suspended by ada: not today")
	if leaked := eval[string](p, `document.cookie + location.href + JSON.stringify({...localStorage, ...sessionStorage})`); leaked != s.url+"/ui/#/{}" {
		t.Errorf("scripts can read %s", leaked)
	}
}
