package traffic

import "net/http"

// Promote makes the canary the primary: requests for the primary that begin
// from now on go to where those for the canary go, whatever the routes and the
// conditions on requests are. It is how a revision is promoted when nothing but
// this proxy stands before its servers. A proxy for a rollout that is resumed
// behind its promotion is promoted before it serves.
func (p *Proxy) Promote() { p.promoted.Store(true) }

// forward returns what sends requests for an end.
func (p *Proxy) forward(to end) http.Handler {
	if p.promoted.Load() {
		to = canary
	}
	return p.ends[to].forward
}
