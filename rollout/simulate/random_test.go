package simulate

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// A chance is one canary with its outcomes.
type chance struct {
	*rand.Rand
	canary   *rollout.Canary
	moods    map[string]float64 // how likely something goes badly, by subject and name
	now      map[string]string  // what is said in this tick
	last     int                // the last revision that there was
	world    *world
	witness  *witness
	analysis *rollout.Analysis
	status   rollout.Status
	stored   string // the status as JSON
	time     time.Time
	wait     time.Duration
	exact    bool // no step ends in the middle
	reached  map[rollout.Phase]bool
	story    strings.Builder
	number   int
}

func randomRun(seed uint64) *chance {
	r := &chance{Rand: rand.New(rand.NewPCG(seed, 7)), moods: map[string]float64{}, now: map[string]string{}, reached: map[rollout.Phase]bool{}}
	r.canary = r.randomCanary()
	r.exact = r.IntN(4) > 0
	if r.some(20) {
		r.wild()
	}
	r.last = 1
	r.time = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	r.world = &world{state: state{routes: rollout.Routes{Primary: 100}, primary: "1"}}
	r.world.says = func(of Subject, names ...string) string {
		key := string(of)
		if len(names) > 0 {
			key += " " + names[0]
		}
		return r.now[key]
	}
	r.witness = &witness{world: r.world, canary: r.canary}
	r.analysis = &rollout.Analysis{Canary: r.canary, Traffic: r.witness, Target: r.witness, Metrics: r.witness, Hooks: r.witness, Sink: r.witness}
	for _, key := range r.keys() {
		if r.IntN(2) == 0 {
			r.moods[key] = []float64{0.05, 0.3, 0.7, 1}[r.IntN(4)]
		}
		if rare(key) && r.IntN(4) > 0 {
			r.moods[key] = 0
		}
	}
	return r
}

// rare reports whether something goes badly in few runs, so that others get far.
func rare(key string) bool {
	return !strings.HasPrefix(key, "hook confirm") && !strings.HasPrefix(key, "metric")
}

func (r *chance) some(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *chance, of ...T) T { return of[r.IntN(len(of))] }

func (r *chance) randomCanary() *rollout.Canary {
	c := &rollout.Canary{Metadata: rollout.Metadata{Name: "podinfo", Namespace: "test"}}
	c.Spec.SkipAnalysis = r.some(20)
	c.Spec.ProgressDeadlineSeconds = pick(r, 0, 60, 150, 600)
	a := &c.Spec.Analysis
	a.Interval, a.Threshold = rollout.Duration(time.Minute), 1+r.IntN(4)
	a.MaxWeight = pick(r, 10, 50, 65, 100)
	a.Mirror = r.some(3)
	a.StepWeightPromotion = pick(r, 0, 0, 20, 40, 100)
	switch r.IntN(4) {
	case 0, 1:
		a.StepWeight = pick(r, 5, 10, 20, 30, 50, 100)
		if a.StepWeight == 5 {
			a.MaxWeight = 10
		}
	case 2:
		a.MaxWeight = 100
		for w := 1 + r.IntN(40); w <= 100; w += 1 + r.IntN(60) {
			a.StepWeights = append(a.StepWeights, w)
		}
	case 3:
		a.Iterations = 1 + r.IntN(4)
		if r.some(2) {
			a.Match = []rollout.Match{{Headers: map[string]rollout.StringMatch{"x": {Exact: "y"}}}}
			a.Mirror = false
		}
	}
	for _, of := range []rollout.HookType{
		rollout.HookConfirmRollout, rollout.HookPreRollout, rollout.HookRollout, rollout.HookConfirmTrafficIncrease,
		rollout.HookConfirmPromotion, rollout.HookPostRollout, rollout.HookRollback,
	} {
		for i := range pick(r, 0, 1, 1, 1, 2) {
			h := rollout.Hook{Name: fmt.Sprintf("%s-%d", of, i), Type: of, URL: "http://tester.test/"}
			if of == rollout.HookRollout && r.some(2) {
				h.Type = ""
			}
			if strings.HasPrefix(string(of), "confirm") {
				h.Deadline = rollout.Duration(pick(r, 0, 0, 2*time.Minute, 5*time.Minute))
			}
			a.Webhooks = append(a.Webhooks, h)
		}
	}
	r.Shuffle(len(a.Webhooks), func(i, j int) { a.Webhooks[i], a.Webhooks[j] = a.Webhooks[j], a.Webhooks[i] })
	lowest, highest := 10.0, 20.0
	for i := range r.IntN(3) {
		m := rollout.Metric{Name: fmt.Sprintf("metric-%d", i), NoValues: pick(r, "", "pass", "inconclusive")}
		m.ThresholdRange = pick(r, &rollout.Range{Min: &lowest}, &rollout.Range{Max: &highest}, &rollout.Range{Min: &lowest, Max: &highest})
		a.Metrics = append(a.Metrics, m)
	}
	return c
}

