package metric

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// An endpoint is where a metric is asked.
type endpoint struct {
	Provider
	name      string // what errors call it
	namespace string // of its Secret
	query     string // "" where it is the metric's
}

// endpointOf returns where a metric is asked.
func (q *Querier) endpointOf(c *rollout.Canary, m rollout.Metric) (endpoint, error) {
	if m.TemplateRef != nil {
		t, err := q.template(c, m)
		if err != nil {
			return endpoint{}, err
		}
		e := endpoint{t.Spec.Provider, "template " + t.name() + " (" + t.Spec.Provider.String() + ")", namespaceOf(t.Metadata), t.Spec.Query}
		return e, e.wrap(t.Check())
	}
	e := endpoint{Provider: Provider{Address: cmp.Or(c.Spec.MetricsServer, q.Server)}}
	e.name = e.Provider.String()
	switch {
	case m.Query == "" && !m.Builtin():
		return e, fmt.Errorf("there is no query: give the metric a query or a templateRef, or name it %s or %s", rollout.SuccessRate, rollout.RequestDuration)
	case e.Address == "":
		return e, errors.New("there is no Prometheus to ask: set spec.metricsServer of the canary, or give the metric a templateRef")
	}
	if err := checkAddress(e.Address, false); err != nil {
		return e, fmt.Errorf("spec.metricsServer %w", err)
	}
	return e, nil
}

// template returns the template that a metric refers to.
func (q *Querier) template(c *rollout.Canary, m rollout.Metric) (*Template, error) {
	namespace := cmp.Or(m.TemplateRef.Namespace, namespaceOf(c.Metadata))
	for _, t := range q.Templates {
		if t.Metadata.Name == m.TemplateRef.Name && namespaceOf(t.Metadata) == namespace {
			return t, nil
		}
	}
	return nil, fmt.Errorf("templateRef: there is no MetricTemplate %s/%s", namespace, m.TemplateRef.Name)
}

// name returns NAMESPACE/NAME.
func (t *Template) name() string { return namespaceOf(t.Metadata) + "/" + t.Metadata.Name }

// promQLOf returns the query of a metric that Prometheus is asked.
func (q *Querier) promQLOf(c *rollout.Canary, m rollout.Metric, e endpoint, v values) (string, error) {
	if text := cmp.Or(e.query, m.Query); text != "" {
		return render(text, v, verbatim)
	}
	return builtin(cmp.Or(c.Spec.Provider, q.Provider), m, v)
}

// A noValue says why there is no value.
type noValue string

func (e noValue) Error() string { return rollout.ErrNoValues.Error() + ": " + string(e) }
func (e noValue) Unwrap() error { return rollout.ErrNoValues }

// wrap says where err comes from. The text is one line, without credentials
// and control characters.
func (e endpoint) wrap(err error) error {
	none, ok := errors.AsType[noValue](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return noValue(redact.String(e.name + " " + string(none)))
	}
	return redact.Error(fmt.Errorf("%s: %w", e.name, err))
}
