package rollout_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout"
)

// The maximum weight is a cap: a step of 20 with a maximum of 50 gives 20, 40, 50 (C-20).
func TestRunPromotes(t *testing.T) {
	w := newFakePorts()
	loop := instantLoop()
	var saved []rollout.Status
	loop.Save = func(s rollout.Status) error { saved = append(saved, s); return nil }
	c := canary(rollout.HookConfirmRollout, rollout.HookPreRollout, rollout.HookRollout, rollout.HookConfirmTrafficIncrease,
		rollout.HookConfirmPromotion, rollout.HookPostRollout, rollout.HookRollback, rollout.HookEvent)
	s, err := w.analysis(c).Run(t.Context(), rollout.Status{Phase: rollout.Initialized}, loop)
	must(t, err)
	if s.Phase != rollout.Succeeded || s.PromotedSpec != "v2" || !s.Ended() {
		t.Errorf("ended as %+v", s)
	}
	testenv.Equal(t, w.routes, (rollout.Routes{Primary: 100}), "routes")
	var weights []int
	for i, s := range saved {
		if i == 0 || saved[i-1].CanaryWeight != s.CanaryWeight {
			weights = append(weights, s.CanaryWeight)
		}
	}
	testenv.Equal(t, weights, []int{0, 20, 40, 50, 0}, "weights")
	want := `1 Initialized cr-pass: app.test: the rollout is approved by confirm-rollout
2 Progressing revision-new: app.test: a new revision is rolled out
3 Progressing analysis-start: app.test: the analysis starts
4 Progressing pr-pass: app.test: pre-rollout webhook pre-rollout passed
5 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
6 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 20
7 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
8 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 40
9 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
10 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 50
11 Progressing cp-pass: app.test: the promotion is approved by confirm-promotion
12 Promoting promote-copy: app.test: the revision is copied to the primary
13 Finalising route-primary: app.test: all traffic goes to the primary
14 Succeeded promoted: app.test: promoted, the canary is scaled down
15 Succeeded po-pass: app.test: post-rollout webhook post-rollout passed
`
	testenv.Equal(t, eventLog(w.events), want, "told")
}

// A run ends if its status cannot be saved, and returns that status.
func TestRunCannotSave(t *testing.T) {
	x := newScenario(rollout.Initialized)
	loop := instantLoop()
	loop.Save = func(rollout.Status) error { return errScripted }
	s, err := x.a.Run(t.Context(), x.s, loop)
	if !errors.Is(err, errScripted) || s.Phase != rollout.Progressing || len(x.w.events) != 2 {
		t.Errorf("Run = %+v, %v\n%s", s, err, eventLog(x.w.events))
	}
}

// A rollout that has ended does not begin again. With Next, a rollout of another revision follows.
func TestRunEnded(t *testing.T) {
	for revision, want := range map[string]rollout.Phase{"v1": rollout.Failed, "v2": rollout.Failed, "v3": rollout.Succeeded} {
		x := newScenario(rollout.Failed)
		x.w.revision = revision
		if s, err := x.a.Run(t.Context(), x.s, instantLoop()); err != nil || s.Phase != rollout.Failed || len(x.w.log) > 0 {
			t.Errorf("Run = %+v, %v; %v", s, err, x.w.log)
		}
		loop := instantLoop()
		loop.Next = true
		if s, err := x.a.Run(t.Context(), x.s, loop); err != nil || s.Phase != want || len(x.w.log) > 0 != (revision == "v3") {
			t.Errorf("%s: Run = %+v, %v; %v", revision, s, err, x.w.log)
		}
	}
}

// Without Now and Wait, the loop waits for the interval by the clock, and ends with its context.
func TestRunOnTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newScenario(rollout.Initialized)
		began := time.Now()
		s, err := x.a.Run(t.Context(), initialStatus, rollout.Loop{})
		if err != nil || s.Phase != rollout.Succeeded {
			t.Fatalf("Run = %+v, %v", s, err)
		}
		testenv.Equal(t, time.Since(began), 6*time.Minute, "took")
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		x = newScenario(rollout.Initialized)
		if s, err := x.a.Run(ctx, initialStatus, rollout.Loop{}); !errors.Is(err, context.DeadlineExceeded) || s.CanaryWeight != 20 {
			t.Errorf("Run = %+v, %v", s, err)
		}
	})
}

