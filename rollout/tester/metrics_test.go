package tester_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// scrape returns the samples of /metrics by name and labels.
func (d *testServer) scrape() map[string]float64 {
	d.t.Helper()
	got := d.call(http.MethodGet, "/metrics", "")
	got.expect(d.t, "metrics", 200, "")
	samples := make(map[string]float64)
	for line := range strings.Lines(got.body) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			d.t.Fatalf("%s: %v", line, err)
		}
		samples[strings.TrimPrefix(line[:at], "headgate_tester_")] = value
	}
	return samples
}

func TestMetrics(t *testing.T) {
	d := startServer(t, func(w *serverSetup) { w.Runs.Concurrency = 1 })
	d.post("/", payloadPrefix+`, "metadata": {"type": "bash", "cmd": "echo 12345"}}`).expect(t, "a test that passes", 200, "")
	d.post("/", payloadPrefix+`, "metadata": {"type": "bash", "cmd": "exit 3"}}`).expect(t, "a test that fails", 422, "")
	d.post("/", payloadPrefix+`, "metadata": {"type": "bash", "cmd": "sleep 600", "timeout": "0.1"}}`).expect(t, "a test that takes too long", 422, "")
	for range 2 {
		d.post("/", payloadPrefix+`, "metadata": {"cmd": "sleep 600"}}`).expect(t, "a load", 202, "")
	}
	d.post("/", payloadPrefix+`, "metadata": {"cmd": "sleep 601"}}`).expect(t, "a load that waits for its place", 202, "")
	d.post("/gate/check", payloadPrefix+"}").expect(t, "a closed gate", 403, "Forbidden")
	d.post("/gate/a/check", payloadPrefix+"}").expect(t, "another", 403, "Forbidden")
	d.post("/gate/open", payloadPrefix+"}").expect(t, "opening", 202, "")
	d.post("/gate/check", payloadPrefix+"}").expect(t, "an open gate", 200, "Approved")
	d.post("/rollback/close", payloadPrefix+"}").expect(t, "closing", 202, "")
	d.post("/api/v1/gates/gate/shop/podinfo/a/reject", "").expect(t, "rejecting", 200, "")
	d.post("/gate/b/check", payloadPrefix+"}").expect(t, "one that waits", 403, "Forbidden")
	d.call(http.MethodPost, "/gate/open", payloadPrefix+"}", "Origin", "https://other.example.com").expect(t, "a page of another site", 403, "")

	got := d.scrape()
	for sample, want := range map[string]float64{
		`runs_started_total{type="bash"}`: 3, `runs_started_total{type="cmd"}`: 1, `runs_started_total{type="concord"}`: 0,
		`runs_finished_total{outcome="succeeded",type="bash"}`: 1, `runs_finished_total{outcome="failed",type="bash"}`: 1,
		`runs_finished_total{outcome="timed-out",type="bash"}`: 1, `runs_finished_total{outcome="cancelled",type="cmd"}`: 0,
		`runs_shared_total{type="cmd"}`: 1, `runs_running`: 1, `runs_queued`: 1, `runs_output_bytes_total{type="bash"}`: 6,
		`run_duration_seconds_count{type="bash"}`: 3, `run_duration_seconds_bucket{type="bash",le="3600"}`: 3,
		`gate_checks_total{kind="gate",result="closed"}`: 3, `gate_checks_total{kind="gate",result="open"}`: 1, `gate_checks_total{kind="rollback",result="open"}`: 0,
		`gate_changes_total{action="open",kind="gate"}`: 1, `gate_changes_total{action="close",kind="rollback"}`: 1, `gate_changes_total{action="reject",kind="gate"}`: 1,
		`gates{kind="gate",state="open"}`: 1, `gates{kind="gate",state="waiting"}`: 1, `gates{kind="rollback",state="open"}`: 1, `gate_waiting_since_seconds{kind="rollback"}`: 0,
		`auth_failures_total{reason="origin"}`: 1, `auth_failures_total{reason="missing"}`: 0,
		`http_requests_total{code="200",route="gate"}`: 1, `http_requests_total{code="403",route="gate"}`: 4, `http_requests_total{code="422",route="task"}`: 2,
		`http_requests_total{code="202",route="task"}`: 3, `http_requests_total{code="200",route="api"}`: 1, `http_requests_in_flight`: 1,
	} {
		if value, found := got[sample]; !found || value != want {
			t.Errorf("%s is %v (%t), want %v", sample, value, found, want)
		}
	}
	if since := got[`gate_waiting_since_seconds{kind="gate"}`]; since < 1.7e9 {
		t.Errorf("gate_waiting_since_seconds is %v", since)
	}
	for _, family := range []string{"go_goroutines", "process_open_fds", "promhttp_metric_handler_requests_in_flight"} {
		if _, found := got[family]; !found {
			t.Errorf("there is no %s", family)
		}
	}
	for _, r := range d.Server.Runs.Runs(api.Filter{}, nil) {
		d.post("/api/v1/runs/"+r.ID+"/cancel", "")
	}
	got = d.scrape()
	for sample, want := range map[string]float64{`runs_running`: 0, `runs_queued`: 0, `runs_finished_total{outcome="cancelled",type="cmd"}`: 2} {
		testenv.Equal(t, got[sample], want, "in the end %s", sample)
	}
}

// TestMetricNames shows that text of requests creates no series.
func TestMetricNames(t *testing.T) {
	d := startServer(t, nil)
	d.post("/gate/open", payloadPrefix+"}")
	before := len(d.scrape())
	for _, name := range []string{"a", "b", "c"} {
		d.post("/gate/"+name+"/open", `{"name": "`+name+`", "namespace": "`+name+`"}`)
		d.post("/gate/"+name+"/check", `{"name": "`+name+`", "namespace": "`+name+`"}`)
		d.post("/nothing/"+name, `{"name": "`+name+`", "metadata": {"type": "`+name+`"}}`)
		d.call(name, "/api/v1/runs/"+name, "")
	}
	after := d.scrape()
	for sample := range after {
		for _, label := range []string{`"a"`, `"b"`, `"c"`} {
			if strings.Contains(sample, label) {
				t.Errorf("a series is named by a request: %s", sample)
			}
		}
	}
	if more := len(after) - before; more > 5 { // new statuses
		t.Errorf("%d series more", more)
	}
}

func TestMetricsAccess(t *testing.T) {
	for name, tt := range map[string]struct {
		open  bool
		token string
		want  int
	}{"no token": {false, "", 401}, "a wrong one": {false, "wrong-wrong-wrong", 401}, "a token": {false, "0123456789abcdef-ci", 200}, "open": {true, "", 200}} {
		d := startServer(t, func(w *serverSetup) { w.server.Guard, w.server.OpenMetrics = guard(t, oneCaller), tt.open })
		d.token = tt.token
		d.call(http.MethodGet, "/metrics", "").expect(t, name, tt.want, "")
	}
	d := startServer(t, nil)
	if got := d.post("/metrics", ""); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %+v", got)
	}
}
