package metric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/rollout"
)

// queryPrometheus queries a Prometheus for the current value of an expression.
func (q *Querier) queryPrometheus(ctx context.Context, e endpoint, text string) (float64, error) {
	base, err := parseAddress(e.Address)
	if err != nil {
		return 0, fmt.Errorf("the address %w", err)
	}
	u := base.JoinPath("api", "v1", "query")
	query := u.Query()
	query.Set("query", strings.TrimSpace(text))
	u.RawQuery = query.Encode()
	a, err := q.fetch(ctx, e, u)
	if err != nil {
		return 0, err
	}
	if a.Status < 200 || a.Status > 299 {
		return 0, a.statusError()
	}
	var r result
	if err := json.Unmarshal(a.Body, &r); err != nil || r.Status != "success" && r.Status != "error" {
		return 0, fmt.Errorf("answered %s: is it Prometheus?", excerpt(strconv.Quote(a.Header.Get("Content-Type")), a.secrets))
	}
	value, err := r.value()
	return value, a.redactError(err)
}

// statusError returns an error with the status and the error text of an unsuccessful answer.
func (a answer) statusError() error {
	var r result
	text := string(a.Body)
	if json.Unmarshal(a.Body, &r) == nil && r.Error != "" {
		text = r.errorText()
	} else if text == "" {
		text = http.StatusText(a.Status)
	}
	return fmt.Errorf("status %d: %s", a.Status, excerpt(text, a.secrets))
}

// A result is the answer of Prometheus to a query.
type result struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// errorText returns the error text of a result.
func (r *result) errorText() string { return strings.TrimPrefix(r.ErrorType+": "+r.Error, ": ") }

// value returns the value of a result; for a vector, that of the last sample.
func (r *result) value() (float64, error) {
	sample := r.Data.Result
	switch kind := r.Data.ResultType; {
	case r.Status == "error":
		return 0, errors.New(r.errorText())
	case kind == "matrix":
		return 0, errors.New("the query gives a range of values: aggregate it, as with rate or max_over_time")
	case kind == "string":
		return 0, errors.New("the query gives a string, not a number")
	case kind == "vector":
		var samples []struct{ Value, Histogram json.RawMessage }
		if json.Unmarshal(sample, &samples) != nil {
			return 0, errors.New("the answer has a vector that is none")
		}
		if len(samples) == 0 {
			return 0, noValueError("answered an empty vector")
		}
		last := samples[len(samples)-1]
		if sample = last.Value; sample == nil && last.Histogram != nil {
			return 0, errors.New("the query gives a histogram: take a number of it, as with histogram_quantile")
		}
	case kind != "scalar":
		return 0, errors.New("the answer has no result: is it Prometheus?")
	}
	var pair []json.RawMessage
	var value string
	if json.Unmarshal(sample, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &value) != nil {
		return 0, errors.New("the answer has a sample that is no pair of time and value")
	}
	return parseNumber(value)
}

// parseNumber parses a number of Prometheus, a JSON document or a command. NaN is a noValueError.
func parseNumber(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is no number", excerpt(strconv.Quote(text), nil))
	case math.IsNaN(f):
		return 0, noValueError("answered NaN")
	}
	return f, nil
}

// A metricNames holds the names of the metrics of a mesh or an ingress in Prometheus.
type metricNames struct {
	requests string // counter
	failed   string // matcher of requests with a server error
	duration string // buckets of a histogram
	unit     int    // of duration, in milliseconds
	matchers string // matchers of the requests to the canary: a format for namespace, target, ingress and the names of contour and traefik
}

// builtinMetrics lists the providers of canaries whose metrics are known. The matchers of
// nginx match the whole ingress, the others only the canary.
var builtinMetrics = map[string]metricNames{
	"istio": {
		"istio_requests_total", `response_code=~"5.."`, "istio_request_duration_milliseconds_bucket", 1,
		`reporter="destination",destination_workload_namespace=%[1]q,destination_workload=%[2]q,`,
	},
	"linkerd": {
		"response_total", `classification="failure"`, "response_latency_ms_bucket", 1,
		`direction="inbound",namespace=%[1]q,deployment=%[2]q,`,
	},
	"nginx": {
		"nginx_ingress_controller_requests", `status=~"5.."`, "nginx_ingress_controller_request_duration_seconds_bucket", 1000,
		`namespace=%[1]q,ingress=%[3]q,`,
	},
	"contour": {
		"envoy_cluster_upstream_rq", `envoy_response_code=~"5.."`, "envoy_cluster_upstream_rq_time_bucket", 1,
		`envoy_cluster_name=~%[4]q,`,
	},
	"traefik": {
		"traefik_service_requests_total", `code=~"5.."`, "traefik_service_request_duration_seconds_bucket", 1000,
		`service=~%[5]q,`,
	},
}

// builtin returns the query for [rollout.SuccessRate] or [rollout.RequestDuration].
func builtin(provider string, m rollout.Metric, v values) (string, error) {
	r, ok := builtinMetrics[provider]
	switch {
	case provider == "":
		return "", errors.New("spec.provider is not set, so this metric has no query: set it, or give the metric a query or a templateRef")
	case !ok:
		known := strings.Join(slices.Sorted(maps.Keys(builtinMetrics)), ", ")
		return "", fmt.Errorf("provider %s has no query for this metric, only %s have: give the metric a query or a templateRef", provider, known)
	}
	namespace, service := v.words["namespace"], v.words["service"]
	of := fmt.Sprintf(r.matchers, namespace, v.words["target"], v.words["ingress"],
		regexp.QuoteMeta(namespace+"_"+service+"-canary_")+"[0-9a-zA-Z-]+", regexp.QuoteMeta(namespace+"-"+service+"-canary-")+"[0-9a-zA-Z-]+@kubernetescrd")
	if m.Name == rollout.RequestDuration {
		return fmt.Sprintf("histogram_quantile(0.99, sum by (le) (rate(%s{%s}[%s]))) * %d", r.duration, of, v.words["interval"], r.unit), nil
	}
	// If no request has failed, there is no series of failed requests.
	return fmt.Sprintf("100 * (1 - (sum(rate(%[1]s{%[2]s%[3]s}[%[4]s])) or vector(0)) / sum(rate(%[1]s{%[2]s}[%[4]s])))",
		r.requests, of, r.failed, v.words["interval"]), nil
}
