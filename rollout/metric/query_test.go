package metric_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
)

// receivedQuery returns the query that Prometheus receives for a metric, or the error.
func receivedQuery(t *testing.T, c *rollout.Canary, m rollout.Metric) (string, error) {
	t.Helper()
	p := serve(t, respond(200, vector("1")))
	q := querier(t, &metric.Querier{Server: p.URL + "/prom"})
	if _, err := q.Query(t.Context(), c, m); err != nil {
		return "", err
	}
	query, _ := p.last(t)
	return query, nil
}

func TestPlaceholders(t *testing.T) {
	named := canary(func(c *rollout.Canary) {
		c.Spec.Service.Name, c.Spec.IngressRef.Name, c.Spec.RouteRef.Name = "svc", "ing", "rt"
	})
	bare := canary(func(c *rollout.Canary) { c.Metadata.Namespace = "" })
	m := rollout.Metric{Interval: rollout.Duration(90 * time.Second), TemplateVariables: map[string]string{"region": "eu", "a-b": "c d"}}
	tests := map[string]struct {
		canary *rollout.Canary
		query  string
		want   string
		err    string
	}{
		"all":                  {named, "{{ name }} {{ namespace }} {{ target }} {{ service }} {{ ingress }} {{ route }} {{ interval }}", "shop test app svc ing rt 1m30s", ""},
		"defaults":             {bare, "{{namespace}} {{service}} {{ingress}} {{route}}", "default app app app", ""},
		"variables":            {named, `{{ variables.region }} {{ index variables "a-b" }}`, "eu c d", ""},
		"trimmed":              {named, "a  {{- name -}}  b{{/* note */}}", "ashopb", ""},
		"condition":            {named, `{{ if and (eq variables.region "eu") (not false) (ne 1 2) }}x{{ else if or false false }}y{{ else }}z{{ end }}`, "x", ""},
		"text alone":           {named, "a{b=\"c\"}[1m] }} %s", "a{b=\"c\"}[1m] }} %s", ""},
		"unknown variable":     {named, "{{ variables.none }}", "", `no entry for key "none"`},
		"unknown by index":     {named, "up\n\n{{ index variables \"none\" }}", "", "line:3:3: "},
		"unknown function":     {named, "{{ nam }}", "", `line:1: function "nam" not defined: placeholders are name, namespace`},
		"not closed":           {named, "{{ name", "", "line:1: unclosed action"},
		"printf":               {named, `{{ printf "%0999999d" 1 }}`, "", "printf is not for queries: placeholders are"},
		"print":                {named, `{{ print 1 }}`, "", "print is not for queries"},
		"piped":                {named, `{{ name | printf "%s%s" }}`, "", "printf is not for queries"},
		"in parentheses":       {named, `{{ index (slice variables) "a" }}`, "", "slice is not for queries"},
		"call":                 {named, `{{ call name }}`, "", "call is not for queries"},
		"range":                {named, `{{ range 1000000000000 }}{{ end }}`, "", "is not for queries"},
		"range in a condition": {named, `{{ if true }}{{ else }}{{ range variables }}{{ end }}{{ end }}`, "", "is not for queries"},
		"with":                 {named, `{{ with name }}{{ . }}{{ end }}`, "", "is not for queries"},
		"define":               {named, `{{ define "x" }}{{ template "x" }}{{ end }}`, "", "define and block are not for queries"},
		"block":                {named, `a{{ block "x" . }}{{ end }}`, "", "define and block are not for queries"},
		"recursion":            {named, `{{ template "line" }}`, "", "is not for queries"},
		"assignment":           {named, `{{ $x := name }}`, "", "is not for queries"},
		"the data":             {named, `{{ . }}`, "", "is not for queries"},
		"a field of the data":  {named, `{{ .Name }}`, "", "is not for queries"},
		"the root":             {named, `{{ $ }}`, "", "is not for queries"},
		"nil":                  {named, `{{ eq nil nil }}`, "", "is not for queries"},
		"index of a string":    {named, `{{ index name "a" }}`, "", "wrong type"},
		"long":                 {named, "{{name}}" + strings.Repeat("x", 64<<10), "", "is longer than 64 KiB"},
		"all variables":        {named, `{{ variables }}`, "", "variables is not for queries"},
		"a choice of all":      {named, `{{ or variables "x" }}`, "", "variables is not for queries"},
		"deep":                 {named, "{{" + strings.Repeat("(", 30_000) + "name" + strings.Repeat(")", 30_000) + "}}", "", "line:1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := m
			m.Query = test.query
			got, err := receivedQuery(t, test.canary, m)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %.200q, %v\nwant %q, %s", got, err, test.want, test.err)
			}
		})
	}
}

