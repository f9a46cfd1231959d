// Package web is the page of a test runner: approvals that wait, gates and
// rollback switches with their audit trail, runs and their live output. It
// speaks to the server by the HTTP API of package api and nothing else.
//
// The page lives at ui/ below the base of the server; what it has in common
// with others, how it is served and what is forbidden to it is in package
// internal/page. A path prefix, such as /token/TOKEN, stays in every request.
// Its views have addresses of their own:
//
//	ui/                                   what waits for approval, and what runs
//	ui/#/gates                            all gates and rollback switches
//	ui/#/gates/KIND/NAMESPACE/NAME/GATE   one of them, and its audit trail
//	ui/#/runs                             runs; ?canary=NAMESPACE/NAME&type=&state=
//	ui/#/runs/ID                          one run, and its output
//	ui/#/audit                            the audit trail of all
//
// What comes from callers (names, reasons, output) becomes text, never markup,
// and its control characters are shown.
package web

import (
	"embed"
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/internal/page"
)

//go:embed page
var files embed.FS

// RunPath is the address of the page of a run, relative to the base of the server.
func RunPath(id string) string { return "ui/#/runs/" + url.PathEscape(id) }

// Handler serves the page and what it is made of, all embedded, below /ui/, to
// GET and HEAD: 405 for other methods, 404 for other paths. /ui is redirected
// to /ui/.
func Handler() http.Handler { return page.Handler(files, "page") }
