package rollout

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
)

// maxItems bounds each list of an analysis.
const maxItems = 100

var canaryRequirements = []requirement[*Canary]{
	{invalid, "metadata.name", func(_ *Canary, c *Canary) complaint { return of(document.CheckName(c.Metadata.Name)) }},
	{invalid, "metadata.namespace", func(_ *Canary, c *Canary) complaint { return of(document.CheckNamespace(c.Namespace())) }},
	{invalid, "spec.service.port", func(_ *Canary, c *Canary) complaint { return within(c.Spec.Service.Port, 0, 65535) }},
	{broken, "spec.progressDeadlineSeconds", func(_ *Canary, c *Canary) complaint {
		return within(c.Spec.ProgressDeadlineSeconds, 0, maxDeadlineSeconds)
	}},
	{broken, "spec.metricsServer", func(_ *Canary, c *Canary) complaint {
		if c.Spec.MetricsServer == "" {
			return ""
		}
		return webURL(c.Spec.MetricsServer)
	}},
}

var analysisRequirements = []requirement[*Settings]{
	{invalid, "stepWeights", func(_ *Canary, a *Settings) complaint { return few(len(a.StepWeights)) }},
	{invalid, "match", func(_ *Canary, a *Settings) complaint { return few(len(a.Match)) }},
	{invalid, "metrics", func(_ *Canary, a *Settings) complaint { return few(len(a.Metrics)) }},
	{invalid, "webhooks", func(_ *Canary, a *Settings) complaint { return few(len(a.Webhooks)) }},
	{invalid, "alerts", func(_ *Canary, a *Settings) complaint { return few(len(a.Alerts)) }},

	{broken, "interval", func(_ *Canary, a *Settings) complaint { return notNegative(a.Interval) }},
	{broken, "threshold", func(_ *Canary, a *Settings) complaint { return within(a.Threshold, 0, math.MaxInt) }},
	{broken, "maxWeight", func(_ *Canary, a *Settings) complaint { return within(a.MaxWeight, 0, 100) }},
	{broken, "stepWeight", func(_ *Canary, a *Settings) complaint { return within(a.StepWeight, 0, 100) }},
	{broken, "stepWeightPromotion", func(_ *Canary, a *Settings) complaint { return within(a.StepWeightPromotion, 0, 100) }},
	{broken, "mirrorWeight", func(_ *Canary, a *Settings) complaint { return within(a.MirrorWeight, 0, 100) }},
	{broken, "iterations", func(_ *Canary, a *Settings) complaint { return within(a.Iterations, 0, math.MaxInt) }},
	{broken, "primaryReadyThreshold", func(_ *Canary, a *Settings) complaint { return percent(a.PrimaryReadyThreshold) }},
	{broken, "canaryReadyThreshold", func(_ *Canary, a *Settings) complaint { return percent(a.CanaryReadyThreshold) }},
	{broken, "stepWeight", stepBelowMax},
	{broken, "stepWeights", stepsRise},
	{broken, "", stepsOrIterations},
	{broken, "webhooks", timeoutsBelowInterval},

	{advice, "interval", func(_ *Canary, a *Settings) complaint {
		if a.Interval > 0 && a.Interval < Duration(MinInterval) {
			return complain("is raised to %s, the shortest", MinInterval)
		}
		return ""
	}},
	{advice, "stepWeight", idleWith(func(a *Settings) bool { return a.Iterations > 0 && a.StepWeight != 0 }, "iterations is set")},
	{advice, "maxWeight", idleWith(func(a *Settings) bool { return a.Iterations > 0 && a.MaxWeight != 0 }, "iterations is set")},
	{advice, "stepWeights", idleWith(func(a *Settings) bool { return a.Iterations > 0 && len(a.StepWeights) > 0 }, "iterations is set")},
	{advice, "stepWeights", idleWith(func(a *Settings) bool { return a.StepWeight > 0 && len(a.StepWeights) > 0 }, "stepWeight is set")},
	{advice, "mirror", idleWith(func(a *Settings) bool { return a.Mirror && a.Iterations > 0 && len(a.Match) > 0 }, "an A/B test copies no requests")},
	{advice, "mirrorWeight", idleWith(func(a *Settings) bool { return a.MirrorWeight != 0 && !a.Mirror }, "mirror is not set")},
	{advice, "primaryReadyThreshold", idleWith(func(a *Settings) bool { return a.PrimaryReadyThreshold != nil }, "the target says when it is ready")},
	{advice, "canaryReadyThreshold", idleWith(func(a *Settings) bool { return a.CanaryReadyThreshold != nil }, "the target says when it is ready")},
	{advice, "webhooks", retriesBelowInterval},
}

func few(n int) complaint {
	if n > maxItems {
		return complain("has %d items: the limit is %d", n, maxItems)
	}
	return ""
}

func within(n, low, high int) complaint {
	switch {
	case n >= low && n <= high:
		return ""
	case high == math.MaxInt:
		return complain("is %d: it must not be negative", n)
	}
	return complain("is %d: it must be from %d to %d", n, low, high)
}

