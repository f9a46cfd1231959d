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
	"cmp"
	"context"
	"embed"
	"log/slog"
	"math"
	"net/http"
	"net/url"
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
// Several can be in one process, and each below any path of another server.
type Server struct {
	Gates         *gate.Store
	Runs          *run.Runner
	Guard         *Guard // nil: all callers may do everything
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

	once      sync.Once
	metrics   metrics
	bodies    *httpserve.Bodies
	ending    context.Context // ends with Shutdown: streams end
	end       context.CancelFunc
	answering *semaphore.Weighted // requests for tasks
}

// started returns the server, ready for requests.
func (s *Server) started() *Server {
	s.once.Do(func() {
		s.bodies = httpserve.NewBodies(cmp.Or(s.MaxBody, 1<<20))
		if s.Log == nil {
			s.Log = slog.New(slog.DiscardHandler)
		}
		s.ending, s.end = context.WithCancel(context.Background())
		s.answering = semaphore.NewWeighted(math.MaxInt64)
		s.metrics.build()
	})
	return s
}

// Shutdown refuses new work, ends streams and what is under way, and records
// it, and what callers receive of it until ctx ends. Gates are answered as long
// as somebody asks.
func (s *Server) Shutdown(ctx context.Context) error {
	s.started().end()
	s.Runs.Stop(ctx)                        // whose error Shutdown returns
	s.answering.Acquire(ctx, math.MaxInt64) // those under way are answered; no others begin
	return s.Runs.Shutdown(ctx)
}

// An Endpoint is where a test runner listens, and what is asked of its callers. It has
// the fields
//
//	Addr      string        // HOST:PORT; default 127.0.0.1:8080; port 0 takes a free one
//	Cert, Key string        // PEM files for TLS, both or none; read again when they change
//	ClientCA  string        // PEM file; clients have to show a certificate by it
//	Optional  bool          // clients without a certificate have to have a token
//	Insecure  bool          // an address that others can reach needs no authentication
//	Grace     time.Duration // for runs and answers when it ends; default 30 s
type Endpoint = httpserve.Endpoint

// ErrExposed is an address that others can reach, of a test runner that asks for no credential.
var ErrExposed = httpserve.ErrExposed

// A Listener is where a test runner can be reached, at URL, as http://127.0.0.1:8080.
type Listener struct {
	*httpserve.Listener
	server *Server
}

// Listen begins to listen. An address that is not of this machine alone is
// refused with [ErrExposed], unless callers have to say who they are or
// e.Insecure is set. Without authentication an address of this machine answers
// only requests for this machine, or for the host of BaseURL: pages of other
// sites can make a browser come here under a name of their own.
func (s *Server) Listen(_ context.Context, e Endpoint) (*Listener, error) {
	l, err := httpserve.Listen(e, s.started().Guard.Required(), s.BaseURL, func(err error) { s.Log.Error("certificates", "problem", err.Error()) })
	if err != nil {
		return nil, err
	}
	return &Listener{l, s}, nil
}

// Serve serves until ctx ends, and then ends gracefully: new work is refused,
// runs are stopped and recorded, and callers that wait get their answers. What
// takes longer than Grace is cut off, with an error.
func (l *Listener) Serve(ctx context.Context) error {
	return l.Listener.Serve(ctx, l.server.Handler(), l.server.Log, l.server.Shutdown)
}

