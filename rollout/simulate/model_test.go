package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

var (
	modelSeed = flag.Uint64("model.seed", 0, "run the model-based test with this seed alone, and show its ticks")
	modelRuns = flag.Uint64("model.runs", 5_000, "runs of the model-based test")
)

// TestModel runs random canaries through random outcomes, some of which end the process in the
// middle of a step. After each tick the invariants hold. TestGolden says what the status is.
func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		r := randomRun(*modelSeed)
		err := r.play(t.Context())
		t.Log("\n" + r.story.String())
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	runs := *modelRuns / thrift
	if testing.Short() {
		runs /= 10
	}
	const shards = 4
	for shard := range uint64(shards) {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			reached, failures := make(map[rollout.Phase]uint64), 0
			for seed := shard + 1; seed <= runs && failures < 2; seed += shards {
				r := randomRun(seed)
				if err := r.play(t.Context()); err != nil && !errors.Is(err, errRefused) {
					failures++
					t.Errorf("seed %d (go test -run TestModel -model.seed %d): %v", seed, seed, err)
				}
				for phase := range r.reached {
					reached[phase]++
				}
			}
			for _, phase := range allPhases {
				if failures == 0 && reached[phase] < runs/shards/100 {
					t.Errorf("only %d of %d runs were in phase %q: the test shows too little", reached[phase], runs/shards, phase)
				}
			}
		})
	}
}

// errRefused is that of settings that no rollout is done with.
var errRefused = errors.New("refused")

// play runs random ticks, then as many as it takes with outcomes that stay,
// then those that go well.
func (r *chance) play(ctx context.Context) error {
	r.now["revision"] = "1"
	for r.some(5) {
		r.blow()
		if err := r.tick(ctx); err != nil {
			return err
		}
	}
	if err := r.tick(ctx); err != nil {
		return err
	}
	if r.status.Phase == rollout.Initialized {
		r.last++
		r.now["revision"] = strconv.Itoa(r.last)
	}
	for range 5 + r.IntN(40) {
		r.blow()
		if err := r.tick(ctx); err != nil {
			return err
		}
	}
	r.exact = r.exact && r.witness.crash == 0
	if err := r.anHour(ctx); err != nil {
		return err
	}
	if err := r.rests(); err != nil {
		return err
	}
	r.calm()
	if err := r.anHour(ctx); err != nil {
		return err
	}
	if s := r.status; s.Phase != rollout.Initialized && !s.Ended() {
		return fmt.Errorf("tick %d: everything goes well for an hour, and the status is %s", r.number, encoded(s))
	}
	return nil
}

// anHour is the ticks of an hour, or fewer when the canary has come to rest.
func (r *chance) anHour(ctx context.Context) error {
	for range 60 {
		if r.status.Ended() && r.now["revision"] == r.status.AppliedSpec {
			return nil
		}
		before, was := r.status, r.world.state
		if err := r.tick(ctx); err != nil {
			return err
		}
		if after := r.status; r.exact && after.NotReadySince.IsZero() && r.deadline() <= 0 && r.world.state == was && same(before, after) {
			return nil // every further tick is as this one
		}
	}
	return nil
}

// deadline is that of the gate that the canary waits on.
func (r *chance) deadline() rollout.Duration {
	for _, h := range r.canary.Spec.Analysis.Webhooks {
		if g := r.status.Gate; g != nil && h.Name == g.Name && typeOf(h) == g.Type {
			return h.Deadline
		}
	}
	return 0
}

// rests checks that a canary whose outcomes did not change for an hour has
// ended, or waits on a gate that it names, or is held up by what it told.
func (r *chance) rests() error {
	s, a := r.status, r.canary.Spec.Analysis
	held := r.now["traffic"] != "" || r.now["target scale-up"] != "" || r.now["target scale-down"] != "" ||
		r.now["target revision"] != "" || r.now["suspend"] == on
	for _, m := range a.Metrics {
		held = held || r.now["metric "+m.Name] == none && m.NoValues == "inconclusive"
	}
	switch {
	case held || s.Phase == rollout.Initialized || s.Ended():
		return nil
	case s.Gate == nil:
		return fmt.Errorf("tick %d: nothing changed for an hour, no gate is named, and the status is %s", r.number, encoded(s))
	}
	for _, h := range a.Webhooks {
		if h.Name == s.Gate.Name && typeOf(h) == s.Gate.Type {
			if h.Deadline <= 0 {
				return nil
			}
			return fmt.Errorf("tick %d: the deadline of gate %s passed an hour ago", r.number, h.Name)
		}
	}
	return fmt.Errorf("tick %d: there is no gate %+v", r.number, *s.Gate)
}

