package rollout

import (
	"cmp"
	"time"

	"github.com/headgate-io/headgate/internal/document"
)

// The API groups whose Canary manifests are read: the group of headgate, and that of
// the reference implementation.
const (
	Group          = "rollout.headgate.dev"
	ReferenceGroup = "flagger.app"
)

// A Canary is the part of a Canary manifest that this package uses. A field that the
// manifest leaves out has the zero value; methods such as [Canary.Interval] return
// the defaults.
type Canary struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   Metadata   `json:"metadata"`
	Spec       CanarySpec `json:"spec"`
}

// Metadata names a canary.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // default "default"
}

// A CanarySpec defines what is rolled out and how. It has only the fields of a
// manifest that have a meaning without a cluster.
type CanarySpec struct {
	Provider                string    `json:"provider,omitempty"`      // of the metrics that need no query
	MetricsServer           string    `json:"metricsServer,omitempty"` // URL, for metrics without a template
	TargetRef               ObjectRef `json:"targetRef,omitzero"`
	Service                 Service   `json:"service,omitzero"`
	IngressRef              ObjectRef `json:"ingressRef,omitzero"` // for metric queries, like RouteRef
	RouteRef                ObjectRef `json:"routeRef,omitzero"`
	ProgressDeadlineSeconds int       `json:"progressDeadlineSeconds,omitempty"` // default 600
	SkipAnalysis            bool      `json:"skipAnalysis,omitempty"`            // promote at once
	Suspend                 bool      `json:"suspend,omitempty"`                 // do nothing
	Analysis                Settings  `json:"analysis"`
}

// An ObjectRef names an object of the cluster.
type ObjectRef struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name"`
	Namespace  string `json:"namespace,omitempty"`
}

// A Service names the service that receives the traffic.
type Service struct {
	Name string `json:"name,omitempty"` // default the name of the target
	Port int    `json:"port,omitempty"`
}

// Settings are the analysis of a canary: spec.analysis (specification,
// "Resources and their fields"; reference B.2). Weights are percent, 0 to 100.
type Settings struct {
	Interval            Duration `json:"interval,omitempty"`            // between two steps, default 60s, at least 10s: see [Canary.Interval]
	Threshold           int      `json:"threshold,omitempty"`           // number of failed checks that rolls back, default 1
	MaxWeight           int      `json:"maxWeight,omitempty"`           // of the canary before its promotion, default 100: see [Canary.MaxWeight]
	StepWeight          int      `json:"stepWeight,omitempty"`          // added in each step: see [Canary.NextWeight]
	StepWeights         []int    `json:"stepWeights,omitempty"`         // the weights instead, in rising order
	StepWeightPromotion int      `json:"stepWeightPromotion,omitempty"` // added to the primary in each step of a promotion; 0 for all at once
	Iterations          int      `json:"iterations,omitempty"`          // of an A/B test or blue/green: see [Canary.Strategy]
	Mirror              bool     `json:"mirror,omitempty"`              // the canary gets copies of requests first
	MirrorWeight        int      `json:"mirrorWeight,omitempty"`        // share of requests that are copied, if the [Traffic] supports it

	// Percent of replicas. These have no effect: the [Target] reports when it is ready.
	PrimaryReadyThreshold *int `json:"primaryReadyThreshold,omitempty"`
	CanaryReadyThreshold  *int `json:"canaryReadyThreshold,omitempty"`

	Match    []Match  `json:"match,omitempty"`
	Metrics  []Metric `json:"metrics,omitempty"`
	Webhooks []Hook   `json:"webhooks,omitempty"`
	Alerts   []Alert  `json:"alerts,omitempty"`
}

// A Match is a condition on the requests that go to the canary, for A/B tests. All
// its headers must match. If there are several conditions, one must hold.
type Match struct {
	Headers map[string]StringMatch `json:"headers,omitempty"`
}

