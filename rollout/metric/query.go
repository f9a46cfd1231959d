package metric

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	"github.com/headgate-io/headgate/internal/placeholder"
	"github.com/headgate-io/headgate/rollout"
)

// values holds the values of the placeholders of a query.
type values struct {
	words     map[string]string // by placeholder
	variables map[string]string
}

// valuesOf returns the values for a metric of a canary.
func valuesOf(c *rollout.Canary, m rollout.Metric) values {
	target := c.Spec.TargetRef.Name
	return values{map[string]string{
		"name":      c.Metadata.Name,
		"namespace": c.Namespace(),
		"target":    target,
		"service":   cmp.Or(c.Spec.Service.Name, target),
		"ingress":   cmp.Or(c.Spec.IngressRef.Name, target),
		"route":     cmp.Or(c.Spec.RouteRef.Name, target),
		"interval":  promDuration(time.Duration(m.Interval)),
	}, m.TemplateVariables}
}

// promDuration formats a duration as Prometheus does. It returns one minute unless d is positive.
func promDuration(d time.Duration) string {
	if d <= 0 {
		d = time.Minute
	}
	text := ""
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / unit.of; n > 0 {
			text += fmt.Sprint(int64(n)) + unit.name
			d %= unit.of
		}
	}
	return cmp.Or(text, "1ms")
}

// functions returns the functions that placeholders may call. Each value is passed to escape.
func (v values) functions(escape func(string) string) template.FuncMap {
	variables := map[string]string{}
	for key, value := range v.variables {
		variables[key] = escape(value)
	}
	all := template.FuncMap{
		"variables": func() map[string]string { return variables },
		"index": func(of map[string]string, key string) (string, error) {
			s, ok := of[key]
			if !ok {
				return "", fmt.Errorf("the metric has no templateVariables.%s", key)
			}
			return s, nil
		},
	}
	for name, word := range v.words {
		all[name] = func() string { return escape(word) }
	}
	return all
}

// queries is the placeholder language of queries. It has no loops and no function that
// makes a long text from a short one.
var queries = placeholder.Language{
	Name: "queries", Hint: "placeholders are name, namespace, target, service, ingress, route, interval and variables",
	Builtin: []string{"and", "or", "not", "eq", "ne"}, Functions: valuesOf(new(rollout.Canary), rollout.Metric{}).functions(verbatim), Maps: []string{"variables"},
}

func verbatim(s string) string { return s }

// checkQuery validates a query that must not be empty.
func checkQuery(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("is required")
	}
	return parseQuery(text)
}

// parseQuery returns an error unless the placeholders of a query are valid.
func parseQuery(text string) error {
	_, err := queries.Parse(text)
	return err
}

// render fills in the placeholders of a query. Each value is passed to escape.
func render(text string, v values, escape func(string) string) (string, error) {
	return queries.Expand(text, nil, v.functions(escape))
}
