// Package pagetest checks the rules for the web pages of headgate's servers.
package pagetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// Serve returns the answer of a handler to a request with the header fields NAME, VALUE, ….
func Serve(handler http.Handler, method, target string, header ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Result()
}

// Body returns the body of an answer.
func Body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Run checks how a page is served, and its files: all referenced files exist, and they contain nothing
// that the content security policy forbids, nothing from other origins, no URL that a path prefix would
// break, and no conversion of text to markup. It returns the content of the files by name.
func Run(t *testing.T, handler http.Handler) map[string]string {
	t.Helper()
	t.Run("answers", func(t *testing.T) { checkAnswers(t, handler) })
	t.Run("redirect", func(t *testing.T) { checkRedirect(t, handler) })
	t.Run("caching", func(t *testing.T) { checkCaching(t, handler) })
	files := collect(t, handler)
	t.Run("files", func(t *testing.T) { checkContent(t, files) })
	return files
}

// Size returns the total size of the files in bytes.
func Size(files map[string]string) (bytes int) {
	for _, text := range files {
		bytes += len(text)
	}
	return bytes
}

func checkAnswers(t *testing.T, handler http.Handler) {
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
		{"GET", "/ui/index.html", 404, ""}, // the page has only one URL
		{"GET", "/ui/nothing.js", 404, ""},
		{"GET", "/ui/../web.go", 404, ""},
		{"GET", "/ui//app.js", 404, ""},
		{"GET", "/ui/page/app.js", 404, ""},
		{"GET", "/ui/shared/dom.js", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/app.js", 404, ""},
		{"POST", "/ui/", 405, ""},
		{"PUT", "/ui/app.js", 405, ""},
		{"DELETE", "/ui/app.js", 405, ""},
		{"OPTIONS", "/ui/", 405, ""},
		{"POST", "/ui/nothing", 404, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			r := Serve(handler, c.method, c.path)
			if r.StatusCode != c.status {
				t.Errorf("status %d, want %d", r.StatusCode, c.status)
			}
			if got := r.Header.Get("Content-Type"); c.kind != "" && got != c.kind {
				t.Errorf("Content-Type %q, want %q", got, c.kind)
			}
			if got := r.Header.Get("Allow"); c.status == 405 && got != "GET, HEAD" {
				t.Errorf("Allow %q", got)
			}
			if c.method == "HEAD" && Body(t, r) != "" {
				t.Error("an answer to HEAD has a body")
			}
			checkHeaders(t, r.Header)
		})
	}
}

// checkHeaders checks the headers of an answer.
func checkHeaders(t *testing.T, header http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	policy := header.Get("Content-Security-Policy")
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

// checkRedirect checks that a redirect keeps a path prefix that was removed from the request before the handler saw it.
func checkRedirect(t *testing.T, handler http.Handler) {
	if got := Serve(handler, "GET", "/ui").Header.Get("Location"); got != "ui/" {
		t.Errorf("Location %q", got)
	}
}

func checkCaching(t *testing.T, handler http.Handler) {
	first := Serve(handler, "GET", "/ui/app.js")
	tag := first.Header.Get("ETag")
	if !regexp.MustCompile(`^"[\w-]{16}"$`).MatchString(tag) || first.Header.Get("Cache-Control") != "no-cache" {
		t.Fatalf("ETag %s, Cache-Control %s", tag, first.Header.Get("Cache-Control"))
	}
	if again := Serve(handler, "GET", "/ui/app.js", "If-None-Match", tag); again.StatusCode != 304 || Body(t, again) != "" {
		t.Errorf("the same again: status %d", again.StatusCode)
	}
	if other := Serve(handler, "GET", "/ui/style.css", "If-None-Match", tag); other.StatusCode != 200 {
		t.Errorf("another file: status %d", other.StatusCode)
	}
}

// collect returns the files of a page by name, following the references between them.
func collect(t *testing.T, handler http.Handler) map[string]string {
	t.Helper()
	named := regexp.MustCompile(`(?:src|href|from|import) ?=? ?"(?:\./)?([a-z]+\.[a-z]+)"`)
	files := map[string]string{}
	for next := []string{""}; len(next) > 0; next = next[1:] {
		name := next[0]
		if _, seen := files[name]; seen {
			continue
		}
		r := Serve(handler, "GET", "/ui/"+name)
		if r.StatusCode != 200 {
			t.Fatalf("%s: status %d", name, r.StatusCode)
		}
		files[name] = Body(t, r)
		for _, match := range named.FindAllStringSubmatch(files[name], -1) {
			next = append(next, match[1])
		}
	}
	return files
}

func checkContent(t *testing.T, files map[string]string) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment|` +
		`<script>|<style|\sstyle=|\son[a-z]+="|https?://|@import|\burl\(|(?:src|href)="/`)
	for name, text := range files {
		text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "") // a name, not an address
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
	if len(files) < 5 {
		t.Errorf("the page has %d files", len(files))
	}
}
