package tester

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
)

// guarded answers 500 when a handler panics: the process goes on. When the
// answer has begun its connection is closed instead.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answer.Writing(w)
		defer func() {
			if cause := recover(); cause != nil {
				s.recovered(a, r, cause)
			}
		}()
		next.ServeHTTP(a, r)
	})
}

func (s *Server) recovered(a *answer.Writer, r *http.Request, cause any) {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	s.logger().Error("defect: a request made the test runner panic", "method", r.Method, "path", pathOf(r),
		"cause", redact.String(fmt.Sprint(cause)), "stack", string(debug.Stack()))
	if a.Status != 0 {
		panic(http.ErrAbortHandler)
	}
	answer.Text(a, http.StatusInternalServerError, "the test runner has a defect, see its log")
}

// broke logs why a request is answered 500.
func (s *Server) broke(r *http.Request, err error) {
	s.logger().Error("a request could not be answered", "method", r.Method, "path", pathOf(r), "cause", redact.String(err.Error()))
}

// pathOf returns the path of a request as logs may have it: that of a link is
// what makes it work.
func pathOf(r *http.Request) string {
	if routes[routeOf(r.URL.Path)] == "link" {
		return "/link/" + redact.Mask
	}
	return clean(r.URL.Path)
}
