package tester

import (
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// CountCheck counts what a check of a gate has counted.
func CountCheck(s *Server) {
	m := s.measures()
	m.inFlight.Add(1)
	s.observeCheck(api.KindGate, true)
	m.inFlight.Add(-1)
	m.countRequest(routeOf("/gate/check"), 200)
}

// LaunchActor cancels the k6 run of callers who left.
const LaunchActor = launchActor

// RequestTime has requests come within d.
func (l *Listener) RequestTime(d time.Duration) { l.request = d }
