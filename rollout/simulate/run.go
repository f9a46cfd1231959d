package simulate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// A Simulation is an analysis with scripted ports, of a canary that was never seen. Only
// Canary is required.
type Simulation struct {
	Canary *rollout.Canary
	Script Script
	Ticks  int // at most so many, default 1000
}

// epoch is the time of tick 0.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A Tick is one step of the analysis, and what it did. A step that follows at
// once, without a wait, has the number and the time of the one before.
type Tick struct {
	Number  int              `json:"tick"`
	Time    time.Time        `json:"time"`
	Elapsed rollout.Duration `json:"elapsed"` // since tick 0
	Before  rollout.Status   `json:"before"`
	After   rollout.Status   `json:"after"`
	Routes  rollout.Routes   `json:"routes"` // after it
	Calls   []Call           `json:"calls,omitempty"`
	Events  []rollout.Event  `json:"events,omitempty"`
	End     string           `json:"end,omitempty"` // why the simulation ends with this tick
}

// A Call is one use of a port, in order. Reading routes and revision is left
// out unless it fails, and so is asking for readiness unless it is wanting.
type Call struct {
	Subject  Subject          `json:"subject"`
	Name     string           `json:"name,omitempty"`
	Type     rollout.HookType `json:"type,omitempty"`
	Phase    rollout.Phase    `json:"phase,omitempty"` // in the payload
	Checksum string           `json:"checksum,omitempty"`
	Detail   string           `json:"detail,omitempty"`
	Outcome  string           `json:"outcome,omitempty"`
	Verdict  string           `json:"verdict,omitempty"`
}

// A run is a simulation under way.
type run struct {
	*Simulation
	world    *scriptedPorts
	analysis rollout.Analysis
	tick     *Tick
	ticks    int  // that are over
	stranded bool // the last promotion failed
	moved    bool // the tick changed routes, or the workload
}

// Run yields tick after tick until the rollout has ended, or nothing can change
// any more, or there were [Simulation.Ticks]; the last one says which. An error,
// that of [Script.Check] or of ctx, ends it.
func (s *Simulation) Run(ctx context.Context) iter.Seq2[*Tick, error] {
	return func(yield func(*Tick, error) bool) {
		if err := s.Script.Check(s.Canary); err != nil {
			yield(nil, err)
			return
		}
		canary, w := *s.Canary, &scriptedPorts{state: state{routes: rollout.Routes{Primary: 100}}}
		r := &run{Simulation: s, world: w, tick: &Tick{Time: epoch}}
		w.says = func(of Subject, names ...string) string { return s.Script.at(r.tick.Number, of, names...) }
		r.analysis = rollout.Analysis{Canary: &canary, Traffic: w, Target: w, Metrics: w, Hooks: w, Sink: w}
		for {
			wait, err := r.step(ctx)
			if err != nil {
				yield(nil, fmt.Errorf("tick %d: %w", r.tick.Number, err))
				return
			}
			if !yield(r.tick, nil) || r.tick.End != "" {
				return
			}
			r.next(wait)
		}
	}
}

// step does the tick.
func (r *run) step(ctx context.Context) (wait time.Duration, err error) {
	t := r.tick
	if r.world.tick, r.world.revision = t, "1"; t.Number > 0 {
		r.world.revision = "2"
	}
	says := r.Script.at(t.Number, Suspend)
	r.analysis.Canary.Spec.Suspend = says == on || says == "" && r.Canary.Spec.Suspend
	was := r.world.state
	if t.After, wait, err = r.analysis.Step(ctx, t.Time, t.Before); err != nil {
		return 0, err
	}
	t.Routes, r.moved = r.world.routes, r.world.state != was
	if wait > 0 {
		r.ticks++
	}
	for _, e := range t.Events {
		if e.Code == rollout.EventPromotionFailed || e.Code == rollout.EventRolledBack {
			r.stranded = e.Code == rollout.EventPromotionFailed
		}
	}
	t.End = r.end()
	return wait, nil
}

// next makes the tick after one that is not the end. Without a wait, what was
// decided is done in the same tick.
func (r *run) next(wait time.Duration) {
	last, number := r.tick, r.tick.Number
	if wait > 0 {
		number++
	}
	if last.After.Ended() && number > 1 {
		number = max(number, r.Script.next(last.Number, Revision))
	}
	passed := wait * time.Duration(number-last.Number)
	r.tick = &Tick{Number: number, Time: last.Time.Add(passed), Elapsed: last.Elapsed + rollout.Duration(passed), Before: last.After}
}

// end says why there is no further tick, "" when there is one.
func (r *run) end() string {
	t := r.tick
	switch {
	case t.Number == 0: // the second revision comes
	case t.After.Ended() && r.Script.next(t.Number, Revision) == 0:
		switch {
		case t.After.Phase == rollout.Succeeded:
			return "promoted"
		case r.stranded:
			return fmt.Sprintf("promotion failed, %d%% of the traffic goes to the canary", t.Routes.Canary)
		}
		return "rolled back"
	case t.After.Ended():
	case r.still():
		return r.stands()
	}
	if r.ticks >= cmp.Or(max(r.Ticks, 0), 1000) {
		return fmt.Sprintf("%s after %d ticks", where(t.After), r.ticks)
	}
	return ""
}

// still reports whether every further tick would be as this one.
func (r *run) still() bool {
	t := r.tick
	timed := !t.After.NotReadySince.IsZero()
	for _, h := range r.Canary.Spec.Analysis.Webhooks {
		g := t.After.Gate
		timed = timed || g != nil && g.Name == h.Name && g.Type == typeOf(h) && h.Deadline > 0
	}
	return r.Script.next(t.Number) == 0 && (!timed || t.After.RollingBack) && !r.moved && same(t.Before, t.After)
}

// stands says what a canary that does not go on is in.
func (r *run) stands() string {
	s := r.tick.After
	switch {
	case r.analysis.Canary.Spec.Suspend:
		return "suspended in " + where(s)
	case s.Gate != nil:
		return waitsOn(s.Gate)
	case s.Phase == rollout.Initialized:
		return "no new revision"
	}
	return "does not go on from " + where(s)
}

func waitsOn(g *rollout.Gate) string { return fmt.Sprintf("waits on %s gate %s", g.Type, g.Name) }

func where(s rollout.Status) string {
	switch {
	case s.Gate != nil:
		return string(s.Phase) + ", " + strings.Replace(waitsOn(s.Gate), "waits", "waiting", 1)
	case s.Phase == "":
		return "not initialised"
	}
	return string(s.Phase)
}

// same reports whether two statuses differ in no more than the number of events
// and the time of the step.
func same(a, b rollout.Status) bool {
	a.Sequence, b.Sequence = 0, 0
	a.LastStep, b.LastStep = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}
