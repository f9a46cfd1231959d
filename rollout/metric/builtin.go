package metric

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/rollout"
)

// A router is what the metrics of a mesh or an ingress are called in Prometheus.
type router struct {
	requests string                // counter
	failed   string                // matcher of those with a server error
	duration string                // buckets of a histogram
	unit     int                   // of duration, in milliseconds
	of       func(v values) string // matchers of what the canary receives
}

// routers are the providers of canaries whose metrics are known. Matchers of
// ingress-nginx take the whole ingress, those of the others the canary alone.
var routers = map[string]router{
	"istio": {
		requests: "istio_requests_total", failed: `response_code=~"5.."`,
		duration: "istio_request_duration_milliseconds_bucket", unit: 1,
		of: func(v values) string {
			return `reporter="destination",` + is("destination_workload_namespace", v.namespace) + is("destination_workload", v.target)
		},
	},
	"linkerd": {
		requests: "response_total", failed: `classification="failure"`,
		duration: "response_latency_ms_bucket", unit: 1,
		of: func(v values) string {
			return `direction="inbound",` + is("namespace", v.namespace) + is("deployment", v.target)
		},
	},
	"nginx": {
		requests: "nginx_ingress_controller_requests", failed: `status=~"5.."`,
		duration: "nginx_ingress_controller_request_duration_seconds_bucket", unit: 1000,
		of: func(v values) string { return is("namespace", v.namespace) + is("ingress", v.ingress) },
	},
	"contour": {
		requests: "envoy_cluster_upstream_rq", failed: `envoy_response_code=~"5.."`,
		duration: "envoy_cluster_upstream_rq_time_bucket", unit: 1,
		of: func(v values) string {
			return like("envoy_cluster_name", regexp.QuoteMeta(v.namespace+"_"+v.service+"-canary_")+"[0-9a-zA-Z-]+")
		},
	},
	"traefik": {
		requests: "traefik_service_requests_total", failed: `code=~"5.."`,
		duration: "traefik_service_request_duration_seconds_bucket", unit: 1000,
		of: func(v values) string {
			return like("service", regexp.QuoteMeta(v.namespace+"-"+v.service+"-canary-")+"[0-9a-zA-Z-]+@kubernetescrd")
		},
	},
}

func is(label, value string) string     { return label + "=" + strconv.Quote(value) + "," }
func like(label, pattern string) string { return label + "=~" + strconv.Quote(pattern) + "," }

// builtin returns the query of a metric that needs none.
func builtin(provider string, m rollout.Metric, v values) (string, error) {
	r, ok := routers[provider]
	switch {
	case provider == "":
		return "", errors.New("spec.provider is not set, so this metric has no query: set it, or give the metric a query or a templateRef")
	case !ok:
		known := make([]string, 0, len(routers))
		for name := range routers {
			known = append(known, name)
		}
		slices.SortFunc(known, cmp.Compare[string])
		return "", fmt.Errorf("provider %s has no query for this metric, only %s have: give the metric a query or a templateRef", provider, strings.Join(known, ", "))
	case m.Name == rollout.RequestDuration:
		return fmt.Sprintf("histogram_quantile(0.99, sum by (le) (rate(%s{%s}[%s]))) * %d", r.duration, r.of(v), v.interval, r.unit), nil
	}
	// A canary whose requests all succeed has no series of failed ones.
	return fmt.Sprintf("100 * (1 - (sum(rate(%[1]s{%[2]s%[3]s}[%[4]s])) or vector(0)) / sum(rate(%[1]s{%[2]s}[%[4]s])))",
		r.requests, r.of(v), r.failed, v.interval), nil
}
