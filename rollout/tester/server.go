// Package tester is the test runner: the service that webhooks of a canary
// rollout call for tests, loads, gates and rollback switches (specification,
// "Test-runner service").
//
// A [Server] answers these paths; package api lists those below /api/v1:
//
//	POST /                                         runs the task of the payload; so does every other path unless Strict
//	any  /gate/approve, /gate/halt                 200 OK, 403 Forbidden
//	any  /gate/check, /rollback/check              200 Approved, 403 Forbidden; records a refused check as a wait
//	POST /gate/open|close, /rollback/open|close    202
//	     /gate/GATE/check|open|close               the same for a gate with a name; also /rollback/GATE/…
//	POST /launch-test, GET /health                 the requests of the k6 webhook
//	     /link/SECRET                              the page of a signed link, and its button
//	     /ui/, /healthz, /readyz, /metrics
//
// Anything else below /gate/, /rollback/, /api/, /ui/, /link/ and /token/ is
// 404. Repeated slashes in a path count as one.
//
// # Requests
//
// A body is a JSON object as webhooks send it: keys are matched in any case,
// unknown keys are ignored, null and {} are empty payloads. Any other body is
// answered 400 with the reason as text, a body longer than MaxBody 413. Names are
// at most 512 bytes.
//
// # Answers
//
// Answers are text/plain. With the header Accept: application/json a task is
// answered with an [api.Run] and the same status. A caller without a valid
// credential gets 401, a caller whose scope does not allow the request 403. Too many
// runs are 429 with Retry-After, and a test runner that is shutting down answers 503.
//
// A verdict is delivered once it has been written to a caller that is still
// connected. An undelivered verdict of a request with a checksum is kept for the
// Verdict of [run.Config]: the next equal request gets it, with the end of the run
// in the header Headgate-Run-Ended.
package tester

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/remote"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// A Server is a test runner. Its fields are set before the first request.
// Several servers can run in one process, each mounted below any path of another server.
type Server struct {
	Gates         *gate.Store
	Runs          *run.Runner
	Guard         *Guard // nil: all callers may do everything
	Tools         task.Tools
	Servers       remote.Servers
	Types         []string      // enabled types of tasks, by either name; nil for all
	FailureStatus int           // HTTP status of a failed test; default 422
	Strict        bool          // only / runs tasks; other unknown paths are 404
	BaseURL       string        // base of links in answers; "" for the address of the request
	MaxBody       int64         // bytes of a request body; default 1 MiB
	Log           *slog.Logger  // nil for none
	Keepalive     time.Duration // interval between comments on an idle stream; default 15 s
	OpenMetrics   bool          // metrics need no credential even if callers must authenticate

	once          sync.Once
	metrics       metrics
	bodies        *httpserve.Bodies
	shutdown      context.Context // cancelled by Shutdown, which ends the streams
	beginShutdown context.CancelFunc
	taskRequests  *semaphore.Weighted // held by requests for tasks; Shutdown waits for them
}

// initOnce initializes the server on its first call, and returns it.
func (s *Server) initOnce() *Server {
	s.once.Do(func() {
		s.bodies = httpserve.NewBodies(cmp.Or(s.MaxBody, 1<<20))
		if s.Log == nil {
			s.Log = slog.New(slog.DiscardHandler)
		}
		s.shutdown, s.beginShutdown = context.WithCancel(context.Background())
		s.taskRequests = semaphore.NewWeighted(math.MaxInt64)
		s.metrics.build()
	})
	return s
}

// Shutdown refuses new work, ends streams, and stops and records the runs under way.
// Until ctx ends it also records which verdicts callers receive. Requests for gates are
// answered during and after it.
func (s *Server) Shutdown(ctx context.Context) error {
	s.initOnce().beginShutdown()
	err := s.Runs.Stop(ctx)                    // deliveries are recorded until Runs.Shutdown
	s.taskRequests.Acquire(ctx, math.MaxInt64) // requests under way are answered; no others begin
	return errors.Join(err, s.Runs.Shutdown(ctx))
}

// An Endpoint says where a test runner listens and how its callers authenticate. It has
// the fields
//
//	Addr      string        // HOST:PORT; default 127.0.0.1:8080; port 0 takes a free one
//	Cert, Key string        // PEM files for TLS, both or none; read again when they change
//	ClientCA  string        // PEM file of the CA for client certificates, which clients must present
//	Optional  bool          // clients may present a token instead of a certificate
//	Insecure  bool          // an address that other machines can reach needs no authentication
//	Grace     time.Duration // for runs and answers at shutdown; default 30 s
type Endpoint = httpserve.Endpoint