// A script sets the behavior of fakePorts. It depends only on their state and on the
// number of calls, so that it leads to the same end if steps are repeated.
type script struct {
	name string
	set  func(*fakePorts)
	end  rollout.Phase
}

var scripts = []script{
	{"all is well", func(w *fakePorts) {}, rollout.Succeeded},
	{"rollout webhook fails with traffic", func(w *fakePorts) { w.answers["ro"] = 500 }, rollout.Failed},
	{"metric fails", func(w *fakePorts) { w.values["m"] = 1 }, rollout.Failed},
	{"pre-rollout fails", func(w *fakePorts) { w.answers["pr"] = 503 }, rollout.Failed},
	{"pre-rollout fails once", func(w *fakePorts) { w.answerFirst("pr", 1, 500) }, rollout.Succeeded},
	{"confirm-rollout opens", func(w *fakePorts) { w.answerFirst("cr", 2, 403) }, rollout.Succeeded},
	{"confirm-traffic-increase opens", func(w *fakePorts) { w.answerFirst("ti", 2, 403) }, rollout.Succeeded},
	{"confirm-promotion opens", func(w *fakePorts) { w.answerFirst("cp", 2, 403) }, rollout.Succeeded},
	{"rollback fires", func(w *fakePorts) { w.answerAfter("rb", 3, 200) }, rollout.Failed},
	{"another revision", func(w *fakePorts) { w.afterCalls("ro", 2, func() { w.revision = "v3" }) }, rollout.Succeeded},
	{"revert", func(w *fakePorts) { w.afterCalls("ro", 2, func() { w.revision = "v1" }) }, rollout.Failed},
	{"promotion fails", func(w *fakePorts) { w.fails["promote"] = errScripted }, rollout.Failed},
	{"promotion is late", func(w *fakePorts) { w.failFirst("promote", 3) }, rollout.Succeeded},
	{"canary stuck", func(w *fakePorts) { w.afterCalls("cr", 1, func() { w.fails["canary"] = errStuck }) }, rollout.Failed},
	{"canary is late", func(w *fakePorts) { w.failFirst("canary", 3) }, rollout.Succeeded},
	{"post-rollout fails", func(w *fakePorts) { w.answers["po"] = 500 }, rollout.Succeeded},
}

// answerFirst makes a webhook answer with status to its first calls.
func (w *fakePorts) answerFirst(name string, times, status int) {
	w.answers[name] = status
	w.afterCalls(name, times, func() { delete(w.answers, name) })
}

// answerAfter makes a webhook answer with status after the given number of calls.
func (w *fakePorts) answerAfter(name string, times, status int) {
	w.afterCalls(name, times, func() { w.answers[name] = status })
}

// afterCalls calls do after the given number of calls of a webhook.
func (w *fakePorts) afterCalls(name string, times int, do func()) {
	w.after = append(w.after, func(call string) {
		if call == "hook "+name {
			if times--; times == 0 {
				do()
			}
		}
	})
}

// failFirst makes a call fail the given number of times before it succeeds.
func (w *fakePorts) failFirst(name string, times int) {
	w.fails[name] = errScripted
	w.after = append(w.after, func(call string) {
		if call == name {
			if times--; times == 0 {
				delete(w.fails, name)
			}
		}
	})
}

var strategies = []struct {
	name string
	set  func(*rollout.Settings)
}{
	{"step", func(s *rollout.Settings) { s.StepWeight, s.MaxWeight = 20, 50 }},
	{"steps", func(s *rollout.Settings) { s.StepWeights, s.StepWeightPromotion = []int{1, 10, 80}, 30 }},
	{"mirror", func(s *rollout.Settings) { s.StepWeight, s.MaxWeight, s.Mirror = 20, 50, true }},
	{"a/b", func(s *rollout.Settings) { s.Iterations, s.Match = 3, make([]rollout.Match, 1) }},
	{"blue/green", func(s *rollout.Settings) { s.Iterations = 3 }},
	{"blue/green mirror", func(s *rollout.Settings) { s.Iterations, s.Mirror = 3, true }},
}

