package tester

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/listen"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// ObserveRun counts and logs a run; it is for [run.Config] Observe.
func (s *Server) ObserveRun(r api.Run, shared bool) {
	m := &s.measures().runs
	if shared {
		m.shared.WithLabelValues(r.Type).Inc()
		s.logShared(r)
		return
	}
	if _, queued := m.waiting.LoadAndDelete(r.ID); queued {
		m.queued.Dec()
	}
	switch r.State {
	case api.Queued:
		m.waiting.Store(r.ID, nil)
		m.queued.Inc()
	case api.Running:
		m.running.Inc()
		m.started.WithLabelValues(r.Type).Inc()
	default:
		m.ended.WithLabelValues(r.Type, string(r.State)).Inc()
		m.output.WithLabelValues(r.Type).Add(float64(r.Bytes))
		if !r.Started.IsZero() {
			m.running.Dec()
			m.duration.WithLabelValues(r.Type).Observe(r.Ended.Sub(r.Started).Seconds())
		}
	}
	s.logRun(r)
}

// observeCheck counts a check of a gate.
func (s *Server) observeCheck(kind api.Kind, open bool) {
	of, result := 0, 0
	if kind == api.KindRollback {
		of = 1
	}
	if open {
		result = 1
	}
	s.measures().checks[of][result].Inc()
}

// observeChange counts and logs a change of a gate: open, close, reject, link.
func (s *Server) observeChange(g api.Gate, action, actor string) {
	s.measures().changes.WithLabelValues(string(g.Kind), action).Inc()
	s.logChange(g, action, actor)
}

// observeDenial counts and logs that a caller was refused, err is that of package access.
func (s *Server) observeDenial(r *http.Request, err error) {
	reason, actor := "unknown", ""
	if denial, ok := errors.AsType[*access.Denial](err); ok {
		reason, actor = denial.Kind, denial.Actor
	} else if _, ok := errors.AsType[answer.Foreign](err); ok {
		reason = "origin"
	} else if _, ok := errors.AsType[listen.Misdirected](err); ok {
		reason = "host"
	}
	s.measures().denials.WithLabelValues(reason).Inc()
	s.logDenial(r, reason, actor, err)
}

// countRequest counts an answer. Its counter is looked up the first time.
func (m *metrics) countRequest(route, status int) {
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
}

// serveMetrics answers with the metrics in the format of Prometheus. Where
// callers have to say who they are any credential will do, unless OpenMetrics.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.refuseText(w, r, answer.WrongMethod(w, http.MethodGet, http.MethodHead))
		return
	}
	if !s.OpenMetrics {
		if _, err := s.Guard.Identify(r, ""); err != nil {
			s.refuseText(w, r, err)
			return
		}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	s.measures().handler.ServeHTTP(w, r)
}