// A short query cannot expand to a long one.
func TestQueryThatGrows(t *testing.T) {
	m := rollout.Metric{Query: strings.Repeat("{{ variables.a }}", 1000), TemplateVariables: map[string]string{"a": strings.Repeat("x", 1<<20)}}
	if _, err := receivedQuery(t, canary(nil), m); err == nil || !strings.Contains(err.Error(), "longer than 64 KiB") {
		t.Errorf("got %v", err)
	}
}

func TestInterval(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1m", time.Minute: "1m", time.Hour: "1h", 30 * time.Second: "30s", 1500 * time.Millisecond: "1s500ms",
		25*time.Hour + time.Second: "25h1s", time.Nanosecond: "1ms", -time.Second: "1m",
	} {
		got, err := receivedQuery(t, canary(nil), rollout.Metric{Query: "{{interval}}", Interval: rollout.Duration(d)})
		if got != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", d, got, err, want)
		}
	}
}

// TestBuiltin checks the builtin queries of each provider.
func TestBuiltin(t *testing.T) {
	tests := map[string]struct{ rate, duration string }{
		"istio": {
			`100 * (1 - (sum(rate(istio_requests_total{reporter="destination",destination_workload_namespace="test",destination_workload="app",response_code=~"5.."}[30s])) or vector(0)) / sum(rate(istio_requests_total{reporter="destination",destination_workload_namespace="test",destination_workload="app",}[30s])))`,
			`histogram_quantile(0.99, sum by (le) (rate(istio_request_duration_milliseconds_bucket{reporter="destination",destination_workload_namespace="test",destination_workload="app",}[30s]))) * 1`,
		},
		"linkerd": {
			`100 * (1 - (sum(rate(response_total{direction="inbound",namespace="test",deployment="app",classification="failure"}[30s])) or vector(0)) / sum(rate(response_total{direction="inbound",namespace="test",deployment="app",}[30s])))`,
			`histogram_quantile(0.99, sum by (le) (rate(response_latency_ms_bucket{direction="inbound",namespace="test",deployment="app",}[30s]))) * 1`,
		},
		"nginx": {
			`100 * (1 - (sum(rate(nginx_ingress_controller_requests{namespace="test",ingress="web",status=~"5.."}[30s])) or vector(0)) / sum(rate(nginx_ingress_controller_requests{namespace="test",ingress="web",}[30s])))`,
			`histogram_quantile(0.99, sum by (le) (rate(nginx_ingress_controller_request_duration_seconds_bucket{namespace="test",ingress="web",}[30s]))) * 1000`,
		},
		"contour": {
			`100 * (1 - (sum(rate(envoy_cluster_upstream_rq{envoy_cluster_name=~"test_app\\.v1-canary_[0-9a-zA-Z-]+",envoy_response_code=~"5.."}[30s])) or vector(0)) / sum(rate(envoy_cluster_upstream_rq{envoy_cluster_name=~"test_app\\.v1-canary_[0-9a-zA-Z-]+",}[30s])))`,
			`histogram_quantile(0.99, sum by (le) (rate(envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name=~"test_app\\.v1-canary_[0-9a-zA-Z-]+",}[30s]))) * 1`,
		},
		"traefik": {
			`100 * (1 - (sum(rate(traefik_service_requests_total{service=~"test-app\\.v1-canary-[0-9a-zA-Z-]+@kubernetescrd",code=~"5.."}[30s])) or vector(0)) / sum(rate(traefik_service_requests_total{service=~"test-app\\.v1-canary-[0-9a-zA-Z-]+@kubernetescrd",}[30s])))`,
			`histogram_quantile(0.99, sum by (le) (rate(traefik_service_request_duration_seconds_bucket{service=~"test-app\\.v1-canary-[0-9a-zA-Z-]+@kubernetescrd",}[30s]))) * 1000`,
		},
	}
	for provider, test := range tests {
		c := canary(func(c *rollout.Canary) {
			c.Spec.Provider, c.Spec.Service.Name, c.Spec.IngressRef.Name = provider, "app.v1", "web"
		})
		for name, want := range map[string]string{rollout.SuccessRate: test.rate, rollout.RequestDuration: test.duration} {
			got, err := receivedQuery(t, c, rollout.Metric{Name: name, Interval: rollout.Duration(30 * time.Second)})
			if got != want || err != nil {
				t.Errorf("%s %s: %v\ngot  %s\nwant %s", provider, name, err, got, want)
			}
		}
	}
}

