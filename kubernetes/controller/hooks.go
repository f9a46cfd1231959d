package controller

import (
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/source/serve"
)

// Hooks returns a handler for the webhooks of the objects of a server: of its paths those below /hook/, see package
// serve. It answers 503 until the server is ready. Without Callers in its [serve.Config], which [NoCallers] are for,
// objects that have no Secret for webhooks are open to all.
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

// NoCallers returns callers none of which has a token of the server: only Secrets for webhooks prove who calls.
func NoCallers() (*serve.Callers, error) {
	return serve.OpenCallers(serve.CallersConfig{Certificates: true})
}