// tick is one step, which may crash, and the checks after it.
func (r *chance) tick(ctx context.Context) error {
	r.time = r.time.Add(r.wait)
	r.canary.Spec.Suspend = r.now["suspend"] == on
	before := r.status
	text := r.stored
	t := &Tick{Number: r.number, Time: r.time, Before: before}
	r.world.tick, r.world.revision = t, "1"
	r.witness.begin(before)
	if r.witness.crash = 0; !r.exact && r.some(6) {
		r.witness.crash = 1 + r.IntN(12)
	}
	if r.some(10) {
		if err := r.pure(ctx, before); err != nil {
			return err
		}
	}
	after, wait, died, err := r.step(ctx, before)
	r.number++
	if err != nil && t.Number == 0 && !r.exact {
		return errRefused
	}
	if err != nil {
		return fmt.Errorf("tick %d: %w", t.Number, err)
	}
	if text != "" && encoded(before) != text {
		return fmt.Errorf("tick %d: the status that was passed changed", t.Number)
	}
	if died { // the status of this tick was never saved
		r.wait = time.Minute
		r.witness.undo(before.Sequence)
		r.tell("%s | crash\n", t)
		return r.verdict(t)
	}
	t.After, t.Routes = after, r.world.routes
	r.status, r.wait = rollout.Status{}, wait
	stored := encoded(after)
	r.stored = stored
	err = json.Unmarshal([]byte(stored), &r.status)
	if err != nil || r.some(10) && encoded(r.status) != stored {
		return fmt.Errorf("tick %d: status %s reads back as %s, %v", t.Number, stored, encoded(r.status), err)
	}
	r.reached[after.Phase] = true
	r.tell("%s %s %v\n", t, stored, r.now)
	if before.Phase == "" {
		r.world.primary = after.PromotedSpec // it was made from the target
	}
	r.look(t)
	return r.verdict(t)
}

func (r *chance) tell(format string, args ...any) {
	if *modelSeed != 0 {
		fmt.Fprintf(&r.story, format, args...)
	}
}

func (r *chance) verdict(t *Tick) error {
	if len(r.witness.wrong) > 0 {
		return fmt.Errorf("tick %d: %s\n%s", t.Number, t, strings.Join(r.witness.wrong, "\n"))
	}
	return nil
}

func (r *chance) step(ctx context.Context, before rollout.Status) (after rollout.Status, wait time.Duration, died bool, err error) {
	defer func() {
		if what := recover(); what != nil {
			if _, died = what.(crashed); !died {
				panic(what)
			}
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.witness.cancel = nil; r.witness.crash > 0 && r.some(2) {
		r.witness.cancel = cancel
	}
	after, wait, err = r.analysis.Step(ctx, r.time, before)
	if r.witness.cancel != nil && err != nil && err == ctx.Err() {
		r.wait, err = time.Minute, nil
		if wait != 0 {
			r.witness.bad("the context ended, and the next step is in %s", wait)
		}
	}
	return after, wait, false, err
}

// pure checks that the same inputs give the same status, calls and events.
func (r *chance) pure(ctx context.Context, before rollout.Status) error {
	results := [2]string{}
	for i := range results {
		w := *r.world
		w.tick = &Tick{Number: r.number, Time: r.time, Before: before}
		a := rollout.Analysis{Canary: r.canary, Traffic: &w, Target: &w, Metrics: &w, Hooks: &w, Sink: &w}
		after, wait, err := a.Step(ctx, r.time, before)
		results[i] = fmt.Sprint(encoded(after), wait, err, w.tick.Calls, w.tick.Events, w.routes, w.scaled, w.primary)
	}
	if results[0] != results[1] {
		return fmt.Errorf("tick %d: the same step gives\n%s\nand\n%s", r.number, results[0], results[1])
	}
	return nil
}