// A name cannot end the string literal that contains it.
func TestBuiltinQuotes(t *testing.T) {
	c := canary(func(c *rollout.Canary) {
		c.Spec.Provider, c.Spec.TargetRef.Name = "istio", `a"} or vector(100) or x{y="\`
	})
	got, err := receivedQuery(t, c, rollout.Metric{Name: rollout.SuccessRate})
	if want := `destination_workload="a\"} or vector(100) or x{y=\"\\",`; err != nil || strings.Count(got, want) != 2 {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestMetricSources(t *testing.T) {
	ownServer, fallback, of := serve(t, respond(200, vector("1"))), serve(t, respond(200, vector("2"))), serve(t, respond(200, vector("3")))
	tpl, ref := template(metric.Provider{Address: of.URL + "/prom"}, "up")
	q := querier(t, &metric.Querier{Server: fallback.URL + "/prom", Provider: "linkerd", Templates: []*metric.Template{tpl}})
	both := ref
	both.Name, both.Query = rollout.SuccessRate, "x"
	for name, test := range map[string]struct {
		canary *rollout.Canary
		metric rollout.Metric
		want   float64
	}{
		"query, own server":             {ownServer.canary(), rollout.Metric{Query: "x"}, 1},
		"query, server of the Querier":  {canary(nil), rollout.Metric{Query: "x"}, 2},
		"provider of the Querier":       {ownServer.canary(), rollout.Metric{Name: rollout.RequestDuration}, 1},
		"template":                      {ownServer.canary(), ref, 3},
		"template before query":         {ownServer.canary(), both, 3},
		"template in another namespace": {canary(func(c *rollout.Canary) { c.Metadata.Namespace = "x" }), rollout.Metric{TemplateRef: &rollout.ObjectRef{Name: "m", Namespace: "test"}}, 3},
	} {
		if got, err := q.Query(t.Context(), test.canary, test.metric); err != nil || got != test.want {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, test.want)
		}
	}
}

// The error of each metric that cannot be queried says what to do.
func TestInvalidMetrics(t *testing.T) {
	tpl, ref := template(metric.Provider{Type: "datadog", Address: "http://h"}, "up")
	empty, _ := template(metric.Provider{Type: "http", Region: "eu"}, "")
	empty.Metadata.Name = "empty"
	with := func(provider, server string) *rollout.Canary {
		return canary(func(c *rollout.Canary) { c.Spec.Provider, c.Spec.MetricsServer = provider, server })
	}
	rate := rollout.Metric{Name: rollout.SuccessRate}
	for name, test := range map[string]struct {
		canary *rollout.Canary
		metric rollout.Metric
		want   string
	}{
		"no query":             {with("istio", "http://h"), rollout.Metric{Name: "latency"}, "there is no query: give the metric a query or a templateRef"},
		"no server":            {with("istio", ""), rate, "there is no Prometheus to ask: set spec.metricsServer"},
		"no provider":          {with("", "http://h"), rate, "spec.provider is not set"},
		"kubernetes":           {with("kubernetes", "http://h"), rate, "provider kubernetes has no query for this metric, only contour, istio, linkerd, nginx, traefik have: give the metric a query"},
		"server without host":  {with("istio", "http://"), rate, "spec.metricsServer has no host"},
		"server without http":  {with("istio", "prometheus:9090"), rate, "spec.metricsServer must begin with http:// or https://"},
		"server with secret":   {with("istio", "http://u:s3cret@h:x"), rate, "spec.metricsServer is no URL"},
		"placeholders":         {with("istio", "http://{{ name }}"), rate, "spec.metricsServer has placeholders"},
		"no template":          {canary(nil), rollout.Metric{TemplateRef: &rollout.ObjectRef{Name: "none"}}, "there is no MetricTemplate test/none"},
		"another namespace":    {canary(nil), rollout.Metric{TemplateRef: &rollout.ObjectRef{Name: "m", Namespace: "x"}}, "there is no MetricTemplate x/m"},
		"two defects":          {canary(nil), rollout.Metric{TemplateRef: &rollout.ObjectRef{Name: "empty"}}, "template test/empty (http): spec.provider.address: is required: the URL of the server; spec.provider.region: is not for type http"},
		"provider of template": {canary(nil), ref, `spec.provider.type: "datadog" is not supported: use prometheus, http or exec`},
	} {
		_, err := querier(t, &metric.Querier{Templates: []*metric.Template{tpl, empty}}).Query(t.Context(), test.canary, test.metric)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || errors.Is(err, rollout.ErrNoValues) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v\nwant %s", name, err, test.want)
		}
	}
}
