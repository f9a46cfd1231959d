package metric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/rollout"
)

const (
	answerTimeout = 5 * time.Second // of a whole request
	maxAnswer     = 1 << 20
	maxShown      = 1 << 10 // of the text of a server in an error
)

// A Querier answers metric queries. It implements [rollout.Metrics]. The zero value
// answers metrics of canaries that set metricsServer. It is safe for concurrent use.
// Call Close to close idle connections.
type Querier struct {
	Templates []*Template     // that a templateRef may name
	Server    string          // URL of the Prometheus for canaries without spec.metricsServer; its user information is used for basic authentication
	Provider  string          // for canaries without spec.provider, such as istio
	Secrets   rollout.Secrets // nil: a template that names a Secret is an error
	Commands  *Commands       // nil: templates of type exec are refused

	Proxy func(*http.Request) (*url.URL, error) // as in [http.Transport]; nil for none

	pool    notify.Pool
	timeout time.Duration // of a whole request; default answerTimeout
}

// Query returns the current value of a metric. The error wraps
// [rollout.ErrNoValues] if there is none. It names the provider and the address,
// and shows no secret.
func (q *Querier) Query(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	e, err := q.endpointOf(c, m)
	if err != nil {
		return 0, err
	}
	v := valuesOf(c, m)
	var value float64
	switch e.typeOrDefault() {
	case typePrometheus:
		text := cmp.Or(e.query, m.Query)
		if text != "" {
			text, err = render(text, v, verbatim)
		} else {
			text, err = builtin(cmp.Or(c.Spec.Provider, q.Provider), m, v)
		}
		if err == nil {
			value, err = q.queryPrometheus(ctx, e, text)
		}
	case typeHTTP:
		value, err = q.queryHTTP(ctx, e, v)
	case typeExec:
		value, err = q.Commands.run(ctx, e.query, v)
	}
	return value, e.wrap(err)
}

// Check returns an error if a metric of a canary cannot be queried, because it has
// no server, no query or no such template. It sends no request.
func (q *Querier) Check(c *rollout.Canary, m rollout.Metric) error {
	if _, err := q.endpointOf(c, m); err != nil {
		return fmt.Errorf("metric %s: %w", m.Name, err)
	}
	return nil
}

// Online queries a constant from each Prometheus that the metrics of a canary use.
// The error joins the errors of all metrics and servers.
func (q *Querier) Online(ctx context.Context, c *rollout.Canary) error {
	var errs []error
	queried := map[string]bool{}
	for _, m := range c.Spec.Analysis.Metrics {
		e, err := q.endpointOf(c, m)
		if err != nil {
			errs = append(errs, fmt.Errorf("metric %s: %w", m.Name, err))
		}
		if err != nil || e.typeOrDefault() != typePrometheus || queried[e.name] {
			continue
		}
		queried[e.name] = true
		value, err := q.queryPrometheus(ctx, e, "vector(1)")
		if err == nil && value != 1 {
			err = fmt.Errorf("answered %v to vector(1): is it Prometheus?", value)
		}
		errs = append(errs, e.wrap(err))
	}
	return errors.Join(errs...)
}

// Close closes idle connections.
func (q *Querier) Close() { q.pool.Close() }

// An endpoint is the provider and the query of a metric.
type endpoint struct {
	Provider
	name      string // for errors
	namespace string // of its Secret
	query     string // of the template, "" without one
}

// endpointOf returns the endpoint of a metric.
func (q *Querier) endpointOf(c *rollout.Canary, m rollout.Metric) (endpoint, error) {
	if ref := m.TemplateRef; ref != nil {
		want := cmp.Or(ref.Namespace, c.Namespace()) + "/" + ref.Name
		for _, t := range q.Templates {
			if t.name() == want {
				p := t.Spec.Provider
				e := endpoint{p, "template " + want + " (" + p.String() + ")", t.namespace(), t.Spec.Query}
				return e, e.wrap(t.Check())
			}
		}
		return endpoint{}, fmt.Errorf("templateRef: there is no MetricTemplate %s", want)
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

// A noValueError is an error that wraps [rollout.ErrNoValues] and says why there is no value.
type noValueError string

func (e noValueError) Error() string { return rollout.ErrNoValues.Error() + ": " + string(e) }
func (e noValueError) Unwrap() error { return rollout.ErrNoValues }

// wrap adds the name of the endpoint to err, which may be nil. The text is one line,
// without credentials and control characters.
func (e endpoint) wrap(err error) error {
	if err == nil {
		return nil
	}
	if none, ok := errors.AsType[noValueError](err); ok {
		return noValueError(redact.String(e.name + " " + string(none)))
	}
	return redact.Error(fmt.Errorf("%s: %w", e.name, err))
}

// An answer is the answer of a server, and the secrets sent to it, which errors must not show.
type answer struct {
	*notify.Answer
	secrets []string
}

// fetch gets u with the credentials of the endpoint. Errors show no secrets.
func (q *Querier) fetch(ctx context.Context, e endpoint, u *url.URL) (answer, error) {
	limit := cmp.Or(q.timeout, answerTimeout)
	within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	w := notify.Webhook{
		URL: u.String(), Prefix: "spec.provider.", Insecure: e.InsecureSkipVerify, HTTP2: true, Secrets: q.Secrets, Proxies: q.Proxy, Pool: &q.pool,
		Credentials: func(r secret.Reader, header http.Header) error {
			return notify.Authorize(r, header, []string{"token", "bearerToken"})
		},
	}
	if e.SecretRef != nil {
		w.Secret = notify.Ref{Namespace: e.namespace, Name: e.SecretRef.Name}
	}
	to, err := w.Target(within)
	if err != nil {
		return answer{}, err
	}
	to.Hidden = append(to.Hidden, notify.HeaderSecrets(e.Headers)...)
	to.Hidden = append(to.Hidden, u.User.Username()) // it may be a token
	for name, values := range e.Headers {
		if name = http.CanonicalHeaderKey(name); to.Header[name] == nil {
			to.Header[name] = values
		}
	}
	if to.Header.Get("Accept") == "" {
		to.Header.Set("Accept", "application/json")
	}
	a, err := to.Send(within, http.MethodGet, to.Header, nil, maxAnswer)
	if err == nil && a.Status < http.StatusBadRequest { // the body of another status is only for an error text
		switch to, _, _ := strings.Cut(a.Header.Get("Location"), "?"); {
		case a.Status >= 300 && to != "":
			err = fmt.Errorf("redirect to %s refused: give the address that answers", to)
		case a.Err != nil:
			err = fmt.Errorf("read the answer: %w", a.Err)
		case a.Truncated:
			err = fmt.Errorf("the answer is longer than %d KiB", maxAnswer>>10)
		}
	}
	if err != nil && within.Err() != nil {
		err = context.Cause(within)
	}
	return answer{a, to.Hidden}, redact.Error(err, to.Hidden...)
}

// redactError returns err, which may repeat text of the server, bounded and without the
// secrets sent to the server.
func (a answer) redactError(err error) error {
	if _, none := errors.AsType[noValueError](err); none || err == nil {
		return err
	}
	return errors.New(excerpt(err.Error(), a.secrets))
}

// excerpt returns the beginning of a remote text, redacted, for an error.
func excerpt(text string, secrets []string) string { return redact.Excerpt(text, maxShown, secrets...) }
