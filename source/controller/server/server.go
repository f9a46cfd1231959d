// Package server is the HTTP server of sources: artifacts, statuses, events,
// webhooks, metrics and the web page.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
	"github.com/headgate-io/headgate/source/controller/access"
	"github.com/headgate-io/headgate/source/controller/hook"
	"github.com/headgate-io/headgate/source/controller/journal"
)

// A Server serves what a controller keeps. Its fields are set before the first request.
type Server struct {
	Controller *controller.Controller
	Store      *artifact.Store
	Journal    *journal.Journal // nil: there are no events
	Hooks      *hook.Receiver   // nil: there are no webhooks
	Guard      *access.Guard    // nil: everybody may do everything
	BaseURL    string           // by which callers know the server; "" for the address of the request

	OpenArtifacts bool // artifacts need no credential although callers have to say who they are
	OpenMetrics   bool // nor do metrics
	Profiles      bool // /debug/pprof/ is there, for those who may debug

	Rate float64      // requests a second of one address, on average, and 4 times as many at once; 0 for no limit
	Log  *slog.Logger // nil for none
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler { return http.NotFoundHandler() }

// ObserveRun counts and logs a run; it is for controller.Controller Observe.
func (s *Server) ObserveRun(r controller.Run) {}

// ObserveEvent logs an event.
func (s *Server) ObserveEvent(e source.Event) {}

// An Endpoint is where a server listens, and what is asked of those who come.
type Endpoint struct {
	Addr       string        // HOST:PORT; default 127.0.0.1:9090; port 0 takes a free one
	Socket     string        // path of a socket of mode 0600, whose callers may do everything; "" for none
	Cert, Key  string        // PEM files for TLS, both or none; read again when they change
	ClientCA   string        // PEM file; clients have to show a certificate by it
	Optional   bool          // clients without a certificate have to have a token
	Insecure   bool          // an address that others can reach needs no authentication
	MaxConns   int           // connections at a time, those beyond wait; default 10000
	PerAddress int           // connections of one address at a time, those beyond are refused; default no limit
	Grace      time.Duration // for answers when it ends; default 30 s
}

// A Listener is where a server can be reached.
type Listener struct {
	URL string // as http://127.0.0.1:9090
}

// Listen begins to listen. It needs no more of the server than Guard, BaseURL
// and Log, so that the URL is known before there is a store.
func (s *Server) Listen(ctx context.Context, e Endpoint) (*Listener, error) {
	return nil, errors.New("not written yet")
}

// Serve serves until ctx ends, and then ends gracefully.
func (l *Listener) Serve(ctx context.Context) error { return nil }

// Close ends the listening of one that does not serve.
func (l *Listener) Close() error { return nil }
