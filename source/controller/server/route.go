package server

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	credentials "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/source/controller/web"
)

// A site is the handlers of paths that other packages answer.
type site struct {
	*Server
	page, artifacts http.Handler
}

// Handler returns the handler of all paths. It can be mounted below any path
// of another server by [http.StripPrefix].
func (s *Server) Handler() http.Handler {
	s.begin()
	all := site{Server: s, page: web.Handler(), artifacts: s.Store.Handler()}
	return s.entrance(s.guarded(http.HandlerFunc(all.route)))
}

// single are the paths of one segment that are answered here.
var single = map[string]func(*Server, http.ResponseWriter, *http.Request) error{
	"healthz": (*Server).serveHealth,
	"readyz":  (*Server).serveReady,
	"metrics": (*Server).serveMetrics,
}

func (s *site) route(w http.ResponseWriter, r *http.Request) {
	segments, err := split(r.URL)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	first := segments[0]
	switch {
	case first == "" && answer.Browses(r):
		w.Header().Set("Location", credentials.Take(r).Base()+"ui/") // relative: what came before may have been removed
		w.Header().Set("Vary", "Accept")
		w.WriteHeader(http.StatusSeeOther)
	case first == "api":
		err = s.serveAPI(w, r, segments[1:])
	case first == "ui":
		s.page.ServeHTTP(w, r)
	case first == "hook" && s.Hooks != nil:
		s.Hooks.ServeHTTP(w, r)
	case first == "debug" && s.Profiles:
		err = s.serveProfile(w, r, segments[1:])
	case len(segments) == 1 && single[first] != nil:
		err = reads(w, r)
		if err == nil {
			err = single[first](s.Server, w, r)
		}
	default:
		err = s.serveArtifact(w, r, segments, s.artifacts)
	}
	if err != nil {
		s.refuse(w, r, err)
	}
}

// reads refuses methods that do not read.
func reads(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return answer.WrongMethod(w, http.MethodGet, http.MethodHead)
	}
	return nil
}

// split returns the segments of a path, at least one, without those that
// repeated slashes make; a slash at the end makes an empty last one. The path
// of the URL becomes one without repeated slashes.
func split(u *url.URL) ([]string, error) {
	escaped := strings.TrimLeft(u.EscapedPath(), "/")
	segments := strings.Split(escaped, "/")
	if last := len(segments) - 1; slices.Contains(segments[:last], "") {
		kept := segments[:0]
		for i, segment := range segments {
			if segment != "" || i == last {
				kept = append(kept, segment)
			}
		}
		segments = kept
	}
	if clean := "/" + strings.Join(segments, "/"); clean != u.EscapedPath() {
		plain, err := url.PathUnescape(clean)
		if err != nil {
			return nil, errEscaped
		}
		u.Path, u.RawPath = plain, clean
	}
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return nil, errEscaped
		}
		segments[i] = plain
	}
	return segments, nil
}

var errEscaped = answer.Refuse(http.StatusBadRequest, "the path is not escaped as in URLs")

// refuse answers an error, unless the answer has begun: then the error is that
// of writing it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if answer.Begun(w) || errors.Is(err, errStreamed) {
		return
	}
	status, reason := s.problem(w, r, err)
	if isAPI(r) {
		answer.JSON(w, status, problem(status, reason))
		return
	}
	answer.Text(w, status, reason)
}

func isAPI(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/api"
}
