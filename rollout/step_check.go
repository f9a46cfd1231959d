package rollout

import (
	"slices"
	"strconv"
	"strings"
)

// checkThreshold decides a rollback if the failed checks have reached the
// threshold, which may have been lowered.
func (t *tick) checkThreshold() bool {
	if t.Canary.Spec.SkipAnalysis || t.s.FailedChecks < t.Canary.Threshold() {
		return true
	}
	t.decideRollback(EventRollbackThreshold, eventDetail{})
	return false
}

// fail counts a failed check, and decides a rollback if that reaches the threshold.
func (t *tick) fail(code EventCode, a eventDetail) {
	t.s.FailedChecks++
	t.emit(code, a)
	t.checkThreshold()
}

// preRollout calls the pre-rollout webhooks in each tick until all pass, and not
// again for the same revision.
func (t *tick) preRollout() bool {
	if t.s.PreRollout {
		return true
	}
	if t.s.FailedChecks == 0 {
		t.emit(EventAnalysisStart, eventDetail{})
	}
	for _, h := range t.hooks(HookPreRollout) {
		answer, verdict, ok := t.call(h)
		if !ok {
			return false
		}
		if verdict != Pass {
			t.fail(EventPreRolloutFail, eventDetail{name: h.Name, reason: answer})
			return false
		}
		t.emit(EventPreRolloutPass, eventDetail{name: h.Name, reason: answer})
	}
	t.s.PreRollout = true
	return true
}

// underTest reports whether there is something to check: traffic at the
// canary, or an iteration.
func (t *tick) underTest() bool {
	return t.routes.Canary > 0 || t.routes.Mirrored || t.s.Iterations > 0
}

// rolloutHooks calls the rollout webhooks until one fails.
func (t *tick) rolloutHooks() bool {
	if !t.underTest() {
		return true
	}
	for _, h := range t.hooks(HookRollout) {
		answer, verdict, ok := t.call(h)
		if !ok {
			return false
		}
		if verdict != Pass {
			t.fail(EventRolloutFail, eventDetail{name: h.Name, reason: answer})
			return false
		}
	}
	return true
}

// metricChecks judges the metrics until one fails: first the metrics without a
// template, then the others. An inconclusive metric keeps the weight.
func (t *tick) metricChecks() bool {
	if !t.underTest() || t.Metrics == nil {
		return true
	}
	on := true
	for _, m := range t.metrics() {
		value, err := t.Metrics.Query(t.ctx, t.Canary, m)
		if err != nil && t.contextEnded() {
			return false
		}
		verdict, cause := m.Judge(t.Canary, value, err)
		a := eventDetail{name: m.Name}
		if cause != nil {
			a.reason = cause.Error()
		}
		t.record(m.Name, value, err)
		switch verdict {
		case Pass:
		case Pause:
			on = false
			t.emit(EventMetricInconclusive, a)
		default:
			t.fail(EventMetricFail, a)
			return false
		}
	}
	return on
}

// metrics returns the metrics of the canary in the order in which they are checked.
func (t *tick) metrics() []Metric {
	metrics := slices.Clone(t.Canary.Spec.Analysis.Metrics)
	slices.SortStableFunc(metrics, func(a, b Metric) int { return rank(a) - rank(b) })
	return metrics
}

func rank(m Metric) int {
	if m.TemplateRef != nil {
		return 1
	}
	return 0
}

// record stores the last value of a metric in the status.
func (t *tick) record(metric string, value float64, err error) {
	v := Value{Metric: excerpt(metric), Value: strconv.FormatFloat(value, 'g', -1, 64)}
	if err != nil {
		v.Value = excerpt(err.Error())
	}
	values := slices.Clone(t.s.Values) // the caller of Step holds the old slice
	i := slices.IndexFunc(values, func(w Value) bool { return w.Metric == v.Metric })
	switch {
	case i >= 0:
		values[i] = v
	case len(values) < maxValues:
		values = append(values, v)
	}
	t.s.Values = values
}

// metricValuesText returns the last values of all metrics as text.
func (t *tick) metricValuesText() string {
	var texts []string
	for _, v := range t.s.Values {
		texts = append(texts, v.Metric+" "+v.Value)
	}
	return strings.Join(texts, ", ")
}
