// Package server is the HTTP server of sources: artifacts, statuses, events,
// webhooks, metrics and the web page.
//
// A [Server] answers these paths; package api lists those below /api/v1:
//
//	GET  /KIND/NAMESPACE/NAME/HEX/FILE   an artifact; KIND in lower case, HEX of its digest
//	GET  /KIND/NAMESPACE/NAME/POINTER    the artifact that is published now, for kinds that have a pointer
//	POST /hook/KIND/NAME, /hook/KIND/NAMESPACE/NAME   package hook
//	GET  /ui/                            the web page; / is redirected to it when a browser asks
//	GET  /healthz                        200: the process serves
//	GET  /readyz                         200, or 503 and which part is not ready
//	GET  /metrics                        in the format of Prometheus
//	GET  /debug/pprof/                   profiles, where they are switched on
//
// Anything else is 404, a wrong method 405 with the header Allow. HEAD is
// answered wherever GET is. Repeated slashes in a path count as one.
//
// # Access
//
// Where callers have to say who they are, each request is held against what its
// credential allows; see package access. What a caller may not see is not among
// what it is told: lists, streams and counts are of what it may read.
// /healthz, /readyz and the files of the web page are for everybody, artifacts
// and metrics too where the Server is told so. Requests that change something
// and that a page of another site made a browser send are refused (403).
//
// # Answers
//
// Errors are an [api.Problem] below /api/, and text elsewhere. Nothing that is
// answered holds credentials: documents are as [source.Masked] has them, and
// Secrets are never told. Lists of files, runs and events are bounded.
package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/answer"
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

	Keepalive time.Duration // between comments of an idle stream; default 15s

	once    sync.Once
	ends    chan struct{} // closed by Shutdown: streams end
	ended   sync.Once
	started time.Time

	metrics  metrics
	history  history
	files    shelf
	lists    answer.Budget // of answers
	bodies   answer.Budget // of requests
	refusals answer.Rate   // of lines about callers that were refused
}

const (
	defaultKeepalive = 15 * time.Second
	maxBody          = 64 << 10 // bytes of a request of the API
)

// begin prepares what the first use of a server needs.
func (s *Server) begin() {
	s.once.Do(func() {
		s.ends = make(chan struct{})
		s.started = time.Now()
	})
}

// Shutdown ends streams and waits, and has /readyz answer 503; the rest is
// answered as long as somebody asks. It returns at once.
func (s *Server) Shutdown(context.Context) error {
	s.ended.Do(func() { close(s.ending()) })
	return nil
}

// ending returns the channel that Shutdown closes.
func (s *Server) ending() chan struct{} {
	s.begin()
	return s.ends
}
