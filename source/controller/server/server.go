// Package server is the HTTP server of sources: artifacts, statuses, events,
// webhooks, metrics and the web page.
package server

import (
	"log/slog"
	"net/http"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/answer"
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

	misdirected answer.Rate // of lines about requests for other hosts
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler { return http.NotFoundHandler() }

// ObserveRun counts and logs a run; it is for controller.Controller Observe.
func (s *Server) ObserveRun(r controller.Run) {}

// ObserveEvent logs an event.
func (s *Server) ObserveEvent(e source.Event) {}
