package httpserve

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/headgate-io/headgate/internal/redact"
)

// A Router serves the paths of a server by handlers that return errors. If a path has routes for some methods, it
// answers 405 to the others instead of passing them to a catch-all route.
//
// Before the Router calls a handler, it removes the credentials from the request. It refuses requests for another
// host, see [HostAllowed], and requests that a page of another site made a browser send. If a handler panics, the
// Router answers 500 and the process continues.
type Router struct {
	http.ServeMux
	Server          string                      // name of the server in answers
	Origins         *http.CrossOriginProtection // see [Origins]
	KeepCredentials string                      // prefix of paths whose handlers read the credentials themselves; "" for none
	Names           string                      // first segment, between slashes, of paths in which empty segments are names; "" for none
	Statuses        map[error]int               // statuses of errors that are neither a [Refusal] nor a [Denial]; default 500
	Unknown         func(kind string) string    // returns how to authenticate, for the answer to a [Denial] of that kind
	Forbidden       string                      // text of the answer to a caller that is not allowed
	Problem         func(*http.Request) bool    // reports whether errors are answered as JSON instead of text
	Log             *slog.Logger
	Path            func(*http.Request) string                   // returns the path for the log
	Denied          func(kind string)                            // called with the kind of each [Denial]
	Observe         func(*http.Request) (answered func(*Writer)) // called with each request; answered is called after the answer

	methods map[string][]string // by path
}

// Route adds a handler for a pattern, which is PATH for all methods, or METHOD PATH.
func (m *Router) Route(pattern string, serve func(http.ResponseWriter, *http.Request) error) {
	m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			m.refuse(w.(*Writer), r, err)
		}
	})
	method, path, found := strings.Cut(pattern, " ")
	if !found {
		return
	}
	if m.methods[path] == nil {
		m.Route(path, func(w http.ResponseWriter, _ *http.Request) error { return WrongMethod(w, m.methods[path]...) })
	}
	if m.methods == nil {
		m.methods = map[string][]string{}
	}
	if m.methods[path] = append(m.methods[path], method); method == http.MethodGet { // GET routes serve HEAD as well
		m.methods[path] = append(m.methods[path], http.MethodHead)
	}
}

// WrongMethod sets the header Allow and returns the refusal of a method that is not allowed.
func WrongMethod(w http.ResponseWriter, allowed ...string) error {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return Refuse(http.StatusMethodNotAllowed, "use %s", strings.Join(allowed, " or "))
}

