package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// plan is how a canary advances: by weights, by iterations, or by iterations
// with matching requests. It is nil when none would end.
func (c *Canary) plan() func(*tick) {
	switch a := c.Spec.Analysis; {
	case a.Iterations > 0 && len(a.Match) > 0:
		return (*tick).testMatching
	case a.Iterations > 0:
		return (*tick).switchOver
	case a.StepWeight > 0 || len(a.StepWeights) > 0:
		return (*tick).shiftWeight
	}
	return nil
}

// maxWeight is the weight at which a canary is promoted, in percent.
func (c *Canary) maxWeight() int {
	a := c.Spec.Analysis
	limit := cmp.Or(a.MaxWeight, 100)
	if a.StepWeight <= 0 && len(a.StepWeights) > 0 {
		limit = min(limit, slices.Max(a.StepWeights))
	}
	return min(max(limit, 1), 100)
}

// nextWeight is the weight after one that is below the maximum.
func (c *Canary) nextWeight(weight int) int {
	a, limit := c.Spec.Analysis, c.maxWeight()
	if a.StepWeight > 0 {
		return min(weight+a.StepWeight, limit)
	}
	next := limit
	for _, w := range a.StepWeights {
		if w > weight {
			next = min(next, w)
		}
	}
	return next
}

func (c *Canary) namespace() string { return cmp.Or(c.Metadata.Namespace, "default") }

func (c *Canary) threshold() int {
	return max(c.Spec.Analysis.Threshold, 1)
}

// interval is the time between two ticks.
func (c *Canary) interval() time.Duration {
	return max(cmp.Or(c.Spec.Analysis.Interval.span(), time.Minute), 10*time.Second)
}

func (c *Canary) progressDeadline() time.Duration {
	return time.Duration(cmp.Or(c.Spec.ProgressDeadlineSeconds, 600)) * time.Second
}

// span is d as the standard library has it.
func (d Duration) span() time.Duration { return time.Duration(d) }

// ready says that nothing is not ready.
func (s *Status) ready() { s.NotReady, s.NotReadySince = "", time.Time{} }

// measured is what the metrics were in this tick.
func (t *tick) measured() string {
	var b strings.Builder
	for i, v := range t.s.Values {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(v.Metric + " " + v.Value)
	}
	return b.String()
}
