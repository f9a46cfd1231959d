package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
	"github.com/headgate-io/headgate/source/controller/hook"
)

// ObserveRun counts, logs and remembers a run; it is for controller.Controller Observe.
func (s *Server) ObserveRun(r controller.Run) {
	m, kind, outcome := s.measures(), r.Object.Kind, r.Result.Outcome
	m.runs.WithLabelValues(kind).Observe(r.Took.Seconds())
	m.late.WithLabelValues(kind).Observe(max(0, r.Started.Sub(r.Due).Seconds()))
	m.outcomes.WithLabelValues(kind, string(r.Trigger), string(outcome)).Inc()
	if !s.history.notable(r.Object, outcome) {
		s.logRun(r, "", false)
		return
	}
	revision, size := "", int64(0)
	if a := r.Artifact; a != nil {
		revision, size = a.Revision, a.Size
	}
	if outcome == source.Stored {
		m.stored.WithLabelValues(kind).Add(float64(size))
		fetched := r.Result.Report.Bytes
		if fetched == 0 {
			fetched = size // one file as it is
		}
		m.fetched.WithLabelValues(kind).Add(float64(fetched))
	}
	recovered := s.history.add(r, revision)
	s.logRun(r, revision, recovered)
}

// ObserveDelivery counts an event that was posted to a receiver: an error is
// that of the first attempt, or with lost the last.
func (s *Server) ObserveDelivery(err error, lost bool) {
	result := "delivered"
	switch {
	case lost:
		result = "lost"
	case err != nil:
		result = "failed"
	}
	s.measures().told.WithLabelValues(result).Inc()
}

// ObserveHook counts and logs a call of a webhook; it is for hook.Receiver Observe.
func (s *Server) ObserveHook(o hook.Outcome) {
	s.measures().hooks.WithLabelValues(o.Provider, strconv.Itoa(o.Status)).Inc()
	s.logHook(o)
}

// routes are the classes of paths by which requests are counted.
var routes = [...]string{"artifact", "api", "ui", "hook", "health", "metrics", "debug", "other"}

// routeIndex says which class the first segment of a path has.
var routeIndex = map[string]int{"api": 1, "ui": 2, "hook": 3, "healthz": 4, "readyz": 4, "metrics": 5, "debug": 6, "": 7}

const artifactRoute = 0

func routeOf(path string) int {
	first, rest, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	if index, known := routeIndex[first]; known {
		return index
	}
	if _, known := source.ParseKind(first); !known || rest == "" {
		return len(routes) - 1
	}
	return artifactRoute
}

func isHealth(r *http.Request) bool { return routes[routeOf(r.URL.Path)] == "health" }

func isHook(r *http.Request) bool { return routes[routeOf(r.URL.Path)] == "hook" }

// countRequest counts an answer. Its counter is looked up the first time.
func (m *metrics) countRequest(route int, a *answer.Writer) {
	status := a.Status
	if status < 100 || status >= len(m.counted[route]) {
		status = http.StatusOK // what net/http answers for a handler that says nothing
	}
	counter := m.counted[route][status].Load()
	if counter == nil {
		found := m.requests.WithLabelValues(routes[route], strconv.Itoa(status))
		counter = &found
		m.counted[route][status].Store(counter)
	}
	(*counter).Inc()
	if route == artifactRoute && status < http.StatusMultipleChoices {
		m.served.Add(float64(a.Bytes))
	}
}