// rollouts calls do for each strategy and script. Each call of begin returns new ports.
func rollouts(t *testing.T, do func(t *testing.T, end rollout.Phase, begin func() (*fakePorts, *rollout.Analysis))) {
	for _, strategy := range strategies {
		for _, script := range scripts {
			t.Run(strategy.name+"/"+script.name, func(t *testing.T) {
				do(t, script.end, func() (*fakePorts, *rollout.Analysis) {
					x := newScenario(rollout.Initialized)
					set := &x.c.Spec.Analysis
					set.StepWeight, set.MaxWeight = 0, 0
					strategy.set(set)
					script.set(x.w)
					return x.w, x.a
				})
			})
		}
	}
}

var initialStatus = rollout.Status{Phase: rollout.Initialized, AppliedSpec: "v1", PromotedSpec: "v1"}

// A run can resume from the status saved after any step, and emits the same events.
func TestRunFromSavedStatus(t *testing.T) {
	rollouts(t, func(t *testing.T, end rollout.Phase, begin func() (*fakePorts, *rollout.Analysis)) {
		w, a := begin()
		want, err := a.Run(t.Context(), initialStatus, instantLoop())
		if err != nil || want.Phase != end || !want.Ended() {
			t.Fatalf("Run = %+v, %v; want %s\n%s", want, err, end, eventLog(w.events))
		}
		testenv.Equal(t, w.routes, (rollout.Routes{Primary: 100}), "at the end the routes")
		again, b := begin()
		s, now := initialStatus, epoch
		for !s.Ended() {
			next, wait, err := b.Step(t.Context(), now, s)
			must(t, err)
			s, now = stored(t, next), now.Add(wait)
		}
		if same := text(t, s) == text(t, want); !same || eventLog(again.events) != eventLog(w.events) {
			t.Errorf("with a crash after each step it ends as\n%+v\n%swithout as\n%+v\n%s", s, eventLog(again.events), want, eventLog(w.events))
		}
	})
}

// A resumed run waits for the rest of the interval, and never longer than the
// interval, even if the clock went backwards. It does not wait if there is another
// revision or a decision to act upon.
func TestRunWaitsForTheRest(t *testing.T) {
	for name, c := range map[string]struct {
		since time.Duration // the last step
		set   func(*scenario)
		want  time.Duration // 0: no wait
	}{
		"at once":              {0, func(*scenario) {}, time.Minute},
		"in between":           {45 * time.Second, func(*scenario) {}, 15 * time.Second},
		"due":                  {time.Minute, func(*scenario) {}, 0},
		"clock went backwards": {-time.Hour, func(*scenario) {}, time.Minute},
		"unknown":              {0, func(x *scenario) { x.s.LastStep = time.Time{} }, 0},
		"another revision":     {0, func(x *scenario) { x.w.revision = "v3" }, 0},
		"revision not known":   {0, func(x *scenario) { x.w.fails["revision"] = errScripted }, time.Minute},
		"rollback decided":     {0, func(x *scenario) { x.s.RollingBack = true }, 0},
		"other interval":       {5 * time.Second, func(x *scenario) { x.c.Spec.Analysis.Interval = rollout.Duration(20 * time.Second) }, 15 * time.Second},
	} {
		x := newScenario(rollout.Progressing)
		x.s.LastStep = epoch.Add(-c.since)
		c.set(x)
		loop, waited := instantLoop(), time.Duration(0)
		loop.Wait = func(_ context.Context, d time.Duration) error {
			if waited = d; len(x.w.log) > 0 {
				waited = 0
			}
			return errScripted
		}
		if _, err := x.a.Run(t.Context(), x.s, loop); (err != nil) != (c.want > 0 || !x.s.RollingBack) || waited != c.want {
			t.Errorf("%s: waits %v before its first step, want %v; %v", name, waited, c.want, err)
		}
	}
}

