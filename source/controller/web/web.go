// Package web is the page of a server of sources.
package web

import (
	"embed"
	"net/http"
)

//go:embed page
var files embed.FS

// Handler serves the page below ui/.
func Handler() http.Handler { return http.FileServerFS(files) }
