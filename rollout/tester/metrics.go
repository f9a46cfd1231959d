package tester

import (
	"net/http"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// ObserveRun counts and logs a run; it is for [run.Config] Observe.
func (s *Server) ObserveRun(r api.Run, shared bool) {}

// observeCheck counts a check of a gate.
func (s *Server) observeCheck(kind api.Kind, open bool) {}

// observeChange counts and logs a change of a gate: open, close, reject, link.
func (s *Server) observeChange(g api.Gate, action, actor string) {}

// observeDenial counts and logs that a caller was refused, err is that of package access.
func (s *Server) observeDenial(r *http.Request, err error) {}

// serveMetrics answers with the metrics in the format of Prometheus.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {}
