package tester

import (
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/access"
)

// entrance is what each request passes first: it takes credentials out of the
// request, refuses those that pages of other sites make a browser send, and
// counts. A body has to arrive in time, whether somebody reads it or not: what
// is left of it net/http reads before it answers, and lifts the deadline after it.
func (s *Server) entrance(bodies time.Duration, next http.Handler) http.Handler {
	origins := answer.Origins(s.BaseURL)
	m := s.measures()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access.Take(r)
		a := answer.Writing(w)
		a.Patient = bodies == 0 && r.ProtoMajor == 1 // by HTTP/2 a connection lives on without what one answer waits for
		if r.Header["Expect"] != nil {
			http.NewResponseController(a).SetWriteDeadline(time.Time{}) // that of the answer before: net/http is to write before there is one
		}
		if bodies > 0 && r.ContentLength != 0 {
			http.NewResponseController(a).SetReadDeadline(time.Now().Add(bodies)) // where that is not possible the server has one
		}
		m.inFlight.Add(1)
		defer func() {
			m.inFlight.Add(-1)
			m.countRequest(routeOf(r.URL.Path), a.Status)
		}()
		if err := origins.Check(r); err != nil {
			s.observeDenial(r, answer.Foreign(r.Header.Get("Origin")))
			answer.Text(a, http.StatusForbidden, answer.ForeignText)
			return
		}
		next.ServeHTTP(a, r)
	})
}

// routes are the classes of paths by which requests are counted.
var routes = [...]string{"task", "gate", "rollback", "api", "ui", "link", "launch", "health", "metrics"}

// routeIndex says which class the first segment of a path has; it is that of
// tasks for all others.
var routeIndex = map[string]int{
	"gate": 1, "rollback": 2, "api": 3, "ui": 4, "link": 5, "launch-test": 6, "health": 7, "healthz": 7, "readyz": 7, "metrics": 8,
}

func routeOf(path string) int {
	first, _, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	return routeIndex[first]
}
