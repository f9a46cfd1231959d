package e2e

import (
	"fmt"
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

// An exporter is scraped by Prometheus. At each scrape its counters have
// risen by what a constant load gives: 100 requests of each application.
type exporter struct {
	scrapes atomic.Int64
	URL     string
}

// A load is what a canary of a provider gets, as its metrics tell it.
type load struct {
	requests string         // counter
	failed   map[string]int // requests of each scrape by what tells failures apart
	duration string         // histogram
	unit     float64        // of its buckets, in milliseconds
	labels   string
}

// loads are those of canaries called app in namespace test: 99 of 100 requests
// succeed, all in at most 200 ms.
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

// startPrometheus starts a Prometheus that scrapes an exporter, and returns
// its address: it is below a path and wants alice and s3cret.
func startPrometheus(t *testing.T) (address string) {
	t.Helper()
	exported := httptest.NewServer(new(exporter))
	t.Cleanup(exported.Close)
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(`
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
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

// eventually returns once done does, and fails with what it last said.
func eventually(t *testing.T, done func() error) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	limit := time.After(time.Minute)
	for err := done(); err != nil; err = done() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatal(err)
		}
	}
}

// appCanary is one of the given provider and target.
func appCanary(provider, target, server string) *rollout.Canary {
	c := &rollout.Canary{Metadata: rollout.Metadata{Name: "shop", Namespace: "test"}}
	c.Spec.Provider, c.Spec.TargetRef.Name, c.Spec.MetricsServer = provider, target, server
	return c
}

// withUser returns an address with the user name and the password in it.
func withUser(address string) string {
	return strings.Replace(address, "://", "://alice:s3cret@", 1)
}

// awaitTraffic returns once two scrapes are in Prometheus.
func awaitTraffic(t *testing.T, q *metric.Querier, address string) {
	t.Helper()
	c := appCanary("istio", "app", withUser(address))
	eventually(t, func() error {
		_, err := q.Query(t.Context(), c, rollout.Metric{Name: rollout.SuccessRate})
		return err
	})
}
