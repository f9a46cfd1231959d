package answer

import (
	"net/http"
	"strings"
)

// A Route is a path of an API, and what is done for calls of it, C.
type Route[C any] struct {
	Method string
	Path   string // without a slash at the beginning; * stands for one segment
	Serve  func(C) error
	Open   bool // also for callers who did not say who they are
}

// Find returns the route of a request for the segments of a path, and what the stars
// of it stand for. HEAD is answered wherever GET is. The error is a [*Refusal],
// with the header Allow when the path has other methods.
func Find[C any](routes []Route[C], w http.ResponseWriter, r *http.Request, segments []string) (*Route[C], []string, error) {
	var allowed []string
	for i := range routes {
		route := &routes[i]
		values, matches := route.match(segments)
		switch {
		case !matches:
		case route.Method == r.Method, route.Method == http.MethodGet && r.Method == http.MethodHead:
			return route, values, nil
		case route.Method == http.MethodGet:
			allowed = append(allowed, http.MethodGet, http.MethodHead)
		default:
			allowed = append(allowed, route.Method)
		}
	}
	if allowed != nil {
		return nil, nil, WrongMethod(w, allowed...)
	}
	return nil, nil, ErrNothing
}

// ErrNothing is the refusal of a path that there is not.
var ErrNothing = Refuse(http.StatusNotFound, "there is nothing at this path")

// match returns what the stars stand for.
func (a *Route[C]) match(segments []string) ([]string, bool) {
	pattern := strings.Split(a.Path, "/")
	if len(pattern) != len(segments) {
		return nil, false
	}
	var values []string
	for i, want := range pattern {
		switch {
		case want == "*":
			values = append(values, segments[i])
		case want != segments[i]:
			return nil, false
		}
	}
	return values, true
}
