package controller

import (
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/source/serve"
)

// Hooks returns a handler for the webhooks of the server's objects, which are below /hook/ (see
// package serve). It answers 503 until the server is ready. If [serve.Config] has no Callers,
// objects without a Secret for webhooks accept all calls; use [NoCallers] to prevent that.
func Hooks(server *serve.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/hook/"):
			http.Error(w, "there are webhooks only, below /hook/", http.StatusNotFound)
		case !server.Ready():
			http.Error(w, ErrNotReady.Error(), http.StatusServiceUnavailable)
		default:
			server.Handler().ServeHTTP(w, r)
		}
	})
}

// NoCallers returns callers without any token. Webhooks are then authenticated only by their
// Secrets.
func NoCallers() (*serve.Callers, error) {
	return serve.OpenCallers(serve.CallersConfig{Certificates: true})
}
