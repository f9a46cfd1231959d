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
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/access"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/hook"
	"github.com/headgate-io/headgate/source/serve/journal"
)

// A Server serves what a controller keeps. Its fields are set before the first request.
type Server struct {
	Controller *serve.Controller
	Store      *artifact.Store
	Journal    *journal.Journal // nil: there are no events
	Hooks      *hook.Receiver   // nil: there are no webhooks
	Guard      *access.Guard    // nil: all callers may do everything
	BaseURL    string           // by which callers know the server; "" for the address of the request

	OpenArtifacts bool // artifacts need no credential although callers have to say who they are
	OpenMetrics   bool // nor do metrics
	Profiles      bool // /debug/pprof/ is there, for callers that may debug

	Log *slog.Logger // nil for none

	Keepalive time.Duration // between comments of an idle stream; default 15s

	once    sync.Once
	ending  chan struct{} // closed by Shutdown: streams end
	end     func()        // closes it
	began   time.Time
	bodies  *httpserve.Bodies
	metrics metrics
	history history
}

// started returns the server, ready for requests.
func (s *Server) started() *Server {
	s.once.Do(func() {
		s.ending = make(chan struct{})
		s.end = sync.OnceFunc(func() { close(s.ending) })
		s.began = time.Now()
		s.bodies = httpserve.NewBodies(64 << 10)
		s.metrics.build(s)
	})
	return s
}

// Shutdown ends streams and waits, and has /readyz answer 503; all else is
// answered as long as a caller asks. It returns at once.
func (s *Server) Shutdown(context.Context) error {
	s.started().end()
	return nil
}

// An Endpoint is where a server listens, and what is asked of its callers. It has
// the fields
//
//	Addr      string        // HOST:PORT; default 127.0.0.1:9090; port 0 takes a free one
//	Socket    string        // path of a socket of mode 0600, whose callers may do everything; "" for none
//	Cert, Key string        // PEM files for TLS, both or none; read again when they change
//	ClientCA  string        // PEM file; clients have to show a certificate by it
//	Optional  bool          // clients without a certificate have to have a token
//	Insecure  bool          // an address that others can reach needs no authentication
//	Grace     time.Duration // for answers when it ends; default 30 s
type Endpoint = httpserve.Endpoint

// Errors of Listen.
var (
	ErrExposed = httpserve.ErrExposed // others can reach the address, and callers need not say who they are
	ErrRunning = httpserve.ErrRunning // another server listens at the socket
)

// A Listener is where a server can be reached.
type Listener struct {
	URL string // as http://127.0.0.1:9090

	server   *Server
	listener *httpserve.Listener
}

// Listen begins to listen. It needs no more of the server than Guard, BaseURL
// and Log, so that the URL is known before there is a store.
//
// An address that is not of this machine alone is refused with [ErrExposed],
// unless callers have to say who they are or e.Insecure is set. Without
// authentication an address of this machine answers only requests for this
// machine, or for the host of BaseURL: pages of other sites can make a browser
// come here under a name of their own.
//
// A socket that a killed server left is replaced; when its server runs the error
// wraps [ErrRunning].
func (s *Server) Listen(ctx context.Context, e Endpoint) (*Listener, error) {
	e.Addr = cmp.Or(e.Addr, "127.0.0.1:9090")
	l, err := httpserve.Listen(ctx, e, s.Guard.Required(), s.BaseURL, func(err error) { s.logger().Error("certificates", "problem", err.Error()) })
	if err != nil {
		return nil, err
	}
	return &Listener{l.URL, s, l}, nil
}

// Serve serves until ctx ends, and then ends gracefully: no new callers are let in,
// streams end, and callers that wait get their answers. What takes longer than
// Grace is cut off, with an error. The socket is removed.
func (l *Listener) Serve(ctx context.Context) error {
	return l.listener.Serve(ctx, l.server.handler(l.listener), l.server.logger(), l.server.Shutdown)
}

// Close ends the listening of one that does not serve.
func (l *Listener) Close() error { return l.listener.Close() }

// Handler returns the handler of all paths. It can be mounted below any path
// of another server by [http.StripPrefix].
func (s *Server) Handler() http.Handler { return s.handler(nil) }

// handler returns the handler of a listener, nil for that of another server.
func (s *Server) handler(l *httpserve.Listener) http.Handler {
	s.started()
	mux, origins := s.mux(), httpserve.Origins(s.BaseURL)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r.URL.Path) != "hook" || s.Hooks == nil { // whose tokens are its own
			httpserve.Take(r)
		}
		a := httpserve.Answering(w, r)
		defer s.metrics.request(r)(a)
		defer httpserve.Recover(a, "server", func(cause, stack string) {
			s.logger().Error("defect: a request made the server panic", "method", r.Method, "path", clean(r.URL.Path), "error", cause, "stack", stack)
		})
		switch {
		case l != nil && !l.Here(r):
			httpserve.Take(r) // before its path is logged
			s.denied(r, "host", "", fmt.Errorf("the request is for the host %q", r.Host))
			httpserve.Text(a, http.StatusForbidden, httpserve.MisdirectedText)
		case origins.Check(r) != nil:
			s.denied(r, "origin", "", fmt.Errorf("the request is of a page of %q", r.Header.Get("Origin")))
			s.answerError(a, r, http.StatusForbidden, "requests of pages of other sites are refused")
		default:
			normalize(r.URL)
			mux.ServeHTTP(a, r)
		}
	})
}

