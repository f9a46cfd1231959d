package rollout

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

func ptr[T any](v T) *T { return &v }

// validCanary returns a valid canary with one item of each kind.
func validCanary() *Canary {
	return &Canary{
		Metadata: Metadata{Name: "podinfo", Namespace: "test"},
		Spec: CanarySpec{
			TargetRef: ObjectRef{Name: "podinfo"},
			Analysis: Settings{
				Interval: Duration(time.Minute), Threshold: 5, StepWeight: 10, MaxWeight: 50,
				Metrics: []Metric{{Name: SuccessRate, ThresholdRange: &Range{Min: ptr(99.0)}}},
				Webhooks: []Hook{
					{Name: "gate", Type: HookConfirmRollout, URL: "https://h/gate"},
					{Name: "load", Type: HookRollout, URL: "http://h/", Timeout: Duration(5 * time.Second)},
				},
				Alerts: []Alert{{Name: "on-call", ProviderRef: ObjectRef{Name: "slack"}}},
			},
		},
	}
}

// A requirementTest breaks one requirement of a valid (breaks one requirement of a valid canary) canary.
type requirementTest struct {
	edit func(c *Canary, a *Settings, h *Hook, m *Metric)
	level
	want string
}

// requirementTests break requirements that no manifest in testdata/manifests breaks.
var requirementTests = []requirementTest{
	{func(c *Canary, _ *Settings, _ *Hook, _ *Metric) { c.Metadata.Name = "" }, invalid, "metadata.name: is required"},
	{func(c *Canary, _ *Settings, _ *Hook, _ *Metric) { c.Spec.ProgressDeadlineSeconds = -1 }, broken, "spec.progressDeadlineSeconds: is -1: it must be from 0 to 8589934591"},
	{func(c *Canary, _ *Settings, _ *Hook, _ *Metric) { c.Spec.MetricsServer = "prometheus:9090" }, broken, "spec.metricsServer: must begin with http:// or https://"},

	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.Interval = -1 }, broken, "spec.analysis.interval: is -0.000001ms: it must not be negative"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.Threshold = -1 }, broken, "spec.analysis.threshold: is -1: it must not be negative"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.MaxWeight = 101 }, broken, "spec.analysis.maxWeight: is 101: it must be from 0 to 100"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.StepWeight = -1 }, broken, "spec.analysis.stepWeight: is -1: it must be from 0 to 100"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.StepWeightPromotion = 101 }, broken, "spec.analysis.stepWeightPromotion: is 101: it must be from 0 to 100"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.Mirror, a.MirrorWeight = true, 101 }, broken, "spec.analysis.mirrorWeight: is 101: it must be from 0 to 100"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.Iterations = -1 }, broken, "spec.analysis.iterations: is -1: it must not be negative"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.PrimaryReadyThreshold = ptr(101) }, broken, "spec.analysis.primaryReadyThreshold: is 101: it must be from 0 to 100"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.CanaryReadyThreshold = ptr(-1) }, broken, "spec.analysis.canaryReadyThreshold: is -1: it must be from 0 to 100"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.StepWeight, a.StepWeights = 0, []int{0, 20} }, broken, "spec.analysis.stepWeights: has the step 0: each must be from 1 to 100"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) {
		a.StepWeight, a.MaxWeight, a.StepWeights = 0, 0, []int{20, 101}
	}, broken, "spec.analysis.stepWeights: has the step 101: each must be from 1 to 100"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.StepWeight, a.StepWeights = 0, []int{20, 20} }, broken, "spec.analysis.stepWeights: has the step 20 after 20: each must be higher than the one before"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.StepWeight, a.StepWeights = 0, []int{20, 60} }, broken, "spec.analysis.stepWeights: has the step 60, more than maxWeight 50: lower it or raise maxWeight"},
	{func(_ *Canary, a *Settings, h *Hook, _ *Metric) {
		h.Timeout = math.MaxInt64
		a.Webhooks = append(a.Webhooks, *h)
	}, broken, "add up to 2562047h47m16.854775807s"},

	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) {
		a.StepWeight, a.MaxWeight, a.Iterations, a.StepWeights = 0, 0, 3, []int{1}
	}, advice, "spec.analysis.stepWeights: has no effect: iterations is set"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.StepWeights = []int{1} }, advice, "spec.analysis.stepWeights: has no effect: stepWeight is set"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.Retries = 11 }, advice, "spec.analysis.webhooks: with their retries the rollout webhooks may take 1m, which is not lower than the interval of 1m: a step may then take longer than that"},

	{match(StringMatch{}, 1), broken, "spec.analysis.match[0].headers: needs one of exact, prefix, suffix and regex for x0, and has 0"},
	{match(StringMatch{Regex: "("}, 1), broken, "spec.analysis.match[0].headers: has a regex for x0 that does not compile: missing closing )"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) {
		a.Match = []Match{{Headers: map[string]StringMatch{"a b": {Exact: "x"}}}}
	}, broken, `spec.analysis.match[0].headers: has "a b", which is no name of a header`},

	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) {
		m.TemplateRef = &ObjectRef{Name: "a", Namespace: "B"}
	}, invalid, `spec.analysis.metrics[0].templateRef.namespace: "B" is no namespace`},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.Interval = -1 }, broken, "spec.analysis.metrics[0].interval: is -0.000001ms: it must not be negative"},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.ThresholdRange = nil }, broken, "spec.analysis.metrics[0].thresholdRange: is missing, so that every value would pass: set min, max or both"},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.ThresholdRange = &Range{} }, broken, "spec.analysis.metrics[0].thresholdRange: is empty, so that every value would pass: set min, max or both"},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.ThresholdRange = &Range{Max: ptr(math.NaN())} }, broken, "spec.analysis.metrics[0].thresholdRange: has a bound that is no number"},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.ThresholdRange, m.Threshold = nil, ptr(math.NaN()) }, broken, "spec.analysis.metrics[0].threshold: is no number"},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.Threshold = ptr(1.0) }, advice, "spec.analysis.metrics[0].threshold: has no effect: thresholdRange is set"},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.TemplateRef, m.Query = &ObjectRef{Name: "a"}, "q" }, advice, "spec.analysis.metrics[0].query: has no effect: templateRef is set"},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.TemplateVariables = map[string]string{"a": ""} }, advice, "spec.analysis.metrics[0].templateVariables: has no effect: there is no query and no templateRef"},

	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.URL = "file:///etc/passwd" }, invalid, "spec.analysis.webhooks[1].url: must begin with http:// or https://"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.URL = "https:///path" }, invalid, "spec.analysis.webhooks[1].url: has no host: write http://HOST/PATH or https://HOST/PATH"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.URL = "https://u:hunter2@h\n" }, invalid, "spec.analysis.webhooks[1].url: is no URL: write http://HOST/PATH or https://HOST/PATH"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.Metadata = map[string]string{"a\n": ""} }, invalid, `spec.analysis.webhooks[1].metadata: the key "a\n" has control characters: remove them`},
	{func(_ *Canary, _ *Settings, _ *Hook, m *Metric) { m.TemplateVariables = map[string]string{"a\n": ""} }, invalid, `spec.analysis.metrics[0].templateVariables: the key "a\n" has control characters: remove them`},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.SecretRef = &SecretRef{} }, invalid, "spec.analysis.webhooks[1].secretRef.name: is required"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) {
		h.URL, h.CertSecretRef = "https://h", &SecretRef{"../x"}
	}, invalid, `spec.analysis.webhooks[1].certSecretRef.name: "../x" is no name`},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.Type, h.Deadline = HookConfirmPromotion, -1 }, invalid, "spec.analysis.webhooks[1].deadline: is -0.000001ms: it must not be negative"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.Timeout = -1 }, broken, "spec.analysis.webhooks[1].timeout: is -0.000001ms: it must not be negative"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) {
		h.Type, h.Metadata = HookEvent, map[string]string{"timestamp": "1"}
	}, advice, "spec.analysis.webhooks[1].metadata: has the key timestamp, which each event sets: rename it"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.URL = "https://u:hunter2@h/" }, advice, "spec.analysis.webhooks[1].url: holds a password, which anyone who reads the manifest sees: use secretRef"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.SecretRef = &SecretRef{"a"} }, advice, "spec.analysis.webhooks[1].url: is http, so that the credentials of secretRef go in the clear: use https"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) { h.CertSecretRef = &SecretRef{"a"} }, advice, "spec.analysis.webhooks[1].certSecretRef: has no effect: url is http"},
	{func(_ *Canary, _ *Settings, h *Hook, _ *Metric) {
		h.URL, h.SecretRef, h.DisableTLS = "https://h", &SecretRef{"a"}, true
	}, advice, "spec.analysis.webhooks[1].disableTLS: sends the credentials of secretRef to a server whose certificate is not verified: use certSecretRef"},

	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.Alerts[0].Name = "\x00" }, invalid, `spec.analysis.alerts[0].name: "\x00" has control characters: remove them`},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.Alerts[0].ProviderRef.Name = "" }, invalid, "spec.analysis.alerts[0].providerRef.name: is required"},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.Alerts[0].ProviderRef.Namespace = "-" }, invalid, `spec.analysis.alerts[0].providerRef.namespace: "-" is no namespace`},
	{func(_ *Canary, a *Settings, _ *Hook, _ *Metric) { a.Alerts[0].Severity = "warning" }, broken, `spec.analysis.alerts[0].severity: "warning" is none of info, warn, error`},
}

