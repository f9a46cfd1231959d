package metric

import (
	"context"

	"github.com/headgate-io/headgate/rollout"
)

// A Func is a function that answers metrics.
type Func func(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error)

// Query calls f.
func (f Func) Query(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	return f(ctx, c, m)
}

// Values answers metrics by their names; one that it does not have is without values.
type Values map[string]float64

// Query returns the value of a metric.
func (v Values) Query(_ context.Context, _ *rollout.Canary, m rollout.Metric) (float64, error) {
	value, ok := v[m.Name]
	if !ok {
		return 0, rollout.ErrNoValues
	}
	return value, nil
}
