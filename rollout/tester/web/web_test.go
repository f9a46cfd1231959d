package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/web"
)

func serve(t *testing.T, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	web.Handler().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/ui/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/ui/", 200, "text/html; charset=utf-8"},
		{"GET", "/ui/app.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/ui/style.css", 200, "text/css; charset=utf-8"},
		{"GET", "/ui/icon.svg", 200, "image/svg+xml"},
		{"GET", "/ui", 308, ""},
		{"GET", "/ui/index.html", 404, ""}, // one address for one page
		{"GET", "/ui/nothing.js", 404, ""},
		{"GET", "/ui/../web.go", 404, ""},
		{"GET", "/ui//app.js", 404, ""},
		{"GET", "/ui/page/app.js", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/app.js", 404, ""},
		{"POST", "/ui/", 405, ""},
		{"PUT", "/ui/app.js", 405, ""},
		{"DELETE", "/ui/app.js", 405, ""},
		{"OPTIONS", "/ui/", 405, ""},
		{"POST", "/ui/nothing", 404, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			r := serve(t, c.method, c.path)
			if r.StatusCode != c.status {
				t.Errorf("status %d, want %d", r.StatusCode, c.status)
			}
			if got := r.Header.Get("Content-Type"); c.kind != "" && got != c.kind {
				t.Errorf("Content-Type %q, want %q", got, c.kind)
			}
			if got := r.Header.Get("Allow"); c.status == 405 && got != "GET, HEAD" {
				t.Errorf("Allow %q", got)
			}
			if c.method == "HEAD" && body(t, r) != "" {
				t.Error("an answer to HEAD has a body")
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options":       "nosniff",
				"X-Frame-Options":              "DENY",
				"Referrer-Policy":              "no-referrer",
				"Cross-Origin-Opener-Policy":   "same-origin",
				"Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s %q, want %q", name, got, want)
				}
			}
			checkPolicy(t, r.Header.Get("Content-Security-Policy"))
		})
	}
}

func checkPolicy(t *testing.T, policy string) {
	t.Helper()
	for _, directive := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:",
		"base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'", "require-trusted-types-for 'script'",
	} {
		if !strings.Contains("; "+policy+";", "; "+directive+";") {
			t.Errorf("the policy has no %q: %s", directive, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("an unsafe policy: %s", policy)
	}
}

// A path prefix that was removed before the handler saw the request is kept.
func TestRedirectIsRelative(t *testing.T) {
	if got := serve(t, "GET", "/ui").Header.Get("Location"); got != "ui/" {
		t.Errorf("Location %q", got)
	}
}

func TestCaching(t *testing.T) {
	first := serve(t, "GET", "/ui/app.js")
	tag := first.Header.Get("ETag")
	if !regexp.MustCompile(`^"[\w-]{16}"$`).MatchString(tag) || first.Header.Get("Cache-Control") != "no-cache" {
		t.Fatalf("ETag %s, Cache-Control %s", tag, first.Header.Get("Cache-Control"))
	}
	if again := serve(t, "GET", "/ui/app.js", "If-None-Match", tag); again.StatusCode != 304 || body(t, again) != "" {
		t.Errorf("the same again: status %d", again.StatusCode)
	}
	if other := serve(t, "GET", "/ui/style.css", "If-None-Match", tag); other.StatusCode != 200 {
		t.Errorf("another file: status %d", other.StatusCode)
	}
}

// assets are the paths of the files that the page is made of, as it names them.
func assets(t *testing.T) []string {
	t.Helper()
	found := []string{""}
	seen := map[string]bool{"": true}
	named := regexp.MustCompile(`(?:src|href|from) ?=? ?"(?:\./)?([a-z]+\.[a-z]+)"`)
	for i := 0; i < len(found); i++ {
		r := serve(t, "GET", "/ui/"+found[i])
		if r.StatusCode != 200 {
			t.Fatalf("%s: status %d", found[i], r.StatusCode)
		}
		for _, match := range named.FindAllStringSubmatch(body(t, r), -1) {
			if name := match[1]; !seen[name] {
				seen[name] = true
				found = append(found, name)
			}
		}
	}
	return found
}

// The page is small, and has nothing that its policy forbids, nothing of other
// origins, no address that a prefix would break, and no way from text to markup.
func TestFiles(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment|` +
		`<script>|<style|\sstyle=|\son[a-z]+="|https?://|@import|\burl\(|(?:src|href)="/`)
	total := 0
	files := assets(t)
	for _, name := range files {
		text := body(t, serve(t, "GET", "/ui/"+name))
		total += len(text)
		text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "") // a name, not an address
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
	if len(files) < 5 || total > 60<<10 {
		t.Errorf("%d files of %d bytes, want at most %d", len(files), total, 60<<10)
	}
}

func TestRunPath(t *testing.T) {
	if got := web.RunPath("a/b?c#d"); got != "ui/#/runs/a%2Fb%3Fc%23d" {
		t.Errorf("path %q", got)
	}
}