// Handler returns the handler of all paths. It can be mounted below any path
// of another server by [http.StripPrefix].
func (s *Server) Handler() http.Handler {
	s.started()
	router := &httpserve.Router{
		Server: "test runner", Log: s.Log, Origins: httpserve.Origins(s.BaseURL), Names: "/api/",
		Statuses: statuses, Forbidden: forbidden,
		Unknown: func(kind string) string {
			if kind == "missing" {
				return unknown
			}
			return httpserve.ErrUnknown.Error()
		},
		Problem: func(r *http.Request) bool {
			class := classOf(r.URL.Path)
			return class == "api" || (class == "task" || class == "launch") && httpserve.Wants(r, "application/json")
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
	for _, first := range reserved {
		nothing := func(http.ResponseWriter, *http.Request) error { return httpserve.ErrNothing }
		router.Route("/"+first, nothing)
		router.Route("/"+first+"/", nothing)
	}
	return router
}

//go:embed page
var page embed.FS

// A handler serves a route.
type handler func(*Server, http.ResponseWriter, *http.Request) error

// saying returns a handler that answers a text.
func saying(text string) handler {
	return func(_ *Server, w http.ResponseWriter, _ *http.Request) error {
		return httpserve.Text(w, http.StatusOK, text)
	}
}

// identified returns a handler for every caller with a token, whose answer is JSON, unless
// it is nil: then there is one already.
func identified(serve func(*Server, http.ResponseWriter, *http.Request, grant) (any, error)) handler {
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

// routes are what serves the paths, see [httpserve.Router].
var routes = []struct {
	pattern string
	serve   handler
}{
	{"/", (*Server).other},
	{"/healthz", saying("OK")}, // the process serves
	{"/readyz", (*Server).readyz},
	{"GET /metrics", (*Server).serveMetrics},
	{"GET /health", saying("Good to go!")}, // of the k6 webhook
	{"POST /launch-test", (*Server).launch},

	{"/gate/approve", (*Server).constant},
	{"/gate/halt", (*Server).constant},
	{"/gate/{action}", (*Server).gate},
	{"/gate/{gate}/{action}", (*Server).gate},
	{"/rollback/{action}", (*Server).gate},
	{"/rollback/{gate}/{action}", (*Server).gate},
	{"GET /link/{secret}", (*Server).link},
	{"POST /link/{secret}", (*Server).link},

	{"GET /api/v1/gates", identified((*Server).listGates)},
	{"GET /api/v1/gates/{kind}/{namespace}/{name}/{gate}", identified((*Server).getGate)},
	{"POST /api/v1/gates/{kind}/{namespace}/{name}/{gate}/{action}", identified((*Server).changeGate)},
	{"GET /api/v1/audit", identified((*Server).listAudit)},
	{"GET /api/v1/runs", identified((*Server).listRuns)},
	{"GET /api/v1/runs/{id}", identified((*Server).getRun)},
	{"GET /api/v1/runs/{id}/output", identified((*Server).getOutput)},
	{"POST /api/v1/runs/{id}/cancel", identified((*Server).cancelRun)},
	{"GET /api/v1/watch", identified((*Server).watch)},
	{"GET /api/v1/session", identified((*Server).getSession)},
}

// reserved are the first segments below which unknown paths are not found.
var reserved = []string{"gate", "rollback", "api", "link", "token"}

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

// other leads a browser at the root to the page, and runs tasks for all else.
func (s *Server) other(w http.ResponseWriter, r *http.Request) error {
	switch {
	case httpserve.ToPage(w, r):
		return nil
	case r.URL.Path != "/" && s.Strict:
		return httpserve.ErrNothing
	case r.Method != http.MethodPost:
		return httpserve.WrongMethod(w, http.MethodPost)
	}
	return s.task(w, r)
}

// readyz answers whether the process takes work: 503 with a reason when its
// stores cannot be written or when it is shutting down. Why a store cannot be
// written is for the log.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	if s.ending.Err() != nil {
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

// unknown says how a caller can say who it is.
const unknown = "say who you are: by a token in the header Authorization (Bearer, or Basic as password), " +
	"in the metadata of the payload (token), in the URL (/token/TOKEN/ before the path, or ?token=TOKEN), or by a client certificate"

// statuses are those of errors that are no refusal of their own.
var statuses = map[error]int{
	gate.ErrInvalid: http.StatusBadRequest,
	gate.ErrLink:    http.StatusGone,
	gate.ErrClosed:  http.StatusServiceUnavailable,
	run.ErrNotFound: http.StatusNotFound,
	run.ErrBusy:     http.StatusTooManyRequests,
	run.ErrClosed:   http.StatusServiceUnavailable,
}

// pathOf returns the path of a request as logs may have it: that of a link is
// what makes it work.
func pathOf(r *http.Request) string {
	if classOf(r.URL.Path) == "link" {
		return "/link/" + redact.Mask
	}
	return clean(r.URL.Path)
}

// clean returns a text that a request chose, as logs may have it.
func clean(text string) string { return redact.Excerpt(text, 200) }

// shown returns a text that a request chose, as an answer may have it.
func shown(text string) string { return redact.Excerpt(text, 80) }

// observeRequest counts a request, and its answer when answered is called.
func (m *metrics) observeRequest(r *http.Request) (answered func(*httpserve.Writer)) {
	m.inFlight.Inc()
	class := classOf(r.URL.Path)
	return func(a *httpserve.Writer) {
		m.inFlight.Dec()
		m.requests.WithLabelValues(class, strconv.Itoa(cmp.Or(a.Status, http.StatusOK))).Inc()
	}
}

// base returns the URL of the test runner as the caller has it, without a slash
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

// runURL is the page of a run, for people who read an answer.
func (s *Server) runURL(r *http.Request, id string) string {
	return s.base(r) + "/ui/#/runs/" + url.PathEscape(id)
}