// normalize makes a path one that [http.ServeMux] serves as it is: repeated slashes
// count as one, and the segments "." and ".." are names.
func normalize(u *url.URL) {
	path := u.EscapedPath()
	if strings.HasPrefix(path, "/") && !strings.Contains(path, "//") && !strings.Contains(path, "/.") {
		return
	}
	segments := strings.Split(strings.TrimLeft(path, "/"), "/")
	kept := segments[:0]
	for i, segment := range segments {
		switch {
		case segment == "." || segment == "..":
			kept = append(kept, strings.ReplaceAll(segment, ".", "%2E"))
		case segment != "" || i == len(segments)-1:
			kept = append(kept, segment)
		}
	}
	u.RawPath = "/" + strings.Join(kept, "/")
	u.Path, _ = url.PathUnescape(u.RawPath) // of parts of an escaped path
}

type method = httpserve.Method[*Server]

// routes are the paths, by the patterns of [http.ServeMux], and what serves them by
// their methods.
var routes = map[string][]method{
	"/healthz": {{Name: "GET", Serve: (*Server).healthz}},
	"/readyz":  {{Name: "GET", Serve: (*Server).readyz}},
	"/metrics": {{Name: "GET", Serve: (*Server).serveMetrics}},

	"/api/v1/sources": {get(onDocuments, (*apiCall).sources)},
	"/api/v1/sources/{kind}/{namespace}/{name}":           {get(onDocuments, (*apiCall).source)},
	"/api/v1/sources/{kind}/{namespace}/{name}/files":     {get(onDocuments, (*apiCall).files)},
	"/api/v1/sources/{kind}/{namespace}/{name}/runs":      {get(onDocuments, (*apiCall).runs)},
	"/api/v1/sources/{kind}/{namespace}/{name}/reconcile": {post(onDocuments, (*apiCall).reconcile)},
	"/api/v1/sources/{kind}/{namespace}/{name}/suspend":   {post(onDocuments, (*apiCall).suspend)},
	"/api/v1/sources/{kind}/{namespace}/{name}/resume":    {post(onDocuments, (*apiCall).resume)},
	"/api/v1/watch":  {get(byCaller, (*apiCall).watch)},
	"/api/v1/events": {get(byCaller, (*apiCall).events)},
	"/api/v1/stats":  {get(byCaller, (*apiCall).stats)},
	"/api/v1/session": {get(byCaller, (*apiCall).session), post(byAnyone, (*apiCall).login),
		{Name: "DELETE", Serve: byAnyone((*apiCall).logout)}},
}

//go:embed page
var page embed.FS

// Page returns the handler of the web page, which speaks to a server by the API of
// package api and nothing else. It answers below /ui/.
func Page() http.Handler { return httpserve.Page(page, "page") }

func (s *Server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				s.refuse(w, r, err)
			}
		})
	}
	for pattern, methods := range routes {
		handle(pattern, func(w http.ResponseWriter, r *http.Request) error { return httpserve.Dispatch(s, w, r, methods...) })
	}
	if s.Profiles {
		handle("/debug/pprof/{name}", s.profile)
		handle("/debug/pprof/{$}", s.profile)
	}
	if s.Hooks != nil {
		mux.Handle("/hook/", s.Hooks)
	}
	pages := Page()
	mux.Handle("/ui", pages)
	mux.Handle("/ui/", pages)
	store := s.Store.Handler()
	handle("/", func(w http.ResponseWriter, r *http.Request) error { return s.artifact(w, r, store) })
	return mux
}

// artifact answers what is below no other path: an artifact, to callers that may
// fetch it, the page for browsers at the root, or nothing.
func (s *Server) artifact(w http.ResponseWriter, r *http.Request, store http.Handler) error {
	if r.URL.Path == "/" && httpserve.Browses(r) {
		w.Header().Set("Location", httpserve.Take(r).Base()+"ui/") // relative: what came before may have been removed
		w.Header().Set("Vary", "Accept")
		w.WriteHeader(http.StatusSeeOther)
		return nil
	}
	path := strings.Split(r.URL.Path, "/")[1:]
	if len(path) != 4 && len(path) != 5 {
		return httpserve.ErrNothing
	}
	ref, err := source.ParseReference(strings.Join(path[:3], "/"))
	if err != nil {
		return httpserve.ErrNothing
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return httpserve.WrongMethod(w, http.MethodGet, http.MethodHead)
	}
	if s.Guard.Required() && !s.OpenArtifacts {
		if err := s.allowed(r, func(g access.Grant) error { return g.Fetch(ref) }); err != nil {
			return err
		}
		w = private{w.(*httpserve.Writer)}
	}
	if slices.ContainsFunc(source.Spellings(ref.Kind)[1:], func(kind string) bool { return path[0] == strings.ToLower(kind) }) {
		r = r.Clone(r.Context()) // the store has one directory for both groups
		r.URL.Path, r.URL.RawPath = "/"+strings.ToLower(ref.Kind)+"/"+strings.Join(path[1:], "/"), ""
	}
	store.ServeHTTP(w, r)
	return nil
}