// A StringMatch is a condition on the value of a header; exactly one field is set.
// The regular expression (RE2) must match the whole value.
type StringMatch struct {
	Exact  string `json:"exact,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	Suffix string `json:"suffix,omitempty"`
	Regex  string `json:"regex,omitempty"`
}

// A Metric is a check of one value (reference C): the result of TemplateRef or else
// of Query, or one of the two metrics that need neither, [SuccessRate] and
// [RequestDuration].
type Metric struct {
	Name              string            `json:"name"`
	Interval          Duration          `json:"interval,omitempty"` // default 1m
	Threshold         *float64          `json:"threshold,omitempty"`
	ThresholdRange    *Range            `json:"thresholdRange,omitempty"`
	Query             string            `json:"query,omitempty"`
	TemplateRef       *ObjectRef        `json:"templateRef,omitempty"`
	TemplateVariables map[string]string `json:"templateVariables,omitempty"`
	NoValues          string            `json:"noValues,omitempty"` // extension of headgate: fail (default), pass or inconclusive
}

// A Range is the range of accepted values, bounds included. A nil bound is no limit.
type Range struct {
	Min *float64 `json:"min,omitempty"`
	Max *float64 `json:"max,omitempty"`
}

// An Alert names an alert provider and the least severity that it receives.
type Alert struct {
	Name        string    `json:"name"`
	Severity    Severity  `json:"severity,omitempty"` // default info: all
	ProviderRef ObjectRef `json:"providerRef"`
}

// Defaults of fields that a manifest leaves out (reference B.2), and [MinInterval].
// The methods of [Canary] return them; its fields stay zero.
const (
	DefaultInterval         = 60 * time.Second
	MinInterval             = 10 * time.Second
	DefaultTimeout          = 10 * time.Second // of one attempt of a webhook
	DefaultProgressDeadline = 600 * time.Second
	DefaultNamespace        = "default"
)

// String returns Canary/NAMESPACE/NAME.
func (c *Canary) String() string { return kindCanary + "/" + c.Namespace() + "/" + c.Metadata.Name }

// Namespace returns the namespace of the canary, or [DefaultNamespace].
func (c *Canary) Namespace() string { return cmp.Or(c.Metadata.Namespace, DefaultNamespace) }

// Interval returns the time between two steps of the analysis: at least
// [MinInterval], [DefaultInterval] if none is set.
func (c *Canary) Interval() time.Duration {
	d := time.Duration(c.Spec.Analysis.Interval)
	if d <= 0 {
		return DefaultInterval
	}
	return max(d, MinInterval)
}

// Threshold returns the number of failed checks that rolls the canary back, at least 1.
func (c *Canary) Threshold() int { return max(c.Spec.Analysis.Threshold, 1) }

// ProgressDeadline returns how long the primary or the canary may be not ready, and
// how long setting the routes may fail, before this counts as a failure.
func (c *Canary) ProgressDeadline() time.Duration {
	if s := c.Spec.ProgressDeadlineSeconds; s > 0 {
		return time.Duration(min(s, maxDeadlineSeconds)) * time.Second
	}
	return DefaultProgressDeadline
}

const maxDeadlineSeconds = 1<<33 - 1 // fits a time.Duration

// timeout returns how long one attempt may take.
func (h *Hook) timeout() time.Duration {
	if h.Timeout <= 0 {
		return DefaultTimeout
	}
	return time.Duration(h.Timeout)
}

// Kind returns the type of the webhook, [HookRollout] if none is set.
func (h *Hook) Kind() HookType { return cmp.Or(h.Type, HookRollout) }

const kindCanary = "Canary"

// A Duration is a time span, written as an unsigned sequence of decimal
// numbers with the units ms, s, m and h: 1m30s.
type Duration time.Duration

// String returns d as manifests write it; d must not be negative.
func (d Duration) String() string { return document.FormatDuration(time.Duration(d)) }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	span, err := document.ParseDuration(string(text))
	*d = Duration(span)
	return err
}

// A Strategy defines how a canary gets its traffic (reference B.2).
type Strategy string

// The strategies.
const (
	Weighted  Strategy = "weighted"   // a rising share of all requests
	ABTest    Strategy = "a/b"        // all matching requests, for a number of iterations
	BlueGreen Strategy = "blue/green" // no requests, or copies, for a number of iterations; then all
)

// Strategy returns the strategy: [Weighted] without iterations, [ABTest] with
// iterations and conditions on requests, else [BlueGreen].
func (c *Canary) Strategy() Strategy {
	switch a := &c.Spec.Analysis; {
	case a.Iterations <= 0:
		return Weighted
	case len(a.Match) > 0:
		return ABTest
	}
	return BlueGreen
}

// MaxWeight returns the highest weight of the canary before its promotion:
// maxWeight, 100 by default, and not more than the last of stepWeights if
// stepWeight is not set.
func (c *Canary) MaxWeight() int {
	a := &c.Spec.Analysis
	limit := 100
	if a.MaxWeight > 0 {
		limit = min(limit, a.MaxWeight)
	}
	if n := len(a.StepWeights); n > 0 && a.StepWeight <= 0 {
		limit = min(limit, max(a.StepWeights[n-1], 0))
	}
	return limit
}

// stepsDone returns how many weights or iterations a canary has reached, and their
// total number.
func (c *Canary) stepsDone(s Status) (done, all int) {
	if c.Strategy() != Weighted {
		all = c.Spec.Analysis.Iterations
		return min(s.Iterations, all), all
	}
	for weight, next := 0, c.NextWeight(0); next > weight; weight, next = next, c.NextWeight(next) {
		all++
		if next <= s.CanaryWeight {
			done++
		}
	}
	return done, all
}

// NextWeight returns the weight that follows weight: weight plus stepWeight, or
// else the smallest of stepWeights above weight, but never above
// [Canary.MaxWeight]. It returns weight itself if none follows, and for strategies
// other than [Weighted].
func (c *Canary) NextWeight(weight int) int {
	a := &c.Spec.Analysis
	limit, next := c.MaxWeight(), weight
	switch {
	case c.Strategy() != Weighted || weight >= limit:
	case a.StepWeight > 0:
		next = weight + min(a.StepWeight, limit-weight)
	default:
		for _, step := range a.StepWeights {
			if step = min(step, limit); step > weight && (next == weight || step < next) {
				next = step
			}
		}
	}
	return next
}