// The reason in a status is that of this failure, not of the previous one.
func TestReason(t *testing.T) {
	x := newScenario(rollout.Failed)
	x.w.revision, x.w.fails["primary"], x.s.Reason = "v3", errStuck, "of before"
	if s := step(t, x.a, x.s); !strings.Contains(s.Reason, "the primary does not become ready") {
		t.Errorf("%+v", s)
	}
	x = newScenario(rollout.Progressing)
	x.w.answers["rb"] = 200
	if s := step(t, x.a, step(t, x.a, x.s)); s.Phase != rollout.Failed || !strings.Contains(s.Reason, "asks for a rollback") {
		t.Errorf("%+v", s)
	}
}

// A crash interrupts the program at the call with number at: either the context ends
// before the call, or the program panics after it without recording its result.
type crash func(w *fakePorts, at int, cancel context.CancelFunc)

var errCrash = errors.New("crash")

var crashes = map[string]crash{
	"context ends before a call": func(w *fakePorts, at int, cancel context.CancelFunc) {
		w.before = func(string) {
			if at--; at == 0 {
				cancel()
			}
		}
	},
	"panic after a call": func(w *fakePorts, at int, _ context.CancelFunc) {
		w.after = append(w.after, func(string) {
			if at--; at == 0 {
				panic(errCrash)
			}
		})
	},
}

// A run that is interrupted at any call of a port and resumed from the saved status
// comes to the same end.
func TestRunCutShort(t *testing.T) {
	rollouts(t, func(t *testing.T, end rollout.Phase, begin func() (*fakePorts, *rollout.Analysis)) {
		w, a := begin()
		calls, step := 0, 1
		if measure.RaceEnabled() { // the runs are single-threaded and much alike, so a sample is enough
			step = 8
		}
		w.after = append(w.after, func(string) { calls++ })
		want, err := a.Run(t.Context(), initialStatus, instantLoop())
		must(t, err)
		for how, crash := range crashes {
			for at := 1; at <= calls; at += step {
				w, a := begin()
				s, interrupted := cutShort(t, w, a, at, crash)
				if !interrupted {
					t.Fatalf("%s %d did not cut it short", how, at)
				}
				got, err := a.Run(t.Context(), s, instantLoop())
				if err != nil || got.Phase != end || got.PromotedSpec != want.PromotedSpec || got.AppliedSpec != want.AppliedSpec || w.routes != (rollout.Routes{Primary: 100}) {
					t.Fatalf("%s %d: Run = %+v, %v\nwant %+v\n%s", how, at, got, err, want, eventLog(w.events))
				}
			}
		}
	})
}

// cutShort runs until the crash and returns the status saved before it.
func cutShort(t *testing.T, w *fakePorts, a *rollout.Analysis, at int, crash crash) (saved rollout.Status, interrupted bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	saved = initialStatus
	defer func() {
		w.before = nil
		if p := recover(); p != nil && p != errCrash {
			panic(p)
		}
	}()
	loop := instantLoop()
	loop.Save = func(s rollout.Status) error { saved = stored(t, s); return nil }
	crash(w, at, cancel)
	interrupted = true // the result after a panic
	s, err := a.Run(ctx, initialStatus, loop)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("Run: %v", err)
	}
	return saved, err != nil || s.Ended()
}

