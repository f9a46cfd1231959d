package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
)

// TestMetricsOfPrometheus sends all queries of an analysis to a real Prometheus,
// including queries with different types of results.
func TestMetricsOfPrometheus(t *testing.T) {
	t.Parallel()
	address := startPrometheus(t)
	q := &metric.Querier{Server: withUser(address)}
	t.Cleanup(q.Close)
	awaitTraffic(t, q, address)

	t.Run("online", func(t *testing.T) {
		c := appCanary("istio", "app", "")
		c.Spec.Analysis.Metrics = []rollout.Metric{{Name: rollout.SuccessRate}}
		must(t, q.Online(t.Context(), c))
		c.Spec.MetricsServer = strings.TrimSuffix(address, "prom") + "elsewhere"
		if err := q.Online(t.Context(), c); err == nil {
			t.Error("another path is online")
		}
	})

	for provider := range loads {
		t.Run(provider, func(t *testing.T) {
			c := appCanary(provider, "app", "")
			wantValue(t, q, c, rollout.Metric{Name: rollout.SuccessRate}, 99)
			wantValue(t, q, c, rollout.Metric{Name: rollout.RequestDuration}, 198) // interpolated between 100 and 200 ms at 98 of 100
		})
	}

	t.Run("no request succeeds", func(t *testing.T) {
		wantValue(t, q, appCanary("istio", "broken", ""), rollout.Metric{Name: rollout.SuccessRate}, 0)
	})
	t.Run("no request fails", func(t *testing.T) {
		wantValue(t, q, appCanary("istio", "sound", ""), rollout.Metric{Name: rollout.SuccessRate}, 100)
	})
	for _, target := range []string{"idle", "unknown"} {
		t.Run("no traffic: "+target, func(t *testing.T) {
			c, m := appCanary("istio", target, ""), rollout.Metric{Name: rollout.SuccessRate}
			value, err := q.Query(t.Context(), c, m)
			verdict, why := m.Judge(c, value, err)
			want := "no values found for metric request-success-rate of provider istio: " + target + ".test probably gets no traffic"
			if verdict != rollout.Halt || !errors.Is(err, rollout.ErrNoValues) || !strings.HasPrefix(fmt.Sprint(why), want) {
				t.Errorf("got %v, %v", verdict, why)
			}
		})
	}
	t.Run("forms", func(t *testing.T) { testForms(t, q) })
	t.Run("credentials", func(t *testing.T) { testCredentials(t, address) })
}

// wantValue checks the value of a metric. The tolerance allows for the extrapolation
// of rates.
func wantValue(t *testing.T, q *metric.Querier, c *rollout.Canary, m rollout.Metric, want float64) {
	t.Helper()
	got, err := q.Query(t.Context(), c, m)
	if err != nil || math.Abs(got-want) > 1e-6 {
		t.Errorf("%s of %s: got %v, %v, want %v", m.Name, c.Spec.Provider, got, err, want)
	}
}

// testForms checks the handling of each result type of Prometheus.
func testForms(t *testing.T, q *metric.Querier) {
	c := appCanary("istio", "app", "")
	tests := map[string]struct {
		query string
		want  float64
		err   string
	}{
		"scalar":         {"scalar(vector(7))", 7, ""},
		"several lines":  {"vector(2)\n  *\n  vector(3)\n", 6, ""},
		"placeholders":   {`count(count by (destination_workload) (istio_requests_total{destination_workload="{{ target }}"}))`, 1, ""},
		"interval":       {"max_over_time(vector(4)[{{ interval }}:500ms])", 4, ""},
		"last of two":    {`sort(label_replace(vector(1), "a", "1", "", "") or label_replace(vector(2), "a", "2", "", ""))`, 2, ""},
		"infinity":       {"vector(1) / 0", math.Inf(1), ""},
		"not a number":   {"vector(0) / 0", 0, "no values found: prometheus http://"},
		"empty":          {"vector(1) > 2", 0, "no values found: prometheus http://"},
		"range":          {"up[1m]", 0, "gives a range of values"},
		"string":         {`"up"`, 0, "gives a string"},
		"cannot be read": {"sum(", 0, "status 400: bad_data: "},
		"cannot be done": {`label_replace(vector(1), "a", "b", "", "(")`, 0, "status 422: execution: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := q.Query(t.Context(), c, rollout.Metric{Name: "m", Query: test.query, Interval: rollout.Duration(1500 * time.Millisecond)})
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, %v\nwant %v, %s", got, err, test.want, test.err)
			}
		})
	}
}