// Sessions adds the routes by which users log in to the web page and out of it: POST {"token": …} begins a session and
// answers with the value that session returns for the caller, DELETE ends the session.
func (m *Router) Sessions(path string, g *Guard, bodies *Bodies, session func(Grant) any) {
	m.Route("POST "+path, func(w http.ResponseWriter, r *http.Request) error {
		var request struct {
			Token string `json:"token"`
		}
		if err := bodies.JSON(w, r, &request); err != nil {
			return err
		}
		grant, err := g.Login(w, r, request.Token)
		if err != nil {
			return err
		}
		return JSON(w, http.StatusOK, session(grant))
	})
	m.Route("DELETE "+path, func(w http.ResponseWriter, r *http.Request) error {
		g.Logout(w, r)
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}

// ServeHTTP implements [http.Handler].
func (m *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.KeepCredentials == "" || !strings.HasPrefix(r.URL.Path, m.KeepCredentials) {
		takeCredentials(r)
	}
	a := NewWriter(w, r)
	defer m.Observe(r)(a)
	defer m.recoverPanic(a, r)
	var refused *Denial
	switch {
	case !HostAllowed(r):
		refused = &Denial{Kind: "host", Message: otherHostAnswer, err: fmt.Errorf("%w: the request is for the host %q", ErrForbidden, r.Host)}
	case m.Origins.Check(r) != nil:
		refused = &Denial{Kind: "origin", Message: "Forbidden: requests of other sites are refused", err: fmt.Errorf("%w: the request is of a page of %q", ErrForbidden, r.Header.Get("Origin"))}
	default:
		normalize(r.URL, m.Names)
		m.ServeMux.ServeHTTP(a, r)
		return
	}
	takeCredentials(r) // before its path is logged
	m.refuse(a, r, refused)
}

// recoverPanic is deferred: it logs the panic of a handler and answers 500. If the answer has begun, it closes the
// connection instead. It does not log [http.ErrAbortHandler], by which a handler closes the connection on purpose.
func (m *Router) recoverPanic(a *Writer, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause != http.ErrAbortHandler {
		m.Log.Error("defect: a request made the "+m.Server+" panic", "method", r.Method, "path", m.Path(r), "error", redact.String(fmt.Sprint(cause)), "stack", string(debug.Stack()))
	}
	if a.Status != 0 || cause == http.ErrAbortHandler {
		panic(http.ErrAbortHandler)
	}
	Text(a, http.StatusInternalServerError, "the "+m.Server+" has a defect, see its log")
}

// maxLogged is the maximum length of the logged error of a [Denial], in bytes.
const maxLogged = 1000

// refuse answers with an error. If the answer has begun, it does nothing: then err is a write error.
func (m *Router) refuse(a *Writer, r *http.Request, err error) {
	if a.Status != 0 {
		return
	}
	status, reason, header := m.status(err), redact.String(err.Error()), a.Header()
	if denial, ok := errors.AsType[*Denial](err); ok {
		m.Denied(denial.Kind)
		m.Log.Warn("refused", "reason", denial.Kind, "actor", denial.Actor, "remote", Remote(r), "method", r.Method, "path", m.Path(r), "error", redact.Excerpt(reason, maxLogged))
		if reason = cmp.Or(denial.Message, m.Forbidden); status == http.StatusUnauthorized {
			reason = m.Unknown(denial.Kind)
			header.Set("WWW-Authenticate", "Bearer")
		}
	}
	switch status {
	case http.StatusRequestEntityTooLarge:
		header.Set("Connection", "close")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		header.Set("Retry-After", RetryAfter)
	case http.StatusInternalServerError:
		m.Log.Error("a request could not be answered", "method", r.Method, "path", m.Path(r), "error", reason)
		reason = "the " + m.Server + " could not do it, see its log" // the cause may contain file names
	}
	if !m.Problem(r) {
		Text(a, status, reason)
		return
	}
	JSON(a, status, struct {
		Status int    `json:"status"`
		Reason string `json:"reason"`
	}{status, reason})
}

// RetryAfter is the default value of the header Retry-After, in seconds.
const RetryAfter = "5"

// status returns the status of the answer to an error.
func (m *Router) status(err error) int {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Status
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return http.StatusUnauthorized
	case errors.Is(err, ErrForbidden):
		return http.StatusForbidden
	}
	for one, status := range m.Statuses {
		if errors.Is(err, one) {
			return status
		}
	}
	return http.StatusInternalServerError
}

// Origins returns a check that allows browsers to send requests that change something only from pages of this
// server, including its public base URL.
func Origins(baseURL string) *http.CrossOriginProtection {
	p := http.NewCrossOriginProtection()
	if scheme, rest, found := strings.Cut(baseURL, "://"); found {
		host, _, _ := strings.Cut(rest, "/")
		p.AddTrustedOrigin(scheme + "://" + host) // a base URL without a host trusts none
	}
	return p
}

// emptySegment replaces an empty segment of a path, which [http.ServeMux] does not match.
const emptySegment = "\x00"

// normalize rewrites a path so that [http.ServeMux] serves it without a redirect. It joins repeated slashes,
// except if the first segment, between slashes, equals names: there an empty segment is a name. The segments
// "." and ".." are names everywhere.
func normalize(u *url.URL, names string) {
	segments := strings.Split(strings.TrimLeft(u.EscapedPath(), "/"), "/")
	below := "/"+segments[0]+"/" == names
	var parts []string
	for i, segment := range segments {
		switch {
		case segment == "." || segment == "..":
			segment = strings.ReplaceAll(segment, ".", "%2E")
		case segment == "" && below:
			segment = url.PathEscape(emptySegment)
		case segment == "" && i < len(segments)-1:
			continue
		}
		parts = append(parts, segment)
	}
	u.RawPath = "/" + strings.Join(parts, "/")
	u.Path, _ = url.PathUnescape(u.RawPath) // cannot fail: RawPath consists of valid escaped segments
}

// Segment returns the segment of the path for a wildcard of the route; it may be empty below Names.
func Segment(r *http.Request, name string) string {
	return strings.ReplaceAll(r.PathValue(name), emptySegment, "")
}
