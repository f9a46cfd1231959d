package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
)

// A real Prometheus is asked everything that an analysis asks, in forms that
// it answers in different ways.
func TestMetricsOfPrometheus(t *testing.T) {
	address := startPrometheus(t)
	q := &metric.Querier{Server: withUser(address)}
	t.Cleanup(q.Close)
	awaitTraffic(t, q, address)

	t.Run("online", func(t *testing.T) {
		c := appCanary("istio", "app", "")
		c.Spec.Analysis.Metrics = []rollout.Metric{{Name: rollout.SuccessRate}}
		check(t, q.Online(t.Context(), c))
		c.Spec.MetricsServer = strings.TrimSuffix(address, "prom") + "elsewhere"
		if err := q.Online(t.Context(), c); err == nil {
			t.Error("another path is online")
		}
	})

	for provider := range loads {
		t.Run(provider, func(t *testing.T) {
			c := appCanary(provider, "app", "")
			near(t, q, c, rollout.Metric{Name: rollout.SuccessRate}, 99)
			near(t, q, c, rollout.Metric{Name: rollout.RequestDuration}, 198) // between 100 and 200 ms, as 98 of 100
		})
	}

	t.Run("no request succeeds", func(t *testing.T) {
		near(t, q, appCanary("istio", "broken", ""), rollout.Metric{Name: rollout.SuccessRate}, 0)
	})
	t.Run("no request fails", func(t *testing.T) {
		near(t, q, appCanary("istio", "sound", ""), rollout.Metric{Name: rollout.SuccessRate}, 100)
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

// near checks the value of a metric, which rates are extrapolated for.
func near(t *testing.T, q *metric.Querier, c *rollout.Canary, m rollout.Metric, want float64) {
	t.Helper()
	got, err := q.Query(t.Context(), c, m)
	if err != nil || math.Abs(got-want) > 1e-6 {
		t.Errorf("%s of %s: got %v, %v, want %v", m.Name, c.Spec.Provider, got, err, want)
	}
}

// testForms asks what Prometheus answers in each of its forms.
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

// testCredentials asks with a Secret, with a wrong one, and without.
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
	check(t, err)
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

// ports are the traffic and the target of an analysis without a workload.
type ports struct{ routes rollout.Routes }

func (p *ports) Routes(context.Context) (rollout.Routes, error) { return p.routes, nil }
func (p *ports) SetRoutes(_ context.Context, r rollout.Routes) error {
	p.routes = r
	return nil
}
func (p *ports) Revision(context.Context) (string, error) { return "v2", nil }
func (p *ports) PrimaryReady(context.Context) error       { return nil }
func (p *ports) CanaryReady(context.Context) error        { return nil }
func (p *ports) ScaleUp(context.Context) error            { return nil }
func (p *ports) ScaleDown(context.Context) error          { return nil }
func (p *ports) Promote(context.Context) error            { return nil }

// An analysis promotes a canary whose requests succeed and rolls back one
// whose requests fail, by what Prometheus says of them.
func TestAnalysisByMetricsOfPrometheus(t *testing.T) {
	address := startPrometheus(t)
	q := &metric.Querier{}
	t.Cleanup(q.Close)
	awaitTraffic(t, q, address)
	least := 95.0
	for target, want := range map[string]rollout.Phase{"app": rollout.Succeeded, "broken": rollout.Failed, "unknown": rollout.Failed} {
		t.Run(target, func(t *testing.T) {
			c := appCanary("istio", target, withUser(address))
			c.Spec.Analysis = rollout.Settings{
				Interval: rollout.Duration(time.Minute), Threshold: 2, StepWeight: 50, MaxWeight: 50,
				Metrics: []rollout.Metric{{Name: rollout.SuccessRate, ThresholdRange: &rollout.Range{Min: &least}}},
			}
			traffic := &ports{routes: rollout.Routes{Primary: 100}}
			a := &rollout.Analysis{Canary: c, Traffic: traffic, Target: traffic, Metrics: q}
			s, now := rollout.Status{Phase: rollout.Succeeded, PromotedSpec: "v1", AppliedSpec: "v1"}, time.Now()
			for range 20 {
				var err error
				s, _, err = a.Step(t.Context(), now, s)
				check(t, err)
				if now = now.Add(time.Minute); s.Ended() && s.AppliedSpec == "v2" {
					break
				}
			}
			if s.Phase != want || traffic.routes != (rollout.Routes{Primary: 100}) {
				t.Errorf("got %s with %+v, want %s", s.Phase, traffic.routes, want)
			}
		})
	}
}

// The command does the same from manifests.
func TestRolloutRunByMetricsOfPrometheus(t *testing.T) {
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