// testCredentials queries with a correct and with a wrong password in the Secret.
func testCredentials(t *testing.T, address string) {
	templates, err := metric.Decode("templates.yaml", strings.NewReader(fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: MetricTemplate
metadata: {name: rate, namespace: metrics}
spec:
  provider: {type: prometheus, address: %q, secretRef: {name: prom}}
  query: |
    sum(rate(istio_requests_total{destination_workload="{{ target }}", response_code="{{ variables.code }}"}[{{ interval }}]))
      / sum(rate(istio_requests_total{destination_workload="{{ target }}"}[{{ interval }}])) * 100
`, address)))
	must(t, err)
	c := appCanary("istio", "app", "")
	m := rollout.Metric{Name: "not-found", TemplateRef: &rollout.ObjectRef{Name: "rate", Namespace: "metrics"}, TemplateVariables: map[string]string{"code": "404"}}
	for password, want := range map[string]string{"s3cret": "", "wr0ng": "status 401"} {
		q := &metric.Querier{Templates: templates, Secrets: func(context.Context, string, string) (map[string][]byte, error) {
			return map[string][]byte{"username": []byte("alice"), "password": []byte(password)}, nil
		}}
		defer q.Close()
		got, err := q.Query(t.Context(), c, m)
		if want == "" && (err != nil || math.Abs(got-1) > 1e-6) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), password)) {
			t.Errorf("%s: got %v, %v", password, got, err)
		}
	}
}

// TestRolloutRunByMetricsOfPrometheus checks that the command promotes a canary
// whose requests succeed and rolls back one whose requests fail, according to
// Prometheus.
func TestRolloutRunByMetricsOfPrometheus(t *testing.T) {
	t.Parallel()
	address := startPrometheus(t)
	q := &metric.Querier{}
	t.Cleanup(q.Close)
	awaitTraffic(t, q, address)
	dir := t.TempDir()
	for target, want := range map[string]struct {
		code int
		text string
	}{
		"app":     {0, "promoted"},
		"broken":  {1, "metric request-success-rate of broken.test is 0, below 95"},
		"unknown": {1, "no values found for metric request-success-rate of provider istio: unknown.test probably gets no traffic"},
	} {
		t.Run(target, func(t *testing.T) {
			manifest := write(t, filepath.Join(dir, target+".yaml"), fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: %[1]s, namespace: test}
spec:
  provider: istio
  metricsServer: %[2]q
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  service: {port: 80}
  analysis:
    interval: 1m
    threshold: 2
    maxWeight: 50
    stepWeight: 25
    metrics:
    - {name: request-success-rate, thresholdRange: {min: 95}}
    - {name: share, query: '100 * count(up{job="{{ target }}"} == 1)', thresholdRange: {min: 100, max: 100}}
`, target, withUser(address)))
			cmd := headgate(t.Context(), t, "rollout", "run", "-f", manifest, "--revision", "v2", "--interval", "1ms", "--no-traffic", "--state", filepath.Join(dir, target+".json"))
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != want.code || !strings.Contains(string(out), want.text) || strings.Contains(string(out), "s3cret") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// An exporter serves metrics to Prometheus. Each scrape increases its counters by
// a constant load: 100 requests per application.
type exporter struct {
	scrapes atomic.Int64
	URL     string
}

// A load describes the metrics of a provider for a canary.
type load struct {
	requests string         // counter
	failed   map[string]int // requests per scrape, by the label with the result
	duration string         // histogram
	unit     float64        // of its buckets per millisecond
	labels   string
}

// loads are the loads of canaries called app in namespace test by provider: 99 of
// 100 requests succeed, all within 200 ms.
var loads = map[string]load{
	"istio":   {"istio_requests_total", map[string]int{`response_code="200"`: 98, `response_code="404"`: 1, `response_code="503"`: 1}, "istio_request_duration_milliseconds", 1, `reporter="destination",destination_workload_namespace="test",destination_workload="app"`},
	"linkerd": {"response_total", map[string]int{`classification="success"`: 99, `classification="failure"`: 1}, "response_latency_ms", 1, `direction="inbound",namespace="test",deployment="app"`},
	"nginx":   {"nginx_ingress_controller_requests", map[string]int{`status="200"`: 99, `status="500"`: 1}, "nginx_ingress_controller_request_duration_seconds", 1000, `namespace="test",ingress="app"`},
	"contour": {"envoy_cluster_upstream_rq", map[string]int{`envoy_response_code="200"`: 99, `envoy_response_code="502"`: 1}, "envoy_cluster_upstream_rq_time", 1, `envoy_cluster_name="test_app-canary_9898"`},
	"traefik": {"traefik_service_requests_total", map[string]int{`code="200"`: 99, `code="504"`: 1}, "traefik_service_request_duration_seconds", 1000, `service="test-app-canary-9898@kubernetescrd"`},
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n := e.scrapes.Add(1)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, l := range loads {
		for failed, per := range l.failed {
			fmt.Fprintf(w, "%s{%s,%s} %d\n", l.requests, l.labels, failed, n*int64(per))
		}
		for _, b := range []struct{ below, per int64 }{{100, 50}, {200, 100}, {400, 100}} {
			fmt.Fprintf(w, "%s_bucket{%s,le=\"%g\"} %d\n", l.duration, l.labels, float64(b.below)/l.unit, n*b.per)
		}
		fmt.Fprintf(w, "%s_bucket{%s,le=\"+Inf\"} %d\n", l.duration, l.labels, n*100)
	}
	const istio = `istio_requests_total{reporter="destination",destination_workload_namespace="test",destination_workload=%q,response_code=%q} %d` + "\n"
	fmt.Fprintf(w, istio, "broken", "500", n*100)
	fmt.Fprintf(w, istio, "sound", "200", n*100)
	fmt.Fprintf(w, istio, "idle", "200", 100)
}

// startPrometheus starts a Prometheus that scrapes an exporter. It returns its
// address, which has a path and requires user alice with password s3cret.
func startPrometheus(t *testing.T) (address string) {
	t.Helper()
	exported := httptest.NewServer(new(exporter))
	t.Cleanup(exported.Close)
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: app
  static_configs: [{targets: [%q]}]
`, strings.TrimPrefix(exported.URL, "http://")))
	user := strings.TrimSpace(run(t, "htpasswd", "-nbB", "alice", "s3cret"))
	name, hash, _ := strings.Cut(user, ":")
	web := write(t, filepath.Join(dir, "web.yml"), fmt.Sprintf("basic_auth_users: {%s: %q}\n", name, hash))
	addr, _ := freeAddr(t)
	start(t, exec.Command(tool(t, "prometheus"), "--config.file="+config, "--web.config.file="+web, "--web.listen-address="+addr,
		"--web.external-url=http://"+addr+"/prom/", "--storage.tsdb.path="+filepath.Join(dir, "data"), "--log.level=warn"))
	await(t, addr)
	return "http://" + addr + "/prom"
}

// appCanary returns a canary with the given provider and target.
func appCanary(provider, target, server string) *rollout.Canary {
	c := &rollout.Canary{Metadata: rollout.Metadata{Name: "shop", Namespace: "test"}}
	c.Spec.Provider, c.Spec.TargetRef.Name, c.Spec.MetricsServer = provider, target, server
	return c
}

// withUser returns an address with user name and password.
func withUser(address string) string {
	return strings.Replace(address, "://", "://alice:s3cret@", 1)
}

// awaitTraffic waits until Prometheus has two scrapes.
func awaitTraffic(t *testing.T, q *metric.Querier, address string) {
	t.Helper()
	c := appCanary("istio", "app", withUser(address))
	waitUntil(t, "two scrapes", func() bool {
		_, err := q.Query(t.Context(), c, rollout.Metric{Name: rollout.SuccessRate})
		return err == nil
	})
}
