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

// scenarios maps each situation of testdata/decisions.txt to the commands of
// testdata/scenarios.txt that create it. [scenario.do] executes them in order.
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

// loadScenario returns a scenario of the table before its step.
func loadScenario(key string) *scenario {
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

// do executes one command, which changes the scenario.
func (x *scenario) do(words string) {
	word, rest, _ := strings.Cut(words, " ")
	first, last, _ := strings.Cut(rest, " ")
	number, _ := strconv.Atoi(first)
	set := &x.c.Spec.Analysis
	switch word {
	case "": // every call succeeds
	case "rb", "cr", "pr", "ro", "ti", "cp", "po": // status that the webhook answers
		x.w.answers[word] = number
	case "second": // adds a webhook of the same type, with its answer
		x.w.answers[first+"2"], _ = strconv.Atoi(last)
		set.Webhooks = append(set.Webhooks, rollout.Hook{Name: first + "2", Type: x.hook(first).Type})
	case "without": // removes a webhook
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
		x.passDeadline(rest)
	case "revision":
		x.w.revision = strings.TrimPrefix(rest, "none")
	case "applied":
		x.s.AppliedSpec = strings.TrimPrefix(rest, "none")
	case "promoted":
		x.s.PromotedSpec = strings.TrimPrefix(rest, "none")
	case "weight":
		x.weight(number)
	case "begins": // first tick of an analysis
		x.weight(0)
		x.s.PreRollout = false
	case "failed": // number of failed checks; the threshold is 2
		x.s.FailedChecks = number
	case "suspend":
		x.c.Spec.Suspend = true
	case "suspension": // was announced
		x.s.Suspended = true
	case "skip": // sets skipAnalysis
		x.c.Spec.SkipAnalysis = true
	case "post-rollout":
		x.s.PostRollout = true
	case "rolling": // a rollback is decided
		x.s.RollingBack = true
	case "confirmed":
		x.s.Confirmed = true
	case "at":
		x.waitAtGate(first)
	case "m": // value of the metric
		x.w.values["m"], _ = strconv.ParseFloat(first, 64)
	case "no": // no metrics, or no values and the noValues of the metric
		if first == "metrics" {
			x.a.Metrics = nil
			return
		}
		x.w.fails["metric m"] = fmt.Errorf("query: %w", rollout.ErrNoValues)
		set.Metrics[0].NoValues = last
	case "metric": // adds a metric with a maximum
		m := rollout.Metric{Name: first}
		if most, err := strconv.ParseFloat(last, 64); err == nil {
			m.ThresholdRange = &rollout.Range{Max: &most}
		}
		x.metric(m)
	case "template": // adds a metric with a template, first in the list
		set.Metrics = append([]rollout.Metric{{Name: "t", TemplateRef: &rollout.ObjectRef{Name: "t"}}}, set.Metrics...)
	case "steps": // stepWeights 1, 10 and 30, with the current weight
		set.StepWeight, set.StepWeights = 0, []int{1, 10, 30}
		x.weight(number)
	case "promotion": // promotes in steps
		set.StepWeightPromotion = 30
	case "iterations", "matches": // total number of iterations, and number done
		set.StepWeight, set.MaxWeight, set.Iterations = 0, 0, number
		x.s.Iterations, _ = strconv.Atoi(last)
		x.s.PreRollout = x.s.Iterations > 0
		if x.weight(0); word == "matches" {
			set.Match = []rollout.Match{{Headers: map[string]rollout.StringMatch{"x": {Exact: "y"}}}}
			x.weight(min(x.s.Iterations, 1) * 100)
		}
	case "mirror":
		set.Mirror = true
	case "copies": // the routes are mirrored
		x.w.routes.Mirrored = true
	case "mirrors": // with mirror, before the first step
		x.weight(0)
		set.Mirror, x.s.PreRollout = true, false
	case "mirrored": // with mirror, after the first step
		x.w.routes.Mirrored, x.s.PreRollout = true, true
	case "asked": // a user requested an action; "of": for a revision
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

// waitAtGate makes the canary wait on confirm-traffic-increase at 20 percent, or on
// confirm-promotion at the maximum.
func (x *scenario) waitAtGate(gate string) {
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

// passDeadline makes something not ready for longer than progressDeadlineSeconds.
func (x *scenario) passDeadline(part string) {
	x.w.fails[part] = errScripted
	x.s.NotReady, x.s.NotReadySince = part, epoch
	x.time = epoch.Add(10 * time.Minute)
}

// metric adds a metric.
func (x *scenario) metric(m rollout.Metric) {
	x.c.Spec.Analysis.Metrics = append(x.c.Spec.Analysis.Metrics, m)
}
