package rollout

// A Strategy is how a canary gets its traffic (reference B.2).
type Strategy string

// The strategies.
const (
	Weighted  Strategy = "weighted"   // a rising share of all requests
	ABTest    Strategy = "a/b"        // the requests that match, for a number of iterations
	BlueGreen Strategy = "blue/green" // none, or copies, for a number of iterations; then all
)

// Strategy returns the strategy: without iterations that of weights, with
// iterations and conditions on requests an A/B test, else blue/green.
func (c *Canary) Strategy() Strategy {
	switch a := &c.Spec.Analysis; {
	case a.Iterations <= 0:
		return Weighted
	case len(a.Match) > 0:
		return ABTest
	}
	return BlueGreen
}

// MaxWeight returns the highest weight that the canary has before it is
// promoted: maxWeight, 100 by default, and not more than the last of
// stepWeights where these count.
func (c *Canary) MaxWeight() int {
	a := &c.Spec.Analysis
	limit := 100
	if a.MaxWeight > 0 {
		limit = min(limit, a.MaxWeight)
	}
	if n := len(a.StepWeights); n > 0 && a.StepWeight <= 0 {
		limit = min(limit, max(a.StepWeights[n-1], 0))
	}
	return limit
}

// stepsDone returns how many weights or iterations a canary has reached, and of
// how many.
func (c *Canary) stepsDone(s Status) (done, all int) {
	if c.Strategy() != Weighted {
		all = c.Spec.Analysis.Iterations
		return min(s.Iterations, all), all
	}
	for weight, next := 0, c.NextWeight(0); next > weight; weight, next = next, c.NextWeight(next) {
		all++
		if next <= s.CanaryWeight {
			done++
		}
	}
	return done, all
}

// NextWeight returns the weight that follows weight: stepWeight more, or else
// the smallest of stepWeights that is higher; never above [Canary.MaxWeight].
// It returns weight itself when none follows, as with the other strategies.
func (c *Canary) NextWeight(weight int) int {
	a := &c.Spec.Analysis
	limit, next := c.MaxWeight(), weight
	switch {
	case c.Strategy() != Weighted || weight >= limit:
	case a.StepWeight > 0:
		next = weight + min(a.StepWeight, limit-weight)
	default:
		for _, step := range a.StepWeights {
			if step = min(step, limit); step > weight && (next == weight || step < next) {
				next = step
			}
		}
	}
	return next
}
