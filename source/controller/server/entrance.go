package server

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	credentials "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
)

// entrance is what each request passes first: it takes credentials out of the
// request, refuses those that pages of other sites make a browser send, and
// counts.
func (s *Server) entrance(next http.Handler) http.Handler {
	origins := answer.Origins(s.BaseURL)
	m, limit := s.measures(), newRates(s.Rate)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isHook(r) { // whose tokens are its own
			credentials.Take(r)
		}
		a := answer.Writing(w)
		m.inFlight.Add(1)
		defer func() {
			m.inFlight.Add(-1)
			m.countRequest(routeOf(r.URL.Path), a)
		}()
		err := limit.check(a, r)
		if origins.Check(r) != nil {
			err = errForeign
		}
		if err != nil && !isHealth(r) {
			s.refuse(a, r, err)
			return
		}
		next.ServeHTTP(a, r)
	})
}

var errForeign = answer.Refuse(http.StatusForbidden, "requests of pages of other sites are refused")

// guarded answers 500 when a handler panics: the process goes on. When the
// answer has begun its connection is closed instead.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if cause := recover(); cause != nil {
				s.recovered(w, r, cause)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) recovered(w http.ResponseWriter, r *http.Request, cause any) {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	s.logger().Error("defect: a request made the server panic", "method", r.Method, "path", clean(r.URL.Path),
		"error", redact.String(fmt.Sprint(cause)), "stack", string(debug.Stack()))
	if answer.Begun(w) {
		panic(http.ErrAbortHandler)
	}
	answer.Text(w, http.StatusInternalServerError, "the server has a defect, see its log")
}
