package simulate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// A Simulation is an analysis of a new canary with scripted ports. Only Canary is
// required.
type Simulation struct {
	Canary *rollout.Canary
	Script Script
	Ticks  int // maximum number of ticks, default 1000
}

// epoch is the time of tick 0.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A Tick is one step of the analysis and its effects. A step that follows without a
// wait has the number and the time of the previous one.
type Tick struct {
	Number  int              `json:"tick"`
	Time    time.Time        `json:"time"`
	Elapsed rollout.Duration `json:"elapsed"` // since tick 0
	Before  rollout.Status   `json:"before"`
	After   rollout.Status   `json:"after"`
	Routes  rollout.Routes   `json:"routes"` // after the step
	Calls   []Call           `json:"calls,omitempty"`
	Events  []rollout.Event  `json:"events,omitempty"`
	End     string           `json:"end,omitempty"` // why the simulation ends with this tick
}

// A Call is one call of a port. Reads of the routes and the revision are left out
// unless they fail, and checks of readiness unless the workload is not ready.
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
	*scriptedPorts
	canary          rollout.Canary
	ticks           int  // number of completed ticks
	promotionFailed bool // the last promotion failed
	moved           bool // the tick changed routes, or the workload
}

// Run yields ticks in order until the rollout has ended, nothing can change any
// more, or the number of ticks reaches [Simulation.Ticks]; the End field of the last
// tick says which. Run stops after an error of [Script.Check] or of ctx.
func (s *Simulation) Run(ctx context.Context) iter.Seq2[*Tick, error] {
	return func(yield func(*Tick, error) bool) {
		if err := s.Script.Check(s.Canary); err != nil {
			yield(nil, err)
			return
		}
		w := &scriptedPorts{script: s.Script, tick: &Tick{Time: epoch}, state: state{routes: rollout.Routes{Primary: 100}}}
		r := &run{Simulation: s, scriptedPorts: w, canary: *s.Canary}
		analysis := rollout.Analysis{Canary: &r.canary, Traffic: w, Target: w, Metrics: w, Hooks: w, Sink: w}
		for {
			t, was := r.tick, r.state
			outcome := r.scriptedValue(Suspend)
			r.canary.Spec.Suspend = outcome == "on" || outcome == "" && s.Canary.Spec.Suspend
			after, wait, err := analysis.Step(ctx, t.Time, t.Before)
			if err != nil {
				yield(nil, fmt.Errorf("tick %d: %w", t.Number, err))
				return
			}
			t.After, t.Routes, r.moved = after, r.routes, r.state != was
			if wait > 0 {
				r.ticks++
			}
			for _, e := range t.Events {
				if e.Code == rollout.EventPromotionFailed || e.Code == rollout.EventRolledBack {
					r.promotionFailed = e.Code == rollout.EventPromotionFailed
				}
			}
			t.End = r.end()
			if !yield(t, nil) || t.End != "" {
				return
			}
			number := t.Number
			if wait > 0 { // otherwise the next step belongs to the same tick
				number++
			}
			if after.Ended() && number > 1 {
				number = max(number, s.Script.nextChange(t.Number, Revision))
			}
			passed := wait * time.Duration(number-t.Number)
			r.tick = &Tick{Number: number, Time: t.Time.Add(passed), Elapsed: t.Elapsed + rollout.Duration(passed), Before: after}
		}
	}
}

// end returns why this tick is the last, "" if it is not.
func (r *run) end() string {
	t, s := r.tick, r.tick.After
	last := s.Ended() && r.Script.nextChange(t.Number, Revision) == 0
	switch {
	case t.Number == 0: // the second revision comes with the next tick
	case last && s.Phase == rollout.Succeeded:
		return "promoted"
	case last && r.promotionFailed:
		return fmt.Sprintf("promotion failed, %d%% of the traffic goes to the canary", t.Routes.Canary)
	case last:
		return "rolled back"
	case s.Ended() || !r.isSteady():
	case r.canary.Spec.Suspend:
		return "suspended in " + phaseText(s)
	case s.Gate != nil:
		return fmt.Sprintf("waits on %s gate %s", s.Gate.Type, s.Gate.Name)
	case s.Phase == rollout.Initialized:
		return "no new revision"
	default:
		return "does not go on from " + phaseText(s)
	}
	if r.ticks >= cmp.Or(max(r.Ticks, 0), 1000) {
		return fmt.Sprintf("%s after %d ticks", phaseText(s), r.ticks)
	}
	return ""
}

// isSteady reports whether every further tick would repeat this one: only the number of
// events and the time of the step have changed, and nothing else will.
func (r *run) isSteady() bool {
	a, b := r.tick.Before, r.tick.After
	timed := !b.NotReadySince.IsZero()
	for _, h := range r.Canary.Spec.Analysis.Webhooks {
		timed = timed || b.Gate != nil && b.Gate.Name == h.Name && b.Gate.Type == h.Kind() && h.Deadline > 0
	}
	a.Sequence, a.LastStep = b.Sequence, b.LastStep
	return r.Script.nextChange(r.tick.Number) == 0 && (!timed || b.RollingBack) && !r.moved && reflect.DeepEqual(a, b)
}

func phaseText(s rollout.Status) string {
	switch {
	case s.Gate != nil:
		return fmt.Sprintf("%s, waiting on %s gate %s", s.Phase, s.Gate.Type, s.Gate.Name)
	case s.Phase == "":
		return "not initialised"
	}
	return string(s.Phase)
}
