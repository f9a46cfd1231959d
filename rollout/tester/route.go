package tester

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/web"
)

// Handler returns the handler of all paths. It can be mounted below any path
// of another server by [http.StripPrefix].
func (s *Server) Handler() http.Handler { return s.handler(bodyTime) }

// handler returns the handler, with the time that bodies have to arrive; 0 when
// the server of the connection sees to it, and that of package listen it is.
func (s *Server) handler(bodies time.Duration) http.Handler {
	page := web.Handler()
	return s.entrance(bodies, s.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.route(w, r, page) })))
}

// exact are the paths that are what they are, besides those below the reserved
// ones.
var exact = map[string]func(*Server, http.ResponseWriter, *http.Request){
	"/healthz":     (*Server).serveHealth,
	"/readyz":      (*Server).serveReady,
	"/metrics":     (*Server).serveMetrics,
	"/health":      (*Server).serveLauncherHealth,
	"/launch-test": (*Server).serveLaunch,
	"/":            (*Server).serveTask,
}

// reserved are the first segments below which unknown paths are not found.
var reserved = []string{"gate", "rollback", "api", "ui", "link", "token"}

func (s *Server) route(w http.ResponseWriter, r *http.Request, page http.Handler) {
	segments, err := segmentsOf(r.URL)
	if err != nil {
		s.refuseText(w, r, err)
		return
	}
	switch first, rest := segments[0], segments[1:]; {
	case first == "gate" && len(rest) > 0:
		s.routeGate(w, r, api.KindGate, rest)
	case first == "rollback" && len(rest) > 0:
		s.routeGate(w, r, api.KindRollback, rest)
	case first == "api":
		s.serveAPI(w, r, rest)
	case first == "link" && len(rest) == 1 && rest[0] != "":
		s.serveLink(w, r, rest[0])
	case first == "ui":
		page.ServeHTTP(w, r)
	case slices.Contains(reserved, first):
		s.notFound(w, r)
	default:
		s.routeOther(w, r, "/"+strings.Join(segments, "/"))
	}
}

func (s *Server) routeGate(w http.ResponseWriter, r *http.Request, kind api.Kind, rest []string) {
	route, known := gateRouteOf(kind, rest)
	if !known {
		s.notFound(w, r)
		return
	}
	s.serveGate(w, r, route)
}

func (s *Server) routeOther(w http.ResponseWriter, r *http.Request, path string) {
	serve := exact[path]
	switch {
	case path == "/" && answer.Browses(r):
		w.Header().Set("Location", access.Take(r).Base()+"ui/") // relative: what came before may have been removed
		w.Header().Set("Vary", "Accept")
		w.WriteHeader(http.StatusSeeOther)
	case serve != nil:
		serve(s, w, r)
	case s.Strict:
		s.notFound(w, r)
	default:
		s.serveTask(w, r)
	}
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.refuseText(w, r, answer.ErrNothing)
}

// segmentsOf returns the segments of a path, at least one.
func segmentsOf(u *url.URL) ([]string, error) {
	if u.RawPath == "" { // no segment has an escaped slash
		return split(u.Path), nil
	}
	segments := split(u.EscapedPath())
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return nil, answer.Refuse(http.StatusBadRequest, "the path is not escaped as in URLs")
		}
		segments[i] = plain
	}
	return segments, nil
}

// split splits a path at its slashes. Empty segments count below /api/ alone,
// where they are names.
func split(path string) []string {
	path = strings.TrimLeft(path, "/")
	segments := strings.Split(path, "/")
	if segments[0] != "api" && strings.Contains(path, "//") {
		last := len(segments) - 1
		kept := segments[:0]
		for i, segment := range segments {
			if segment != "" || i == last {
				kept = append(kept, segment)
			}
		}
		segments = kept
	}
	return segments
}