// ErrExposed reports an address that other machines can reach, without authentication of callers.
var ErrExposed = httpserve.ErrExposed

// A Listener accepts the connections of a test runner. Its URL is like http://127.0.0.1:8080.
type Listener struct {
	*httpserve.Listener
	server *Server
}

// Listen begins to listen. It refuses an address other than a loopback address with
// [ErrExposed], unless callers must authenticate or e.Insecure is set. Without
// authentication, a server on a loopback address answers only requests whose host is
// this machine or the host of BaseURL: otherwise a page of another site could reach it
// through a browser, under a host name that resolves to this machine (DNS rebinding).
func (s *Server) Listen(e Endpoint) (*Listener, error) {
	l, err := httpserve.Listen(e, s.initOnce().Guard.Required(), s.BaseURL, func(err error) { s.Log.Error("certificates", "problem", err.Error()) })
	if err != nil {
		return nil, err
	}
	return &Listener{l, s}, nil
}

// Serve serves until ctx ends, and then shuts down gracefully: it refuses new work,
// stops and records runs, and answers the callers that wait. Connections that are still
// active after Grace are closed, and Serve returns an error.
func (l *Listener) Serve(ctx context.Context) error {
	return l.Listener.Serve(ctx, l.server.Handler(), l.server.Log, l.server.Shutdown)
}

// Handler returns the handler of all paths. It can be mounted below any path
// of another server by [http.StripPrefix].
func (s *Server) Handler() http.Handler {
	s.initOnce()
	router := &httpserve.Router{
		Server: "test runner", Log: s.Log, Origins: httpserve.Origins(s.BaseURL), Names: "/api/",
		Statuses: statuses, Forbidden: forbidden,
		Unknown: func(kind string) string {
			if kind == "missing" {
				return authHint
			}
			return httpserve.ErrUnknown.Error()
		},
		Problem: func(r *http.Request) bool {
			class := classOf(r.URL.Path)
			return class == "api" || (class == "task" || class == "launch") && httpserve.Accepts(r, "application/json")
		},
		Path:    pathOf,
		Denied:  func(kind string) { s.metrics.denials.WithLabelValues(kind).Inc() },
		Observe: s.metrics.observeRequest,
	}
	for _, route := range routes {
		router.Route(route.pattern, func(w http.ResponseWriter, r *http.Request) error { return route.serve(s, w, r) })
	}
	router.Sessions("/api/v1/session", s.Guard, s.bodies, s.sessionOf)
	ui := httpserve.Page(page, "page")
	router.Handle("/ui", ui)
	router.Handle("/ui/", ui)
	return router
}

//go:embed page
var page embed.FS

// A handler serves a route.
type handler func(*Server, http.ResponseWriter, *http.Request) error

// textHandler returns a handler that answers 200 with text.
func textHandler(text string) handler {
	return func(_ *Server, w http.ResponseWriter, _ *http.Request) error {
		return httpserve.Text(w, http.StatusOK, text)
	}
}

// apiHandler returns a handler that authenticates the caller, and answers with the JSON of
// what serve returns. If that is nil, serve has written the answer itself.
func apiHandler(serve func(*Server, http.ResponseWriter, *http.Request, grant) (any, error)) handler {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		g, err := s.Guard.Identify(r, "")
		var answer any
		if err == nil {
			answer, err = serve(s, w, r, g)
		}
		if err != nil || answer == nil {
			return err
		}
		return httpserve.JSON(w, http.StatusOK, answer)
	}
}

// routes are the patterns of [httpserve.Router] and their handlers.
var routes = []struct {
	pattern string
	serve   handler
}{
	{"/", (*Server).serveDefault},
	{"/healthz", textHandler("OK")}, // the process serves
	{"/readyz", (*Server).readyz},
	{"GET /metrics", (*Server).serveMetrics},
	{"GET /health", textHandler("Good to go!")}, // of the k6 webhook
	{"POST /launch-test", (*Server).launch},

	{"/gate/approve", (*Server).constantGate},
	{"/gate/halt", (*Server).constantGate},
	{"/gate/{action}", (*Server).gate},
	{"/gate/{gate}/{action}", (*Server).gate},
	{"/rollback/{action}", (*Server).gate},
	{"/rollback/{gate}/{action}", (*Server).gate},
	{"GET /link/{secret}", (*Server).link},
	{"POST /link/{secret}", (*Server).link},

	{"GET /api/v1/gates", apiHandler((*Server).listGates)},
	{"GET /api/v1/gates/{kind}/{namespace}/{name}/{gate}", apiHandler((*Server).getGate)},
	{"POST /api/v1/gates/{kind}/{namespace}/{name}/{gate}/{action}", apiHandler((*Server).changeGate)},
	{"GET /api/v1/audit", apiHandler((*Server).listAudit)},
	{"GET /api/v1/runs", apiHandler((*Server).listRuns)},
	{"GET /api/v1/runs/{id}", apiHandler((*Server).getRun)},
	{"GET /api/v1/runs/{id}/output", apiHandler((*Server).getOutput)},
	{"POST /api/v1/runs/{id}/cancel", apiHandler((*Server).cancelRun)},
	{"GET /api/v1/watch", apiHandler((*Server).watch)},
	{"GET /api/v1/session", apiHandler((*Server).getSession)},
}

