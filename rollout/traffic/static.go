package traffic

import (
	"context"
	"sync"

	"github.com/headgate-io/headgate/rollout"
)

// Static is the traffic and the target of a rollout of which nothing has to be
// done: it is always ready, and remembers the routes that were set.
type Static struct {
	ID    string         // the revision
	Start rollout.Routes // zero for all to the primary

	mu     sync.Mutex
	routes rollout.Routes
}

var (
	_ rollout.Traffic = (*Static)(nil)
	_ rollout.Target  = (*Static)(nil)
)

// Routes returns the routes that were set last.
func (s *Static) Routes(context.Context) (rollout.Routes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range []rollout.Routes{s.routes, s.Start} {
		if r.Primary+r.Canary != 0 {
			return r, checkRoutes(r)
		}
	}
	return all, nil
}

// SetRoutes remembers r.
func (s *Static) SetRoutes(_ context.Context, r rollout.Routes) error {
	if err := checkRoutes(r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes = r
	return nil
}

// Revision returns the ID.
func (s *Static) Revision(context.Context) (string, error) { return s.ID, nil }

// PrimaryReady returns nil.
func (s *Static) PrimaryReady(context.Context) error { return nil }

// CanaryReady returns nil.
func (s *Static) CanaryReady(context.Context) error { return nil }

// ScaleUp does nothing.
func (s *Static) ScaleUp(context.Context) error { return nil }

// ScaleDown does nothing.
func (s *Static) ScaleDown(context.Context) error { return nil }

// Promote does nothing.
func (s *Static) Promote(context.Context) error { return nil }