// match adds n conditions on headers.
func match(m StringMatch, n int) func(*Canary, *Settings, *Hook, *Metric) {
	return func(_ *Canary, a *Settings, _ *Hook, _ *Metric) {
		a.Match = []Match{{Headers: make(map[string]StringMatch)}}
		for i := range n {
			a.Match[0].Headers[fmt.Sprintf("x%d", i)] = m
		}
	}
}

// TestRequirements breaks each requirement and compares the finding. Check does not
// report advice.
func TestRequirements(t *testing.T) {
	if c := validCanary(); c.Check() != nil || len(examine(c)[advice].Errors) > 0 {
		t.Fatalf("%v\n%v", c.Check(), examine(c)[advice].Errors)
	}
	testenv.Equal(t, checkURLCredentials(&Hook{URL: "https://u:hunter2@h\n"}), nil, "what is no URL")
	for _, test := range requirementTests {
		c := test.broken()
		found := examine(c)[test.level].ErrorsFor("")
		if len(found) == 0 || !strings.Contains(found[0].Error(), test.want) {
			t.Errorf("%v\nwant level %d: %s", examine(c), test.level, test.want)
		}
		if err := c.Check(); (err == nil) != (test.level == advice) {
			t.Errorf("%s: Check: %v", test.want, err)
		} else if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v shows a secret", err)
		}
	}
}

// broken returns a canary that breaks only this requirement.
func (r *requirementTest) broken() *Canary {
	c := validCanary()
	a := &c.Spec.Analysis
	r.edit(c, a, &a.Webhooks[1], &a.Metrics[0])
	return c
}
