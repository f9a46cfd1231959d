package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A step is one thing that a tick does.
type step struct {
	name   string
	phases phases           // the step is done only in these
	do     func(*tick) bool // false ends the tick
}

// order lists the steps of a tick, first to last.
var order = [...]step{
	{"suspended canaries are left alone", anyPhase, (*tick).stopIfSuspended},
	{"call post-rollout webhooks", idle, (*tick).postRollout},
	{"go on with a rollback that is decided", active, (*tick).rollback},
	{"a person asks for a rollback or the promotion", slices.Concat(unseen, phases{Initialized}, active), (*tick).acceptRequest},
	{"rollback webhooks", analysed, (*tick).rollbackHooks},
	{"too many failed checks: roll back", analysed, (*tick).checkThreshold},
	{"read the revision of the target", anyPhase, (*tick).readRevision},
	{"nothing to roll out", idle, (*tick).stopIfUnchanged},
	{"another revision: traffic to the primary", active, (*tick).restart},
	{"the primary is ready", anyPhase, (*tick).primaryReady},
	{"initialise", unseen, (*tick).initialise},
	{"read the routes", anyPhase, (*tick).readRoutes},
	{"another revision after a promotion: traffic to the primary", phases{Promoting, Finalising}, (*tick).restartPromoted},
	{"a rollout starts: traffic to the primary", idle, (*tick).start},
	{"confirm-rollout webhooks, then scale up", anyPhase, (*tick).confirmRollout},
	{"promoting: copy the revision to the primary", phases{Promoting}, (*tick).copyRevision},
	{"promoting: traffic to the primary", phases{Promoting}, (*tick).promoting},
	{"finalising: scale down", phases{Finalising}, (*tick).finalising},
	{"the canary is ready", analysed, (*tick).canaryReady},
	{"promote without analysis", analysed, (*tick).skipAnalysis},
	{"promote on request", analysed, (*tick).promoteOnRequest},
	{"pre-rollout webhooks", phases{Progressing}, (*tick).preRollout},
	{"rollout webhooks", analysed, (*tick).rolloutHooks},
	{"metric checks", analysed, (*tick).metricChecks},
	{"confirm, then more traffic or promotion", analysed, (*tick).advance},
}

// A tick is one run through order. Its status always holds every decision made so far.
type tick struct {
	*Analysis
	ctx      context.Context
	now      time.Time
	s        Status
	err      error  // of ctx, once it has ended
	revision string // of the target
	routes   Routes // as last read or set
	starting bool   // a new revision begins; its confirm-rollout webhooks were not called yet
	decided  bool   // the next step acts upon the decision, once it is stored
}

func (t *tick) run() {
	for _, step := range order {
		if step.phases.has(t.s.Phase) && !step.do(t) {
			return
		}
	}
}

// succeeded reports whether err is nil. If not, the caller must end the tick; succeeded has
// recorded the error of ctx if ctx has ended, or else emitted an event.
func (t *tick) succeeded(code EventCode, what string, err error) bool {
	if err == nil {
		return true
	}
	if !t.contextEnded() {
		t.emit(code, eventDetail{reason: what + ": " + err.Error()})
	}
	return false
}

// contextEnded reports whether ctx has ended. The result of a port is then no outcome.
func (t *tick) contextEnded() bool {
	if t.err == nil {
		t.err = t.ctx.Err()
	}
	return t.err != nil
}

// enter moves the canary to a phase.
func (t *tick) enter(p Phase) {
	if t.s.Phase != p {
		t.s.Phase, t.s.LastTransition = p, t.now
	}
}

// allToPrimary routes all traffic to the primary.
var allToPrimary = Routes{Primary: 100}

// canaryRoutes returns routes with weight percent for the canary and the rest for the primary.
func canaryRoutes(weight int) Routes { return Routes{Primary: 100 - weight, Canary: weight} }

// route sets the routes unless they are r already, and reports success.
func (t *tick) route(r Routes) bool {
	return t.succeeded(EventTrafficError, describeRouting(r), t.setRoutes(r))
}

func describeRouting(r Routes) string {
	if r.Mirrored {
		return "mirror the traffic to the canary"
	}
	return fmt.Sprintf("route %d%% of the traffic to the canary", r.Canary)
}

func (t *tick) setRoutes(r Routes) error {
	if t.routes == r {
		return nil
	}
	if err := t.Traffic.SetRoutes(t.ctx, r); err != nil {
		return err
	}
	t.routes, t.s.CanaryWeight, t.s.Mirrored = r, r.Canary, r.Mirrored
	return nil
}

// readRoutes reads the routes, which take precedence over the status. Only the
// share of the canary counts.
func (t *tick) readRoutes() bool {
	r, err := t.Traffic.Routes(t.ctx)
	if err == nil && (r.Canary < 0 || r.Canary > 100) {
		err = fmt.Errorf("the canary has %d%%: want 0 to 100", r.Canary)
	}
	if !t.succeeded(EventTrafficError, "read the routes", err) {
		return false
	}
	t.routes, t.s.CanaryWeight, t.s.Mirrored = r, r.Canary, r.Mirrored
	return true
}

// readRevision reads the revision to roll out.
func (t *tick) readRevision() bool {
	revision, err := t.Target.Revision(t.ctx)
	if err == nil && revision == "" {
		err = errors.New("it has none")
	}
	if !t.succeeded(EventTargetError, "read the revision of the target", err) {
		return false
	}
	t.revision = revision
	return true
}
