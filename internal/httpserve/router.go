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

// A Router serves the paths of a server by handlers that return errors. A path that has methods refuses
// the others, which a path that catches all would get.
//
// Before a handler gets a request its credentials are taken out of it, and it is refused when it is for
// another host, see [Here], or when a page of another site made a browser send it. A handler that panics is answered
// 500, and the process goes on.
type Router struct {
	http.ServeMux
	Server    string                      // what answers call the server
	Origins   *http.CrossOriginProtection // see [Origins]
	Own       string                      // prefix of paths whose handlers read credentials of their own; "" for none
	Names     string                      // first segment, between slashes, of paths in which empty segments are names; "" for none
	Statuses  map[error]int               // of errors that are neither a [Refusal] nor a [Denial]; 500 of others
	Unknown   func(kind string) string    // tells the caller of a [Denial] of that kind how to say who it is
	Forbidden string                      // tells a caller that it may not do what it asks for
	Problem   func(*http.Request) bool    // its error is answered as JSON; else as text
	Log       *slog.Logger
	Path      func(*http.Request) string                   // as the log may have it
	Denied    func(kind string)                            // is told of each [Denial]
	Observe   func(*http.Request) (answered func(*Writer)) // is told of each request and its answer

	methods map[string][]string // by path
}

// Route has a handler serve PATH, whatever the method is, or METHOD PATH.
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
	if m.methods[path] = append(m.methods[path], method); method == http.MethodGet { // which serves HEAD, too
		m.methods[path] = append(m.methods[path], http.MethodHead)
	}
}

// WrongMethod returns the refusal of a method that a path does not have.
func WrongMethod(w http.ResponseWriter, allowed ...string) error {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return Refuse(http.StatusMethodNotAllowed, "use %s", strings.Join(allowed, " or "))
}

// Sessions has people log in and out of the web page at a path: POST {"token": …} begins a session and answers with what
// session says of the caller, DELETE ends it.
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
	if m.Own == "" || !strings.HasPrefix(r.URL.Path, m.Own) {
		take(r)
	}
	a := Answering(w, r)
	defer m.Observe(r)(a)
	defer m.recover(a, r)
	if err := m.admit(r); err != nil {
		take(r) // before its path is logged
		m.refuse(a, r, err)
		return
	}
	normalize(r.URL, m.Names)
	m.ServeMux.ServeHTTP(a, r)
}

// recover is for defer: it answers 500 when a handler panics. When the answer has begun its connection is closed
// instead. It tells the log, unless the handler meant to close the connection.
func (m *Router) recover(a *Writer, r *http.Request) {
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

// admit refuses requests for another host, and those that a page of another site made a browser send, with whatever
// credentials.
func (m *Router) admit(r *http.Request) error {
	switch {
	case !Here(r):
		return &Denial{Kind: "host", Told: misdirected, err: fmt.Errorf("%w: the request is for the host %q", ErrForbidden, r.Host)}
	case m.Origins.Check(r) != nil:
		return &Denial{Kind: "origin", Told: "Forbidden: requests of other sites are refused", err: fmt.Errorf("%w: the request is of a page of %q", ErrForbidden, r.Header.Get("Origin"))}
	}
	return nil
}

// maxLogged is how much of the error of a caller that is refused the log has, in bytes.
const maxLogged = 1000

// refuse answers an error, unless the answer has begun: then the error is that of writing it.
func (m *Router) refuse(a *Writer, r *http.Request, err error) {
	if a.Status != 0 {
		return
	}
	status, reason, header := m.status(err), redact.String(err.Error()), a.Header()
	if denial, ok := errors.AsType[*Denial](err); ok {
		m.Denied(denial.Kind)
		m.Log.Warn("refused", "reason", denial.Kind, "actor", denial.Actor, "remote", Remote(r), "method", r.Method, "path", m.Path(r), "error", redact.Excerpt(reason, maxLogged))
		if reason = cmp.Or(denial.Told, m.Forbidden); status == http.StatusUnauthorized {
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
		reason = "the " + m.Server + " could not do it, see its log" // the cause names files
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

// RetryAfter is when a caller may come again, in seconds, when there is no better guess.
const RetryAfter = "5"

// status returns the status of the answer to an error.
func (m *Router) status(err error) int {
	if own, ok := errors.AsType[*Refusal](err); ok {
		return own.Status
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

// Origins returns who may make browsers send requests that change something:
// pages of this server, also under the address that people know it by.
func Origins(baseURL string) *http.CrossOriginProtection {
	p := http.NewCrossOriginProtection()
	if scheme, rest, found := strings.Cut(baseURL, "://"); found {
		host, _, _ := strings.Cut(rest, "/")
		p.AddTrustedOrigin(scheme + "://" + host) // a base URL without a host trusts none
	}
	return p
}

// empty stands for an empty segment of a path, which [http.ServeMux] does not match.
const empty = "\x00"

// normalize makes a path one that [http.ServeMux] serves as it is. Repeated slashes count
// as one, but below names, a first segment between slashes, an empty segment is a
// name; "" for no prefix. The segments "." and ".." are names everywhere.
func normalize(u *url.URL, names string) {
	segments := strings.Split(strings.TrimLeft(u.EscapedPath(), "/"), "/")
	below := "/"+segments[0]+"/" == names
	var kept []string
	for i, segment := range segments {
		switch {
		case segment == "." || segment == "..":
			segment = strings.ReplaceAll(segment, ".", "%2E")
		case segment == "" && below:
			segment = url.PathEscape(empty)
		case segment == "" && i < len(segments)-1:
			continue
		}
		kept = append(kept, segment)
	}
	u.RawPath = "/" + strings.Join(kept, "/")
	u.Path, _ = url.PathUnescape(u.RawPath) // of parts of an escaped path
}

// Segment returns a segment of the path by its name in the route.
func Segment(r *http.Request, name string) string {
	return strings.ReplaceAll(r.PathValue(name), empty, "")
}