// A call that the end of the context interrupts has no outcome: the step emits no
// event that it would not emit otherwise, and its status counts the emitted events.
func TestStepCutShort(t *testing.T) {
	for key := range scenarios {
		full := loadScenario(key)
		calls := 0
		full.w.after = append(full.w.after, func(string) { calls++ })
		if _, _, err := full.a.Step(t.Context(), full.time, full.s); err != nil {
			t.Fatal(err)
		}
		for at := 1; at <= calls; at++ {
			x := loadScenario(key)
			ctx, cancel := context.WithCancel(t.Context())
			crashes["context ends before a call"](x.w, at, cancel)
			s, wait, err := x.a.Step(ctx, x.time, x.s)
			cancel()
			if !errors.Is(err, context.Canceled) || wait != 0 {
				t.Fatalf("%s: cut short at call %d: %v, %v", key, at, wait, err)
			}
			did, all := strings.Join(x.w.log, ", "), strings.Join(full.w.log, ", ")
			if !strings.HasPrefix(all, did) {
				t.Errorf("%s: cut short at call %d: did %s\nwhich is no part of %s", key, at, did, all)
			}
			if counted := s.FailedChecks - x.s.FailedChecks; counted > strings.Count(did, "-fail") {
				t.Errorf("%s: cut short at call %d: counts %d failed checks: %s", key, at, counted, did)
			}
			if s.Sequence != x.s.Sequence+int64(len(x.w.events)) {
				t.Errorf("%s: cut short at call %d: told %d events, sequence is %d after %d", key, at, len(x.w.events), s.Sequence, x.s.Sequence)
			}
		}
	}
}

// A step does not modify the status passed to it, including its gate and its values.
func TestStepLeavesStatus(t *testing.T) {
	for key := range scenarios {
		x := loadScenario(key)
		x.s.Values = append(make([]rollout.Value, 0, 8), rollout.Value{Metric: "m", Value: "1"})
		before := text(t, x.s)
		if _, _, err := x.a.Step(t.Context(), x.time, x.s); err != nil {
			t.Fatal(err)
		}
		testenv.Equal(t, text(t, x.s), before, "%s: the status", key)
	}
}

// The times of a status do not change when it is stored.
func TestStatusTimes(t *testing.T) {
	x := newScenario(rollout.Initialized)
	x.w.answers["cr"] = 403
	s, _, err := x.a.Step(t.Context(), time.Now().In(time.FixedZone("here", 3600)), x.s)
	if err != nil || !reflect.DeepEqual(stored(t, s), s) {
		t.Errorf("%+v, %v: stored %+v", s, err, stored(t, s))
	}
}

// The decision to roll back or to promote is saved before a step acts upon it.
func TestRunStoresDecisions(t *testing.T) {
	rollouts(t, func(t *testing.T, _ rollout.Phase, begin func() (*fakePorts, *rollout.Analysis)) {
		w, a := begin()
		loop, saved := instantLoop(), initialStatus
		loop.Save = func(s rollout.Status) error { saved = stored(t, s); return nil }
		w.before = func(call string) {
			restarts := w.revision != saved.AppliedSpec
			if call == "promote" && saved.Phase != rollout.Promoting || call == "down" && !restarts && !saved.RollingBack && saved.Phase != rollout.Finalising {
				t.Errorf("%s is done when %+v is saved", call, saved)
			}
		}
		if _, err := a.Run(t.Context(), initialStatus, loop); err != nil {
			t.Fatal(err)
		}
	})
}

// With skipAnalysis, the canary is promoted wherever the program is interrupted. A
// canary that is scaled down already is not ready, and the run must not wait for it.
func TestSkipAnalysisCutShort(t *testing.T) {
	begin := func() (*fakePorts, *rollout.Analysis) {
		x := newScenario(rollout.Initialized)
		x.c.Spec.SkipAnalysis = true
		x.w.after = append(x.w.after, func(call string) {
			switch call {
			case "up":
				delete(x.w.fails, "canary")
			case "down":
				x.w.fails["canary"] = errScripted
			}
		})
		return x.w, x.a
	}
	w, a := begin()
	calls := 0
	w.after = append(w.after, func(string) { calls++ })
	if s, err := a.Run(t.Context(), initialStatus, instantLoop()); err != nil || s.Phase != rollout.Succeeded {
		t.Fatalf("Run = %+v, %v", s, err)
	}
	for how, crash := range crashes {
		for at := 1; at <= calls; at++ {
			w, a := begin()
			s, _ := cutShort(t, w, a, at, crash)
			if s, err := a.Run(t.Context(), s, instantLoop()); err != nil || s.Phase != rollout.Succeeded || s.PromotedSpec != "v2" {
				t.Errorf("%s %d: Run = %+v, %v\n%s", how, at, s, err, eventLog(w.events))
			}
		}
	}
}
