package metric

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/rollout"
)

// A Querier answers metric queries: it is a [rollout.Metrics]. The zero value
// answers metrics of canaries that name their metricsServer. It is safe for
// concurrent use. Its owner ends idle connections with Close.
type Querier struct {
	Templates []*Template     // those that templateRef names
	Server    string          // URL of the Prometheus for canaries without spec.metricsServer; user information in it is for basic authentication
	Provider  string          // of canaries without spec.provider, such as istio
	Secrets   rollout.Secrets // nil: a template that names a Secret is an error
	Commands  *Commands       // nil: templates of type exec are refused

	Proxy func(*http.Request) (*url.URL, error) // as in [http.Transport]; nil for none

	pool    notify.Pool
	timeout time.Duration // of a whole request; default answerTimeout
}

// Query returns the value of a metric now. The error wraps
// [rollout.ErrNoValues] when it has none; it names the provider and the
// address, and shows no secret.
func (q *Querier) Query(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	e, err := q.endpointOf(c, m)
	if err != nil {
		return 0, err
	}
	v := valuesOf(c, m)
	var value float64
	switch e.kindOf() {
	case typePrometheus:
		var text string
		if text, err = q.promQLOf(c, m, e, v); err == nil {
			value, err = q.promQL(ctx, e, text)
		}
	case typeHTTP:
		value, err = q.document(ctx, e, v)
	case typeExec:
		value, err = q.Commands.run(ctx, e.query, v)
	}
	return value, e.wrap(err)
}

// Check returns why nobody can be asked for a metric of a canary: there is no
// server, no query or no such template. It asks nobody.
func (q *Querier) Check(c *rollout.Canary, m rollout.Metric) error {
	if _, err := q.endpointOf(c, m); err != nil {
		return fmt.Errorf("metric %s: %w", m.Name, err)
	}
	return nil
}

// Online asks each Prometheus of the metrics of a canary for a constant. The
// error joins what did not answer.
func (q *Querier) Online(ctx context.Context, c *rollout.Canary) error {
	var errs []error
	asked := map[string]bool{}
	for _, m := range c.Spec.Analysis.Metrics {
		e, err := q.endpointOf(c, m)
		if name := e.name; err != nil {
			errs = append(errs, fmt.Errorf("metric %s: %w", m.Name, err))
		} else if e.kindOf() == typePrometheus && !asked[name] {
			asked[name] = true
			errs = append(errs, q.online(ctx, e))
		}
	}
	return errors.Join(errs...)
}

// online asks a Prometheus for a constant.
func (q *Querier) online(ctx context.Context, e endpoint) error {
	value, err := q.promQL(ctx, e, "vector(1)")
	if err == nil && value != 1 {
		err = fmt.Errorf("answered %v to vector(1): is it Prometheus?", value)
	}
	return e.wrap(err)
}

// Close ends idle connections.
func (q *Querier) Close() { q.pool.Close() }
