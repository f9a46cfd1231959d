package simulate

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// A sky is what a tick depends on beside the state.
type sky struct {
	canary *rollout.Canary
	now    time.Time
	says   func(of Subject, names ...string) string
	target string // its revision
}

// first returns the first webhook of a type whose success is not as wanted.
func (k sky) first(of rollout.HookType, last int, success bool) (rollout.Hook, bool) {
	for _, h := range k.canary.Spec.Analysis.Webhooks {
		if typeOf(h) != of {
			continue
		}
		good := of != rollout.HookRollback
		if says := k.says(Hook, h.Name, string(of)); says != "" {
			code, _ := strconv.Atoi(says)
			good = code >= 200 && code <= last
		}
		if good == success {
			return h, true
		}
	}
	return rollout.Hook{}, false
}

func (k sky) fails(of Subject, names ...string) bool { return k.says(of, names...) == failing }

// metrics tells whether a metric fails, and whether all others decide.
func (k sky) metrics() (fail, decided bool) {
	decided = true
	for _, m := range k.canary.Spec.Analysis.Metrics {
		says := k.says(Metric, m.Name)
		switch {
		case says == "":
		case says == none && m.NoValues == "pass":
		case says == none && m.NoValues == "inconclusive":
			decided = false
		case says == none || says == failing:
			return true, true
		default:
			value := number(says)
			if r := m.ThresholdRange; r.Min != nil && value < *r.Min || r.Max != nil && value > *r.Max {
				return true, true
			}
		}
	}
	return false, decided
}

// steps are the weights of the canary, one after the other.
func (k sky) steps() []int {
	a := k.canary.Spec.Analysis
	limit := cmp.Or(a.MaxWeight, 100)
	if a.StepWeight == 0 {
		return a.StepWeights
	}
	var steps []int
	for w := a.StepWeight; w < limit; w += a.StepWeight {
		steps = append(steps, w)
	}
	return append(steps, limit)
}

// any returns a webhook of a type.
func (k sky) any(of rollout.HookType) (rollout.Hook, bool) {
	i := slices.IndexFunc(k.canary.Spec.Analysis.Webhooks, func(h rollout.Hook) bool { return typeOf(h) == of })
	if i < 0 {
		return rollout.Hook{}, false
	}
	return k.canary.Spec.Analysis.Webhooks[i], true
}

// ready asks what is ready: it says stuck also when the deadline is over.
func (f *forecast) ready(k sky, of Subject) string {
	return f.when(k, of, cmp.Or(k.says(of), ready))
}

// promotion is what a revision waits for that is not copied to the primary.
const promotion Subject = "promotion"

// when is ready for what says so.
func (f *forecast) when(k sky, of Subject, says string) string {
	if says == ready {
		if f.waitsFor == of {
			f.waitsFor = ""
		}
		return ready
	}
	if f.waitsFor != of {
		f.waitsFor, f.unready = of, k.now
	}
	if k.now.Sub(f.unready) >= time.Duration(cmp.Or(k.canary.Spec.ProgressDeadlineSeconds, 600))*time.Second {
		return stuck
	}
	return says
}
