package httpserve

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed shared
var shared embed.FS

// Style is the content of style.css, for standalone pages.
//
//go:embed shared/style.css
var Style string

// pagePolicy is the content security policy of the page. It forbids everything that it does not name. Trusted
// types keep scripts from turning text into markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; frame-ancestors 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageHeaders are set on every answer. The URL of the page may contain a token, so they keep it from other sites.
var pageHeaders = [...][2]string{
	{"Content-Security-Policy", pagePolicy},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "no-referrer"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Cache-Control", "no-cache"},
}

// pageTypes are the media types of the files. Those of the system may differ.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Page returns the handler of a page, which is a set of embedded files (HTML, CSS, ECMAScript modules) that
// are served as they are; nothing is built, and nothing is loaded from elsewhere. The page is at ui/ below
// the base URL of its server, and all its requests are relative to that, so that they keep a path prefix.
// The files of the page and the shared files appear in one directory, so that modules import either as
// "./NAME.js":
//
//	api.js      calls of the HTTP API at api/v1/ below the base URL, and its stream of changes
//	dialog.js   dialogs, and the fields of forms
//	dom.js      elements from untrusted text, lists and tables that keep their focus
//	frame.js    session, current view, and whether it is up to date
//	live.js     listings that follow the stream of changes
//	session.js  signing in and out
//	words.js    safe text, times, problems
//	index.html  the document, which loads style.css, page.css and app.js
//	style.css   the style, light and dark
//	icon.svg    the icon
//
// The app.js of a page calls frame(app, views). Each view is
//
//	[FIRST, MORE, view, TITLE]   the first segment of an address, the number of those after it,
//	                             view(app, query, ...segments) → {title, nodes, load?, notice?, visible?, close?},
//	                             and its title in the navigation, if it appears there
//
// and app is the object that is passed to views. frame sets session, view, notice,
// announce, setTitle, refused and attempt in it, and calls these methods if app has them:
//
//	noticed(change)   something has changed; called before notice of the view
//	refresh()         everything may have changed; called from time to time and when the stream opens, before load of the view
//	state(name)       the stream is connecting, live, reconnecting or paused
//	paused(signal)    the page is hidden, until signal ends
//	ended()           the session has ended
//	mark()            returns text to show before the title
//
// The headers forbid scripts, styles and connections of other origins, inline scripts, and frames.
//
// The directory dir of pageFS contains the files of the page, among them app.js and page.css.
// They replace shared files of the same name. The handler serves all files below /ui/ to GET and
// HEAD. It answers 405 to other methods and 404 for other paths, and redirects /ui to /ui/.
func Page(pageFS embed.FS, dir string) http.Handler {
	type file struct {
		content []byte
		tag     string
	}
	files := make(map[string]file)
	for _, from := range []struct {
		embed.FS
		dir string
	}{{shared, "shared"}, {pageFS, dir}} {
		entries, _ := from.ReadDir(from.dir) // reading embedded files cannot fail
		for _, e := range entries {
			content, _ := from.ReadFile(from.dir + "/" + e.Name())
			sum := sha256.Sum256(content)
			files[e.Name()] = file{content, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		}
	}
	files[""] = files["index.html"]
	delete(files, "index.html") // the document has only one URL
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, h := range pageHeaders {
			w.Header().Set(h[0], h[1])
		}
		if r.URL.Path == "/ui" {
			w.Header().Set("Location", "ui/") // relative: a proxy may have removed a prefix of /ui
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		name, below := strings.CutPrefix(r.URL.Path, "/ui/")
		f, found := files[name]
		switch {
		case !below || !found:
			http.Error(w, "there is no such page", http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page can be read with GET only", http.StatusMethodNotAllowed)
		default:
			w.Header().Set("Content-Type", cmp.Or(pageTypes[path.Ext(name)], pageTypes[".html"]))
			w.Header().Set("ETag", f.tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
		}
	})
}