// wild are settings that Check refuses, and Step has to bear.
func (r *chance) wild() {
	r.exact = false
	a := &r.canary.Spec.Analysis
	a.MaxWeight = pick(r, -1, 0, 33, 150)
	a.StepWeight = pick(r, -5, 0, 0, 70, 1000)
	a.StepWeights = pick(r, nil, []int{0}, []int{50, 10}, []int{20, 20, 30}, []int{-1, 200}, []int{30, 0})
	a.StepWeightPromotion = pick(r, -10, 0, 300)
	a.Threshold = pick(r, -1, 0, 2)
	a.Iterations = pick(r, -1, 0, 0, 2)
	a.Interval = rollout.Duration(pick(r, -time.Minute, 0, time.Nanosecond))
	r.canary.Spec.ProgressDeadlineSeconds = pick(r, -1, 0, 60)
	for i := range a.Webhooks {
		if h := &a.Webhooks[i]; r.some(5) {
			h.Deadline = rollout.Duration(-time.Minute)
		}
	}
	a.Webhooks = append(a.Webhooks, rollout.Hook{Name: "unknown", Type: "confirm-lunch"})
}

// keys are what outcomes are of, in a fixed order.
func (r *chance) keys() []string {
	keys := []string{"canary", "primary", "traffic", "target scale-up", "target scale-down", "target promote", "target revision", "revision", "suspend"}
	for _, h := range r.canary.Spec.Analysis.Webhooks {
		keys = append(keys, "hook "+h.Name)
	}
	for _, m := range r.canary.Spec.Analysis.Metrics {
		keys = append(keys, "metric "+m.Name)
	}
	return keys
}

// blow draws what is said in the next tick. Most of it stays for some ticks.
func (r *chance) blow() {
	for _, key := range r.keys() {
		change, bad := r.some(3), r.Float64() < r.moods[key]
		outcome := r.bad(key)
		switch {
		case key == "revision":
			if bad && r.some(4) {
				r.now[key] = r.another()
			}
		case !change:
		case bad:
			r.now[key] = outcome
		default:
			delete(r.now, key)
		}
	}
}

// another is a new revision, or one that there was.
func (r *chance) another() string {
	if r.some(3) {
		return strconv.Itoa(1 + r.IntN(r.last))
	}
	r.last++
	return strconv.Itoa(r.last)
}

func (r *chance) bad(key string) string {
	of, _, _ := strings.Cut(key, " ")
	switch Subject(of) {
	case Hook:
		if strings.HasPrefix(key, "hook rollback") {
			return pick(r, "200", "202", "204", "500", timeout)
		}
		return pick(r, "201", "202", "204", "302", "403", "403", "429", "500", timeout, refused)
	case Metric:
		return pick(r, none, failing, "9.99", "20.01", "-1e308", "15")
	case Canary, Primary:
		return pick(r, notReady, notReady, notReady, stuck)
	case Traffic:
		return pick(r, failing, setFailing)
	case Suspend:
		return on
	}
	return failing
}

// calm makes everything go well from now on.
func (r *chance) calm() {
	revision := r.now["revision"]
	clear(r.now)
	r.now["revision"] = revision
}
