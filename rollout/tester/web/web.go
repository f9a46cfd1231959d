// Package web is the page of a test runner: approvals that wait, gates and
// rollback switches with their audit trail, runs and their live output. It
// speaks to the server by the HTTP API of package api and nothing else.
//
// The page lives at ui/ below the base of the server, and finds all else
// relative to itself: a path prefix, such as /token/TOKEN, stays in every
// request. It is a handful of files as they were written (HTML, CSS,
// ECMAScript modules), embedded; nothing is built, and nothing comes from
// elsewhere. Its views have addresses of their own:
//
//	ui/                                   what waits for approval, and what runs
//	ui/#/gates                            all gates and rollback switches
//	ui/#/gates/KIND/NAMESPACE/NAME/GATE   one of them, and its audit trail
//	ui/#/runs                             runs; ?canary=NAMESPACE/NAME&type=&state=
//	ui/#/runs/ID                          one run, and its output
//	ui/#/audit                            the audit trail of all
//
// What comes from callers (names, reasons, output) becomes text, never markup,
// and its control characters are shown. The headers forbid scripts, styles and
// connections of any other origin, scripts within the page, and frames.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

//go:embed page
var files embed.FS

// policy is the content security policy: what is not named is forbidden. With
// trusted types no script can turn text into markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; frame-ancestors 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'"

// headers go with every answer. The address of the page may have a token, so
// that no other site may learn it.
var headers = [...][2]string{
	{"Content-Security-Policy", policy},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "no-referrer"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Cache-Control", "no-cache"},
}

// types of the files, said here because those of a system may differ.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// RunPath is the address of the page of a run, relative to the base of the server.
func RunPath(id string) string { return "ui/#/runs/" + url.PathEscape(id) }

// An asset is one file of the page.
type asset struct {
	content []byte
	kind    string
	tag     string // the ETag: of the content
}

// Handler serves the page and what it is made of, all embedded, below /ui/, to
// GET and HEAD: 405 for other methods, 404 for other paths. /ui is redirected
// to /ui/.
func Handler() http.Handler {
	assets := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, h := range headers {
			w.Header().Set(h[0], h[1])
		}
		if r.URL.Path == "/ui" {
			w.Header().Set("Location", "ui/") // relative: what comes before /ui may have been removed
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		name, below := strings.CutPrefix(r.URL.Path, "/ui/")
		a, found := assets[name]
		switch {
		case !below || !found:
			http.Error(w, "there is no such page", http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page can be read with GET only", http.StatusMethodNotAllowed)
		default:
			w.Header().Set("Content-Type", a.kind)
			w.Header().Set("ETag", a.tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.content))
		}
	})
}

// load returns the embedded files by their path below /ui/; the page itself is "".
func load() map[string]asset {
	assets := map[string]asset{}
	entries, _ := fs.ReadDir(files, "page") // it is embedded: it is there
	for _, entry := range entries {
		name := entry.Name()
		content, _ := fs.ReadFile(files, path.Join("page", name))
		sum := sha256.Sum256(content)
		a := asset{
			content: content,
			kind:    types[path.Ext(name)],
			tag:     `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
		}
		if name == "index.html" {
			name = ""
		}
		assets[name] = a
	}
	return assets
}
