// Package tester is the test runner: the service that webhooks of a canary
// rollout call for tests, loads, gates and rollback switches (specification,
// "Test-runner service").
//
// A [Server] answers these paths; package api lists those below /api/v1:
//
//	POST /                                         runs the task of the payload; so does every other path unless Strict
//	any  /gate/approve, /gate/halt                 200 OK, 403 Forbidden
//	any  /gate/check, /rollback/check              200 Approved, 403 Forbidden; remembers who waits
//	POST /gate/open|close, /rollback/open|close    202
//	     /gate/GATE/check|open|close               the same for a gate with a name; also /rollback/GATE/…
//	POST /launch-test, GET /health                 the wire of the k6 webhook
//	     /link/SECRET                              the page of a signed link, and its button
//	     /ui/, /healthz, /readyz, /metrics
//
// Anything else below /gate/, /rollback/, /api/, /ui/, /link/ and /token/ is
// 404. Repeated slashes in a path count as one.
//
// # Requests
//
// A body is a JSON object as webhooks send it: keys are matched in any case,
// unknown keys are ignored, null and {} are empty payloads. What is none is
// 400, with the reason as text. A body longer than MaxBody is 413. Names are
// at most 512 bytes.
//
// # Answers
//
// Answers are text/plain; with the header Accept: application/json those of
// tasks are an [api.Run], of the same status. A caller without a valid
// credential gets 401, one that may not do what it asks for 403. Too many runs
// are 429 with Retry-After, and a test runner that is shutting down answers 503.
//
// A verdict counts as delivered when it was written to a caller that is still
// there. Until then, and for [run.Config] Verdict at most, the next equal request
// gets it, when it has a checksum: the header Headgate-Run-Ended says when the run
// ended.
package tester

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/remote"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// A Server is a test runner. Its fields are set before the first request.
// Several can be in one process, and each below any path of another server.
type Server struct {
	Gates         *gate.Book
	Runs          *run.Desk
	Guard         *access.Guard // nil: everybody may do everything
	Tools         task.Tools
	Servers       remote.Servers
	Types         []string      // that are enabled, by either name; nil for all
	FailureStatus int           // of a failed test; default 422
	Strict        bool          // the task route is / alone, and other paths are 404
	BaseURL       string        // of links in answers; "" for the address of the request
	MaxBody       int64         // of a request, bytes; default 1 MiB
	Log           *slog.Logger  // nil for none
	Keepalive     time.Duration // between comments of an idle stream; default 15 s
	OpenMetrics   bool          // metrics need no credential although callers have to say who they are

	metrics  metrics
	refusals answer.Rate   // of lines about callers that were refused
	lists    answer.Budget // of answers
	bodies   answer.Budget // of requests

	once     sync.Once
	ends     chan struct{} // closed by Shutdown: streams end
	shutdown sync.Once
	launches launches

	answering underWay // requests for tasks
}

const (
	defaultMaxBody   = 1 << 20
	defaultKeepalive = 15 * time.Second
)

// Shutdown refuses new work, ends streams and what is under way, and records
// it, and what callers receive of it until ctx ends. Gates are answered as long
// as somebody asks.
func (s *Server) Shutdown(ctx context.Context) error {
	s.shutdown.Do(func() { close(s.ending()) })
	s.Runs.Stop(ctx) // whose error Shutdown returns
	s.answering.wait(ctx)
	return s.Runs.Shutdown(ctx)
}

// ending returns the channel that Shutdown closes.
func (s *Server) ending() chan struct{} {
	s.once.Do(func() { s.ends = make(chan struct{}) })
	return s.ends
}

// failure returns the status of a failed test.
func (s *Server) failure() int {
	if s.FailureStatus == 0 {
		return http.StatusUnprocessableEntity
	}
	return s.FailureStatus
}
