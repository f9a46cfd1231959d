package rollout_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// scenarios are the situations of testdata/decisions.txt, and what brings them
// about: the words of testdata/scenarios.txt, which [scenario.do] does in order.
var scenarios = func() map[string]string {
	text, err := os.ReadFile("testdata/scenarios.txt")
	if err != nil {
		panic(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, words, _ := strings.Cut(line, "|")
		all[strings.TrimSpace(key)] = strings.TrimSpace(words)
	}
	return all
}()

// prepared is a scenario of the table before its step.
func prepared(key string) *scenario {
	phase, _, _ := strings.Cut(key, ":")
	if phase == "none" {
		phase = ""
	}
	x := newScenario(rollout.Phase(phase))
	for word := range strings.SplitSeq(scenarios[key], "; ") {
		x.do(word)
	}
	return x
}

var errStuck = fmt.Errorf("scripted: %w", rollout.ErrStuck)

// do changes one thing of a scenario.
func (x *scenario) do(words string) {
	word, rest, _ := strings.Cut(words, " ")
	first, last, _ := strings.Cut(rest, " ")
	number, _ := strconv.Atoi(first)
	set := &x.c.Spec.Analysis
	switch word {
	case "": // all goes well
	case "rb", "cr", "pr", "ro", "ti", "cp", "po": // what a webhook answers
		x.w.answers[word] = number
	case "second": // another webhook of the type of one, and what it answers
		x.w.answers[first+"2"], _ = strconv.Atoi(last)
		set.Webhooks = append(set.Webhooks, rollout.Hook{Name: first + "2", Type: x.hook(first).Type})
	case "without": // the webhook
		set.Webhooks = slices.DeleteFunc(set.Webhooks, func(h rollout.Hook) bool { return h.Name == first })
	case "mute":
		x.hook(first).MuteAlert = true
	case "deadline": // of a gate
		d, _ := time.ParseDuration(last)
		x.hook(first).Deadline = rollout.Duration(d)
	case "fails":
		x.w.fails[rest] = errScripted
	case "stuck":
		x.w.fails[rest] = errStuck
	case "works":
		delete(x.w.fails, rest)
	case "overdue": // not ready for progressDeadlineSeconds
		x.deadline(rest)
	case "revision":
		x.w.revision = strings.TrimPrefix(rest, "none")
	case "applied":
		x.s.AppliedSpec = strings.TrimPrefix(rest, "none")
	case "promoted":
		x.s.PromotedSpec = strings.TrimPrefix(rest, "none")
	case "weight":
		x.weight(number)
	case "begins": // the first tick of an analysis
		x.weight(0)
		x.s.PreRollout = false
	case "failed": // checks; the threshold is 2
		x.s.FailedChecks = number
	case "suspend":
		x.c.Spec.Suspend = true
	case "suspension": // was told
		x.s.Suspended = true
	case "skip": // the analysis
		x.c.Spec.SkipAnalysis = true
	case "post-rollout":
		x.s.PostRollout = true
	case "rolling": // back
		x.s.RollingBack = true
	case "confirmed":
		x.s.Confirmed = true
	case "at":
		x.at(first)
	case "m": // the value of the metric
		x.w.values["m"], _ = strconv.ParseFloat(first, 64)
	case "no": // metrics at all, or values and what the policy for that is
		if first == "metrics" {
			x.a.Metrics = nil
			return
		}
		x.w.fails["metric m"] = fmt.Errorf("query: %w", rollout.ErrNoValues)
		set.Metrics[0].NoValues = last
	case "metric": // another one, and its maximum
		m := rollout.Metric{Name: first}
		if most, err := strconv.ParseFloat(last, 64); err == nil {
			m.ThresholdRange = &rollout.Range{Max: &most}
		}
		x.metric(m)
	case "template": // of a metric that comes first
		set.Metrics = append([]rollout.Metric{{Name: "t", TemplateRef: &rollout.ObjectRef{Name: "t"}}}, set.Metrics...)
	case "steps": // to 1, 10 and 30 percent, and the weight
		set.StepWeight, set.StepWeights = 0, []int{1, 10, 30}
		x.weight(number)
	case "promotion": // by steps
		set.StepWeightPromotion = 30
	case "iterations", "matches": // how many there are, and how many are done
		set.StepWeight, set.MaxWeight, set.Iterations = 0, 0, number
		x.s.Iterations, _ = strconv.Atoi(last)
		x.s.PreRollout = x.s.Iterations > 0
		if x.weight(0); word == "matches" {
			set.Match = []rollout.Match{{Headers: map[string]rollout.StringMatch{"x": {Exact: "y"}}}}
			x.weight(min(x.s.Iterations, 1) * 100)
		}
	case "mirror":
		set.Mirror = true
	case "copies": // are made
		x.w.routes.Mirrored = true
	case "mirrors": // in the first step, which is not done
		x.weight(0)
		set.Mirror, x.s.PreRollout = true, false
	case "mirrored": // it is done
		x.w.routes.Mirrored, x.s.PreRollout = true, true
	case "asked": // by a person to do something, or of a revision
		if first == "of" {
			x.s.Request.Revision = last
			return
		}
		x.s.Request = &rollout.Request{ID: "1", Action: rollout.Action(last), Revision: x.s.AppliedSpec, By: "ann", Reason: "5xx"}
	case "ungated":
		x.s.Request.SkipGates = true
	case "accepted":
		x.s.Request.Accepted = true
	default:
		panic("scenario: " + word)
	}
}

// at makes the canary wait on confirm-traffic-increase at 20 percent, or on
// confirm-promotion at the maximum.
func (x *scenario) at(gate string) {
	if gate == "cp" {
		x.weight(50)
		x.gate(rollout.HookConfirmPromotion)
		return
	}
	x.weight(20)
	x.s.PreRollout = true
	x.gate(rollout.HookConfirmTrafficIncrease)
	delete(x.w.answers, "cr")
}

// deadline lets progressDeadlineSeconds pass in which something is not ready.
func (x *scenario) deadline(what string) {
	x.w.fails[what] = errScripted
	x.s.NotReady, x.s.NotReadySince = what, epoch
	x.time = epoch.Add(10 * time.Minute)
}

// metric adds a metric.
func (x *scenario) metric(m rollout.Metric) {
	x.c.Spec.Analysis.Metrics = append(x.c.Spec.Analysis.Metrics, m)
}
