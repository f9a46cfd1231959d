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

// Style is style.css, for pages that stand alone.
//
//go:embed shared/style.css
var Style string

// pagePolicy is the content security policy: what is not named is forbidden. With
// trusted types no script can turn text into markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; frame-ancestors 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageHeaders go with every answer. The address of the page may have a token, so
// that no other site may learn it.
var pageHeaders = [...][2]string{
	{"Content-Security-Policy", pagePolicy},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "no-referrer"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Cache-Control", "no-cache"},
}

// pageTypes are those of the files, said here because those of a system may differ.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// A page is a handful of files as they were written (HTML, CSS, ECMAScript
// modules), embedded; nothing is built, and nothing comes from elsewhere. It
// lives at ui/ below the base of its server, and finds all else relative to
// itself: a path prefix stays in every request. The files of a page and the
// shared ones are beside each other, so that modules import either as "./NAME.js":
//
//	api.js      calls of the HTTP API at api/v1/ below the base, and its stream of changes
//	dialog.js   dialogs, and the fields of forms
//	dom.js      elements from text of others, lists and tables that keep their focus
//	frame.js    who looks, which view is shown, whether it is current
//	live.js     listings that follow the stream of changes
//	session.js  signing in and out
//	words.js    text made safe to look at, times, problems
//	index.html  the document, which loads style.css, page.css and app.js
//	style.css   how all of it looks, light and dark
//	icon.svg    the icon
//
// The app.js of a page calls frame(app, views). Views are
//
//	[FIRST, MORE, view, TITLE]   the first segment of an address, the number of those after it,
//	                             view(app, query, ...segments) → {title, nodes, load?, notice?, visible?, close?},
//	                             and its title in the navigation, if it is there
//
// and app is the object that views get. It is given session, view, notice,
// announce, setTitle, refused and attempt, and may have
//
//	noticed(change)   something has changed; before notice of the view
//	refresh()         all may have changed, now and then and when the stream opens; before load of the view
//	state(name)       the stream is connecting, live, reconnecting or paused
//	paused(signal)    the page is hidden, until signal ends
//	ended()           the session has ended
//	mark()            words before the title
//
// The headers forbid scripts, styles and connections of any other origin,
// scripts within the page, and frames.
//
// Page returns the handler of the page whose own files are in a directory of an embedded
// file system, app.js and page.css among them, and the shared ones, below /ui/, to GET
// and HEAD: 405 for other methods, 404 for other paths. /ui is redirected to
// /ui/. A file of the page's own hides a shared one of the same name.
func Page(own embed.FS, dir string) http.Handler {
	type file struct {
		content []byte
		tag     string
	}
	files := make(map[string]file)
	for _, from := range []struct {
		embed.FS
		dir string
	}{{shared, "shared"}, {own, dir}} {
		entries, _ := from.ReadDir(from.dir) // what is embedded can be read
		for _, e := range entries {
			content, _ := from.ReadFile(from.dir + "/" + e.Name())
			sum := sha256.Sum256(content)
			files[e.Name()] = file{content, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		}
	}
	files[""] = files["index.html"]
	delete(files, "index.html") // the document has one address
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, h := range pageHeaders {
			w.Header().Set(h[0], h[1])
		}
		if r.URL.Path == "/ui" {
			w.Header().Set("Location", "ui/") // relative: what comes before /ui may have been removed
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
