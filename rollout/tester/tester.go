// Package tester is the test runner: the service that webhooks of a canary
// rollout call for tests, loads, gates and rollback switches.
package tester

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/remote"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
	"github.com/headgate-io/headgate/rollout/tester/web"
)

// A Server is a test runner. Its fields are set before the first request.
type Server struct {
	Gates         *gate.Book
	Runs          *run.Desk
	Guard         *access.Guard // nil: everybody may do everything
	Tools         task.Tools
	Servers       remote.Servers
	Types         []string      // that are enabled; nil for all
	FailureStatus int           // of a failed test; default 422
	Strict        bool          // the task route is / alone, and other paths are 404
	BaseURL       string        // of links in answers; "" for the address of the request
	MaxBody       int64         // of a request, bytes; default 1 MiB
	Log           *slog.Logger  // nil for none
	Keepalive     time.Duration // between comments of an idle stream; default 15 s
	OpenMetrics   bool          // metrics need no credential although callers have to say who they are

	metrics *prometheus.Registry
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler { return web.Handler() }

// Shutdown refuses new work, ends what is under way and records it.
func (s *Server) Shutdown(ctx context.Context) error { return s.Runs.Shutdown(ctx) }
