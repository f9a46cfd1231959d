package tester

import (
	"net/http"

	"github.com/headgate-io/headgate/internal/answer"
)

// serveHealth answers that the process serves.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	answer.Text(w, http.StatusOK, "OK")
}

// serveReady answers whether the process takes work: 503 with a reason when its
// stores cannot be written or when it is shutting down. Why a store cannot be
// written is for the log.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	reason := ""
	select {
	case <-s.ending():
		reason = "shutting down"
	default:
		reason = s.unready()
	}
	if reason == "" {
		answer.Text(w, http.StatusOK, "OK")
		return
	}
	answer.Text(w, http.StatusServiceUnavailable, reason)
}

// unready returns which store cannot be used, "" when all can.
func (s *Server) unready() string {
	for _, store := range []struct {
		name  string
		ready func() error
	}{{"gates", s.Gates.Ready}, {"runs", s.Runs.Ready}} {
		if err := store.ready(); err != nil {
			s.logger().Error("not ready", "store", store.name, "cause", err.Error())
			return "the store of " + store.name + " cannot be used, see the log"
		}
	}
	return ""
}
