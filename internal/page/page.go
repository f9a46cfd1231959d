// Package page is the web pages of package httpserve, for servers that do not use that
// otherwise yet.
package page

import (
	"embed"
	"net/http"

	"github.com/headgate-io/headgate/internal/httpserve"
)

// Handler is [httpserve.Page].
func Handler(own embed.FS, dir string) http.Handler { return httpserve.Page(own, dir) }
