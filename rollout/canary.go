package rollout

// The API groups whose Canary manifests are read: headgate's own, and the one
// of the reference implementation.
const (
	Group          = "rollout.headgate.dev"
	ReferenceGroup = "flagger.app"
)

// A Canary is the part of a Canary manifest that this package works with. It
// holds what is written; what is left out has the zero value, and methods such
// as [Canary.Interval] return the defaults.
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

// A CanarySpec says what is rolled out and how. Of the fields of a manifest it
// has those that mean something without a cluster.
type CanarySpec struct {
	Provider                string    `json:"provider,omitempty"`      // of the metrics that need no query
	MetricsServer           string    `json:"metricsServer,omitempty"` // URL, for metrics without a template
	TargetRef               ObjectRef `json:"targetRef,omitzero"`
	Service                 Service   `json:"service,omitzero"`
	IngressRef              ObjectRef `json:"ingressRef,omitzero"` // for queries, as RouteRef
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

// A Service is what the traffic goes to.
type Service struct {
	Name string `json:"name,omitempty"` // default the name of the target
	Port int    `json:"port,omitempty"`
}

// Settings are the analysis of a canary: spec.analysis (specification,
// "Resources and their fields"; reference B.2). Weights are percent, 0 to 100.
type Settings struct {
	Interval            Duration `json:"interval,omitempty"`            // between two steps, default 60s, at least 10s: see [Canary.Interval]
	Threshold           int      `json:"threshold,omitempty"`           // failed checks that roll back, default 1
	MaxWeight           int      `json:"maxWeight,omitempty"`           // the canary never has more before it is promoted, default 100: see [Canary.MaxWeight]
	StepWeight          int      `json:"stepWeight,omitempty"`          // added in each step: see [Canary.NextWeight]
	StepWeights         []int    `json:"stepWeights,omitempty"`         // or the weights, rising
	StepWeightPromotion int      `json:"stepWeightPromotion,omitempty"` // added to the primary in each step of a promotion; 0 for all at once
	Iterations          int      `json:"iterations,omitempty"`          // of an A/B test or blue/green: see [Canary.Strategy]
	Mirror              bool     `json:"mirror,omitempty"`              // the canary gets copies of requests first
	MirrorWeight        int      `json:"mirrorWeight,omitempty"`        // of the requests that are copied, for traffic that can

	// Percent of replicas. They have no effect: the [Target] says when it is ready.
	PrimaryReadyThreshold *int `json:"primaryReadyThreshold,omitempty"`
	CanaryReadyThreshold  *int `json:"canaryReadyThreshold,omitempty"`

	Match    []Match  `json:"match,omitempty"`
	Metrics  []Metric `json:"metrics,omitempty"`
	Webhooks []Hook   `json:"webhooks,omitempty"`
	Alerts   []Alert  `json:"alerts,omitempty"`
}

// A Match is a condition on requests that go to the canary, for A/B tests: all
// headers must be as it says. Of several conditions one must hold.
type Match struct {
	Headers map[string]StringMatch `json:"headers,omitempty"`
}

// A StringMatch is a condition on the value of a header: one of these. The
// regular expression (RE2) is of the whole value.
type StringMatch struct {
	Exact  string `json:"exact,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	Suffix string `json:"suffix,omitempty"`
	Regex  string `json:"regex,omitempty"`
}

// A Metric is one check of a value (reference C): of what TemplateRef or else
// Query asks for, or of one of the two that need neither, [SuccessRate] and
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

// A Range is what a value must be in, ends included.
type Range struct {
	Min *float64 `json:"min,omitempty"`
	Max *float64 `json:"max,omitempty"`
}

// An Alert is a notifier and what it is told.
type Alert struct {
	Name        string    `json:"name"`
	Severity    Severity  `json:"severity,omitempty"` // default info: all
	ProviderRef ObjectRef `json:"providerRef"`
}
