// Package web is the page of a server of sources: all of them with their state,
// one of them with its history, and events. It speaks to the server by the HTTP
// API of package api and nothing else.
//
// The page lives at ui/ below the base of the server; what it has in common
// with others, how it is served and what is forbidden to it is in package
// internal/page. A path prefix stays in every request. Its views have addresses
// of their own:
//
//	ui/                                   all sources; #/?q=TEXT&kind=&namespace=&state=&sort=[-]COLUMN&page=
//	ui/#/sources/KIND/NAMESPACE/NAME      one of them
//	ui/#/events                           the events of all; ?severity=
//
// It holds all sources that the caller may see, as the stream of changes tells
// them, and shows 50 at a time: ten thousand cost a browser about 40 MB.
//
// What comes from documents and origins (names, messages, revisions, paths)
// becomes text, never markup, and its control characters are shown.
package web

import (
	"embed"
	"net/http"

	"github.com/headgate-io/headgate/internal/page"
)

//go:embed page
var files embed.FS

// Handler serves the page and what it is made of, all embedded, below /ui/, to
// GET and HEAD: 405 for other methods, 404 for other paths. /ui is redirected
// to /ui/.
func Handler() http.Handler { return page.Handler(files, "page") }