// classOf returns the class of a path by which requests are counted.
func classOf(path string) string {
	first, _, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	switch first {
	case "gate", "rollback", "api", "ui", "link", "metrics":
		return first
	case "launch-test":
		return "launch"
	case "health", "healthz", "readyz":
		return "health"
	}
	return "task"
}

// reserved are the first segments of paths at which no tasks run.
var reserved = []string{"gate", "rollback", "api", "link", "token"}

// serveDefault leads a browser at the root to the page, and runs tasks for all else.
func (s *Server) serveDefault(w http.ResponseWriter, r *http.Request) error {
	first, _, _ := strings.Cut(strings.TrimLeft(r.URL.Path, "/"), "/")
	switch {
	case httpserve.RedirectToPage(w, r):
		return nil
	case r.URL.Path != "/" && s.Strict, slices.Contains(reserved, first):
		return httpserve.ErrNotFound
	case r.Method != http.MethodPost:
		return httpserve.WrongMethod(w, http.MethodPost)
	}
	return s.task(w, r)
}

// readyz answers whether the process takes work: 503 with a reason when its
// stores cannot be written or when it is shutting down. The cause of a failed
// write is only logged.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	if s.shutdown.Err() != nil {
		return httpserve.Text(w, http.StatusServiceUnavailable, "shutting down")
	}
	for name, ready := range map[string]func() error{"gates": s.Gates.Ready, "runs": s.Runs.Ready} {
		if err := ready(); err != nil {
			s.Log.Error("not ready", "store", name, "cause", err.Error())
			return httpserve.Text(w, http.StatusServiceUnavailable, "the store of "+name+" cannot be used, see the log")
		}
	}
	return httpserve.Text(w, http.StatusOK, "OK")
}

// authHint tells a caller how to authenticate.
const authHint = "authenticate: by a token in the header Authorization (Bearer, or Basic as password), " +
	"in the metadata of the payload (token), in the URL (/token/TOKEN/ before the path, or ?token=TOKEN), or by a client certificate"

// statuses has the statuses of answers to errors that are not an [httpserve.Refusal].
var statuses = map[error]int{
	gate.ErrInvalid: http.StatusBadRequest,
	gate.ErrLink:    http.StatusGone,
	gate.ErrClosed:  http.StatusServiceUnavailable,
	run.ErrNotFound: http.StatusNotFound,
	run.ErrBusy:     http.StatusTooManyRequests,
	run.ErrClosed:   http.StatusServiceUnavailable,
}

// pathOf returns the path of a request for logs. It masks the path of a link, which
// is a credential.
func pathOf(r *http.Request) string {
	if classOf(r.URL.Path) == "link" {
		return "/link/" + redact.Mask
	}
	return logExcerpt(r.URL.Path)
}

// logExcerpt returns text from a request for logs: redacted and shortened.
func logExcerpt(text string) string { return redact.Excerpt(text, 200) }

// answerExcerpt returns text from a request for answers: redacted and shortened.
func answerExcerpt(text string) string { return redact.Excerpt(text, 80) }

// observeRequest counts a request, and its answer when answered is called.
func (m *metrics) observeRequest(r *http.Request) (answered func(*httpserve.Writer)) {
	m.inFlight.Inc()
	class := classOf(r.URL.Path)
	return func(a *httpserve.Writer) {
		m.inFlight.Dec()
		m.requests.WithLabelValues(class, strconv.Itoa(cmp.Or(a.Status, http.StatusOK))).Inc()
	}
}

// base returns the URL by which the caller reaches the test runner, without a slash
// at its end.
func (s *Server) base(r *http.Request) string {
	if s.BaseURL != "" {
		return strings.TrimRight(s.BaseURL, "/")
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// runURL returns the URL of a run's web page.
func (s *Server) runURL(r *http.Request, id string) string {
	return s.base(r) + "/ui/#/runs/" + url.PathEscape(id)
}