// private keeps what only some callers may fetch out of shared caches.
type private struct{ *httpserve.Writer }

// WriteHeader implements [http.ResponseWriter].
func (p private) WriteHeader(status int) {
	header := p.Header()
	if caching := header.Get("Cache-Control"); caching != "" {
		header.Set("Cache-Control", strings.Replace(caching, "public", "private", 1))
	}
	header.Add("Vary", "Authorization")
	p.Writer.WriteHeader(status)
}

// allowed returns why a caller may not do something.
func (s *Server) allowed(r *http.Request, may func(access.Grant) error) error {
	grant, err := s.Guard.Identify(r)
	if err != nil {
		return err
	}
	return may(grant)
}

// healthz answers that the process serves.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return httpserve.Text(w, http.StatusOK, "OK\n")
}

// readyz answers whether the server has what it is asked for, or else which
// parts are missing, one a line.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	var missing []string
	select {
	case <-s.ending:
		missing = append(missing, "server: shutting down")
	default:
	}
	if !s.Controller.Ready() {
		missing = append(missing, "controller: the documents are not read yet, or the saved statuses are not restored")
	}
	if err := s.Store.Writable(); err != nil {
		missing = append(missing, "store: "+err.Error())
	}
	if len(missing) > 0 {
		return httpserve.Text(w, http.StatusServiceUnavailable, strings.Join(missing, "\n")+"\n")
	}
	return httpserve.Text(w, http.StatusOK, "OK\n")
}

// profiles are the pages of net/http/pprof that are no profile of the runtime.
var profiles = map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace}

// profile answers with a profile of the process.
func (s *Server) profile(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return httpserve.WrongMethod(w, http.MethodGet, http.MethodHead)
	}
	if err := s.allowed(r, access.Grant.Debug); err != nil {
		return err
	}
	name := r.PathValue("name")
	switch serve := profiles[name]; {
	case serve != nil:
		serve(w, r)
	case name == "cmdline": // flags may be secret
		return httpserve.ErrNothing
	default:
		pprof.Handler(name).ServeHTTP(w, r)
	}
	return nil
}

const retryAfter = "5" // seconds

// unknown says how a caller can say who it is.
const unknown = "say who you are: by a token in the header Authorization (Bearer, or Basic as password) or by a client certificate; " +
	"headgate takes it from --token-file or HEADGATE_TOKEN"

// statuses are those of errors that are no refusal of their own.
var statuses = []struct {
	err    error
	status int
}{
	{access.ErrUnknown, http.StatusUnauthorized},
	{access.ErrForbidden, http.StatusForbidden},
	{fs.ErrNotExist, http.StatusNotFound},
	{serve.ErrSuspended, http.StatusConflict},
	{serve.ErrEnded, http.StatusServiceUnavailable},
}

func statusOf(err error) int {
	if own, ok := errors.AsType[*httpserve.Refusal](err); ok {
		return own.Status
	}
	for _, known := range statuses {
		if errors.Is(err, known.err) {
			return known.status
		}
	}
	return http.StatusInternalServerError
}

// refuse answers an error, unless the answer has begun: then the error is that
// of writing it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if httpserve.Begun(w) || errors.Is(err, errStreamed) {
		return
	}
	status, reason := statusOf(err), redact.String(err.Error())
	if denial, ok := errors.AsType[*access.Denial](err); ok {
		s.denied(r, denial.Kind, denial.Actor, err)
	}
	header := w.Header()
	switch status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
		reason = unknown
	case http.StatusForbidden:
		reason = "the credential does not allow it"
	case http.StatusRequestEntityTooLarge:
		header.Set("Connection", "close")
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", retryAfter)
	case http.StatusInternalServerError:
		s.logger().Error("a request could not be answered", "method", r.Method, "path", clean(r.URL.Path), "error", reason)
		reason = "the server could not do it, see its log" // the cause names files
	}
	s.answerError(w, r, status, reason)
}

// answerError answers with an error, as JSON below /api/.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, status int, reason string) {
	if r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/") {
		httpserve.JSON(w, status, api.Problem{Status: status, Reason: reason})
		return
	}
	httpserve.Text(w, status, reason)
}