func percent(n *int) complaint {
	if n == nil {
		return ""
	}
	return within(*n, 0, 100)
}

func notNegative(d Duration) complaint {
	if d < 0 {
		return complain("is %s: it must not be negative", d)
	}
	return ""
}

// webURL says what is wrong with an http or https URL.
func webURL(text string) complaint {
	_, wrong := parseWebURL(text)
	return wrong
}

// parseWebURL returns an http or https URL, or what is wrong with it without a
// part of it: it may hold a password.
func parseWebURL(text string) (*url.URL, complaint) {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return nil, complain("is longer than %d bytes", maxURL)
	case err != nil:
		return nil, "is no URL: write http://HOST/PATH or https://HOST/PATH"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, "must begin with http:// or https://"
	case u.Hostname() == "":
		return nil, "has no host: write http://HOST/PATH or https://HOST/PATH"
	}
	return u, ""
}

const maxURL = 8 << 10

// idleWith complains about a field that is set and has no effect.
func idleWith(set func(*Settings) bool, why string) func(*Canary, *Settings) complaint {
	return func(_ *Canary, a *Settings) complaint {
		if set(a) {
			return complain("has no effect: %s", why)
		}
		return ""
	}
}

func stepBelowMax(c *Canary, a *Settings) complaint {
	if c.Strategy() == Weighted && a.StepWeight > c.MaxWeight() {
		return complain("is %d, more than maxWeight %d: lower it or raise maxWeight", a.StepWeight, c.MaxWeight())
	}
	return ""
}

// stepsRise complains about steps that do not lead from one to the next.
func stepsRise(c *Canary, a *Settings) complaint {
	if c.Strategy() != Weighted || a.StepWeight > 0 {
		return ""
	}
	for i, step := range a.StepWeights {
		switch {
		case step < 1 || step > 100:
			return complain("has the step %d: each must be from 1 to 100", step)
		case i > 0 && step <= a.StepWeights[i-1]:
			return complain("has the step %d after %d: each must be higher than the one before", step, a.StepWeights[i-1])
		case a.MaxWeight > 0 && step > a.MaxWeight:
			return complain("has the step %d, more than maxWeight %d: lower it or raise maxWeight", step, a.MaxWeight)
		}
	}
	return ""
}

func stepsOrIterations(c *Canary, a *Settings) complaint {
	if c.Spec.SkipAnalysis || a.StepWeight != 0 || len(a.StepWeights) > 0 || a.Iterations != 0 {
		return ""
	}
	return "has neither stepWeight, stepWeights nor iterations, so that it would never end: set one of them"
}

// timeoutsBelowInterval is the specification's rule that the timeouts of all
// rollout webhooks are together lower than the interval. Retries are not
// counted: the rule is about timeouts.
func timeoutsBelowInterval(c *Canary, a *Settings) complaint {
	sum := rolloutTime(a, false)
	if sum < c.Interval() {
		return ""
	}
	return complain("the timeouts of the rollout webhooks add up to %s (%s), which must be lower than the interval of %s: "+
		"raise interval or lower the timeouts", span(sum), rolloutTimeouts(a), span(c.Interval()))
}

func retriesBelowInterval(c *Canary, a *Settings) complaint {
	sum := rolloutTime(a, true)
	if sum < c.Interval() || rolloutTime(a, false) >= c.Interval() {
		return ""
	}
	return complain("with their retries the rollout webhooks may take %s, which is not lower than the interval of %s: "+
		"a step may then take longer than that", span(sum), span(c.Interval()))
}

// rolloutTime returns how long the webhooks of type rollout may take together,
// with or without their retries.
func rolloutTime(a *Settings, retries bool) time.Duration {
	sum := time.Duration(0)
	for i := range a.Webhooks[:min(len(a.Webhooks), maxItems)] {
		h := &a.Webhooks[i]
		if h.kind() != HookRollout {
			continue
		}
		attempts := 1
		if retries {
			attempts += min(max(h.Retries, 0), maxRetries)
		}
		for range attempts {
			if sum += h.timeout(); sum < 0 {
				return math.MaxInt64
			}
		}
	}
	return sum
}

// rolloutTimeouts lists the webhooks of type rollout with their timeouts.
func rolloutTimeouts(a *Settings) string {
	var all []string
	for i := range a.Webhooks {
		h := &a.Webhooks[i]
		if h.kind() != HookRollout {
			continue
		}
		text := document.Quote(h.Name) + " " + span(h.timeout())
		if h.Timeout <= 0 {
			text += " by default"
		}
		all = append(all, text)
	}
	if n := len(all); n > 10 {
		all = append(slices.Clip(all[:10]), fmt.Sprintf("and %d more", n-10))
	}
	return strings.Join(all, ", ")
}

// span returns d as people write it.
func span(d time.Duration) string {
	s := document.FormatDuration(d)
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}
