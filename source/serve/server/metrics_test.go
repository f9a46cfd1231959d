package server_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/hook"
)

var metricRow = regexp.MustCompile("(?m)^\\| `(headgate_[a-z_]+)(\\{[a-z, ]+\\})?` \\|")

// TestMetricsTable compares the table of the documentation with what is served.
func TestMetricsTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		labels := strings.Split(strings.Trim(m[2], "{}"), ", ")
		slices.Sort(labels)
		documented[m[1]] = strings.Join(labels, ", ")
	}
	r := newRig(t, false, func(r *rig) {
		cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cache.Close() })
		r.server.Controller.Env.Cache = cache
	})
	r.server.ObserveHook(hook.Outcome{Object: app, Provider: "github", Status: 202})
	r.ask("GET", "/healthz", "", "")
	served := map[string]string{}
	label := regexp.MustCompile(`([a-z]+)="`)
	_, _, body := r.ask("GET", "/metrics", "", "")
	for line := range strings.Lines(body) {
		name, rest, _ := strings.Cut(strings.Fields(line)[0], "{")
		name = regexp.MustCompile("(reconcile_[a-z]+_seconds)_(bucket|sum|count)").ReplaceAllString(name, "$1")
		if !strings.HasPrefix(name, "headgate_") {
			continue
		}
		var labels []string
		for _, m := range label.FindAllStringSubmatch(rest, -1) {
			if m[1] != "le" {
				labels = append(labels, m[1])
			}
		}
		slices.Sort(labels)
		served[name] = strings.Join(labels, ", ")
	}
	if !maps.Equal(documented, served) {
		for name := range maps.Keys(documented) {
			if served[name] != documented[name] {
				t.Errorf("docs/serve.md has %s{%s}, served is {%s}", name, documented[name], served[name])
			}
		}
		for name := range maps.Keys(served) {
			if _, ok := documented[name]; !ok {
				t.Errorf("docs/serve.md lacks %s{%s}", name, served[name])
			}
		}
	}
}

// TestMetrics finds what happened among the metrics.
func TestMetrics(t *testing.T) {
	r := newRig(t, false)
	c := r.client("")
	r.fail("app", errDown)
	if _, _, err := c.Reconcile(t.Context(), app, api.Change{}, time.Minute); err != nil {
		t.Fatal(err)
	}
	_, _, content := r.ask("GET", "/bucket/shop/assets/latest.tar.gz", "", "")
	r.ask("GET", "/gitrepository/shop/app/no/such", "", "")
	r.server.ObserveHook(hook.Outcome{Object: app, Provider: "github", Status: 401, Reason: "x"})
	r.server.ObserveDelivery(nil, false)
	r.server.ObserveDelivery(errDown, true)
	_, _, body := r.ask("GET", "/metrics", "", "")
	for _, want := range []string{
		`headgate_reconcile_total{kind="GitRepository",outcome="failed",trigger="request"} 1`,
		`headgate_reconcile_total{kind="GitRepository",outcome="stored",trigger="start"} 2`,
		`headgate_reconcile_duration_seconds_count{kind="Bucket"} 1`,
		`headgate_source_ready{kind="GitRepository",namespace="shop",name="app"} 0`,
		`headgate_source_ready{kind="Bucket",namespace="shop",name="assets"} 1`,
		`headgate_sources{phase="idle"} 3`,
		`headgate_hook_requests_total{code="401",provider="github"} 1`,
		`headgate_http_requests_total{code="404",route="artifact"} 1`,
		fmt.Sprintf(`headgate_artifact_served_bytes_total %d`, len(content)),
		`headgate_event_deliveries_total{result="delivered"} 1`,
		`headgate_event_deliveries_total{result="lost"} 1`,
		`headgate_upstream_answers_total{by="asked"} 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("there is no line %s", want)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

// TestMetricsLint has promtool read the metrics, where it is installed.
func TestMetricsLint(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool")
	}
	r := newRig(t, false)
	_, _, body := r.ask("GET", "/metrics", "", "", "Accept", "application/openmetrics-text")
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(body)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestHookOfNothing leaves out of the log what a webhook does not name.
func TestHookOfNothing(t *testing.T) {
	r := newRig(t, false)
	r.server.ObserveHook(hook.Outcome{Status: 404, Reason: "no such path"})
	if log := r.log.String(); !strings.Contains(log, `status=404 reason="no such path"`) || strings.Contains(log, "object=//") || strings.Contains(log, "provider=") {
		t.Errorf("log: %s", log)
	}
	r.server.ObserveHook(hook.Outcome{Object: app, Provider: "github", Status: 202})
	if log := r.log.String(); !strings.Contains(log, "object=GitRepository/shop/app provider=github") {
		t.Errorf("log: %s", log)
	}
}
