package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate-io/headgate/rollout"
)

// A witness is the ports of an analysis that watch over what is asked of them.
// What must not be is kept in wrong.
type witness struct {
	*world
	canary *rollout.Canary
	before rollout.Status // of the tick

	seen     string          // the revision that was read last
	approved map[string]bool // webhooks that passed since that revision was seen
	passed   map[string]bool // webhooks that passed in this tick
	asked    map[rollout.HookType]int
	denied   map[rollout.HookType]bool
	queried  int
	promoted bool // the revision seen was promoted

	was struct { // at the beginning of the tick
		seen     string
		approved map[string]bool
		routes   rollout.Routes
	}

	fired    bool // a rollback webhook fired, and the canary has not failed yet
	sequence int64
	wrong    []string

	calls, crash int    // the port call that crashes, 0 for none
	cancel       func() // what that does instead
}

// crashed is what a port panics with when the process is to end there.
type crashed struct{}

func (w *witness) bad(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// call counts the calls of ports, and is where a process may end.
func (w *witness) call() {
	switch w.calls++; {
	case w.calls != w.crash:
	case w.cancel == nil:
		panic(crashed{})
	default:
		w.cancel()
	}
}

// begin is called before each tick.
func (w *witness) begin(before rollout.Status) {
	w.before, w.passed, w.queried, w.calls = before, map[string]bool{}, 0, 0
	w.was.seen, w.was.approved, w.was.routes = w.seen, maps.Clone(w.approved), w.routes
	w.asked, w.denied = map[rollout.HookType]int{}, map[rollout.HookType]bool{}
}

// undo forgets what was learned in a tick whose status was not saved.
func (w *witness) undo(sequence int64) {
	if w.seen != w.was.seen {
		w.seen, w.approved = w.was.seen, w.was.approved
	}
	w.sequence, w.fired = sequence, false
}

func (w *witness) hooks(of rollout.HookType) []string {
	var names []string
	for _, h := range w.canary.Spec.Analysis.Webhooks {
		if typeOf(h) == of {
			names = append(names, h.Name)
		}
	}
	return names
}

// all reports whether each webhook of a type is in a set.
func (w *witness) all(of rollout.HookType, in map[string]bool) bool {
	return !slices.ContainsFunc(w.hooks(of), func(name string) bool { return !in[name] })
}

func (w *witness) weighted() bool {
	return w.canary.Spec.Analysis.Iterations <= 0 && !w.canary.Spec.SkipAnalysis
}

// switched reports whether all traffic moves at the end of the analysis: blue/green.
func (w *witness) switched() bool {
	return w.canary.Spec.Analysis.Iterations > 0 && len(w.canary.Spec.Analysis.Match) == 0
}

func (w *witness) Revision(ctx context.Context) (string, error) {
	if w.call(); ctx.Err() != nil {
		return "", ctx.Err()
	}
	r, err := w.world.Revision(ctx)
	if err == nil && r != w.seen {
		w.seen, w.approved, w.promoted, w.fired = r, map[string]bool{}, false, false
	}
	return r, err
}

func (w *witness) Routes(ctx context.Context) (rollout.Routes, error) {
	if w.call(); ctx.Err() != nil {
		return rollout.Routes{}, ctx.Err()
	}
	return w.world.Routes(ctx)
}

func (w *witness) SetRoutes(ctx context.Context, r rollout.Routes) error {
	if w.call(); ctx.Err() != nil {
		return ctx.Err()
	}
	if r.Primary+r.Canary != 100 || r.Primary < 0 || r.Canary < 0 {
		w.bad("routes %v do not sum to 100", r)
	}
	promoting := w.before.Phase == rollout.Promoting || w.before.Phase == rollout.Finalising
	rising := r.Canary > w.routes.Canary
	if (rising || r.Mirrored) && !promoting {
		w.rises(r)
	}
	if rising && promoting && r.Canary != 100 {
		w.bad("routes %v: the weight rises while the primary is promoted", r)
	}
	err := w.world.SetRoutes(ctx, r)
	w.call()
	return cmp.Or(err, ctx.Err())
}

// rises checks that the canary may get more traffic, before it is promoted.
func (w *witness) rises(r rollout.Routes) {
	if w.before.Phase != rollout.Progressing && w.before.Phase != rollout.Waiting {
		w.bad("routes %v in phase %q", r, w.before.Phase)
	}
	if w.weighted() && w.canary.Spec.Analysis.MaxWeight > 0 && r.Canary > w.canary.Spec.Analysis.MaxWeight {
		w.bad("routes %v: above the maximum %d", r, w.canary.Spec.Analysis.MaxWeight)
	}
	if !w.all(rollout.HookPreRollout, w.approved) {
		w.bad("routes %v before the pre-rollout webhooks passed", r)
	}
	if !w.all(rollout.HookConfirmRollout, w.approved) {
		w.bad("routes %v before the rollout was confirmed", r)
	}
	if w.switched() && !r.Mirrored && !w.all(rollout.HookConfirmPromotion, w.passed) {
		w.bad("routes %v without confirm-promotion", r)
	}
	if w.weighted() && !r.Mirrored && !w.all(rollout.HookConfirmTrafficIncrease, w.passed) {
		w.bad("routes %v without confirm-traffic-increase", r)
	}
	if !w.scaled {
		w.bad("routes %v to a canary that does not run", r)
	}
	if w.canary.Spec.SkipAnalysis {
		w.bad("routes %v with skipAnalysis", r)
	}
}

// decides checks that the revision may be promoted, when that is decided.
func (w *witness) decides() {
	if w.canary.Spec.SkipAnalysis {
		return
	}
	for _, of := range []rollout.HookType{rollout.HookPreRollout, rollout.HookConfirmTrafficIncrease} {
		if (of == rollout.HookPreRollout || w.weighted()) && !w.all(of, w.approved) {
			w.bad("promotion without %s", of)
		}
	}
	asked := w.passed
	if w.switched() {
		asked = w.approved // before the switch
	}
	if !w.all(rollout.HookConfirmPromotion, asked) {
		w.bad("promotion without confirm-promotion")
	}
	if !w.all(rollout.HookRollout, w.passed) {
		w.bad("promotion without rollout webhooks in the same tick")
	}
	if w.queried < len(w.canary.Spec.Analysis.Metrics) {
		w.bad("promotion without metric checks in the same tick")
	}
}

func (w *witness) Promote(ctx context.Context) error {
	if w.call(); ctx.Err() != nil {
		return ctx.Err()
	}
	if w.before.Phase != rollout.Promoting {
		w.bad("promotion in phase %q", w.before.Phase)
	}
	if !w.all(rollout.HookConfirmRollout, w.approved) {
		w.bad("promotion without confirm-rollout")
	}
	if w.current() != w.seen {
		w.bad("promotion of %s when %s was looked at", w.current(), w.seen)
	}
	err := w.world.Promote(ctx)
	w.promoted = w.promoted || err == nil
	w.call()
	return cmp.Or(err, ctx.Err())
}

func (w *witness) ScaleUp(ctx context.Context) error {
	if w.call(); ctx.Err() != nil {
		return ctx.Err()
	}
	if !promoting(w.before.Phase) && !w.all(rollout.HookConfirmRollout, w.approved) {
		w.bad("scaled up before the rollout was confirmed")
	}
	return w.world.ScaleUp(ctx)
}

func (w *witness) ScaleDown(ctx context.Context) error {
	if w.call(); ctx.Err() != nil {
		return ctx.Err()
	}
	if w.routes.Canary > 0 || w.routes.Mirrored {
		w.bad("scaled down with routes %v", w.routes)
	}
	err := w.world.ScaleDown(ctx)
	w.call()
	return cmp.Or(err, ctx.Err())
}

func (w *witness) CanaryReady(ctx context.Context) error {
	if w.call(); ctx.Err() != nil {
		return ctx.Err()
	}
	return w.world.CanaryReady(ctx)
}

func (w *witness) PrimaryReady(ctx context.Context) error {
	if w.call(); ctx.Err() != nil {
		return ctx.Err()
	}
	return w.world.PrimaryReady(ctx)
}

func (w *witness) Query(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	if w.call(); ctx.Err() != nil {
		return 0, ctx.Err()
	}
	w.queried++
	if w.asked[rollout.HookRollout] < len(w.hooks(rollout.HookRollout)) {
		w.bad("metric %s is checked before the rollout webhooks", m.Name)
	}
	return w.world.Query(ctx, c, m)
}

func (w *witness) Call(ctx context.Context, h rollout.Hook, p rollout.Payload) (rollout.Answer, error) {
	if w.call(); ctx.Err() != nil {
		return rollout.Answer{}, ctx.Err()
	}
	answer, err := w.world.Call(ctx, h, p)
	of := typeOf(h)
	w.asked[of]++
	switch v := of.Judge(err); {
	case v == rollout.Pass:
		w.passed[h.Name] = true
		if w.approved != nil {
			w.approved[h.Name] = true
		}
	case v == rollout.Fire:
		w.fired = true
	default:
		w.denied[of] = true
	}
	if want := payloadPhases[of]; !slices.Contains(want, p.Phase) {
		w.bad("%s webhook %s is told phase %q, want one of %q", of, h.Name, p.Phase, want)
	}
	if p.Name != w.canary.Metadata.Name || p.Namespace != w.canary.Metadata.Namespace || p.Checksum == "" {
		w.bad("webhook %s is told %+v", h.Name, p)
	}
	if of == rollout.HookPostRollout && !w.before.PostRollout {
		w.bad("post-rollout webhook %s before the end was saved", h.Name)
	}
	w.call()
	return answer, err
}

func (w *witness) Emit(ctx context.Context, e rollout.Event) {
	w.call()
	if e.Sequence != w.sequence+1 {
		w.bad("event %s has number %d after %d", e.Code, e.Sequence, w.sequence)
	}
	w.sequence = e.Sequence
	if e.Message == "" || e.Checksum == "" || e.Name == "" || e.Namespace == "" || e.Time.IsZero() {
		w.bad("event %+v lacks something", e)
	}
	if !slices.Contains(allPhases, e.Phase) {
		w.bad("event %s has phase %q", e.Code, e.Phase)
	}
	w.world.Emit(ctx, e)
}
