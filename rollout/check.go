package rollout

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/notify"
)

// Check returns the defects for which an analysis refuses the canary, joined: one
// [*DocumentError] for each broken rule. [Decode] refuses or warns of the same
// defects; docs/reference/canaries.md lists the rules.
func (c *Canary) Check() error {
	found := examine(c)
	return errors.Join(append(found[invalid].ErrorsFor(c.String()), found[broken].ErrorsFor(c.String())...)...)
}

// A level is the consequence of a broken rule.
type level uint8

const (
	invalid level = iota // Decode and Check refuse the manifest
	broken               // Decode warns, since manifests in use have it; Check refuses
	advice               // Decode warns: a field has no effect, or not the expected one
	levels
)

// examine returns the defects of a canary by level. Each field is reported once.
func examine(c *Canary) *[levels]document.Findings {
	found := new([levels]document.Findings)
	found[invalid].Examine(c, facts[invalid])
	found[broken].Examine(c, facts[broken], &found[invalid])
	found[advice].Examine(c, facts[advice], &found[invalid], &found[broken])
	all := c.Spec.Analysis.Webhooks
	for i, h := range all {
		first := slices.IndexFunc(all, func(o Hook) bool { return o.Name == h.Name })
		found[advice].AddIf(first < i && ownName(h.Name) == nil, fmt.Sprintf("%s.webhooks[%d].name", analysisPath, i),
			"%s is the name of webhooks[%d] as well: events and logs do not tell them apart", document.Quote(h.Name), first)
	}
	return found
}

// facts holds the rules by level. It is never modified.
var facts = [levels][]document.Fact{
	invalid: {
		document.Value("metadata.name", document.CheckName),
		document.Related("", "metadata.namespace", func(c *Canary) error { return document.CheckNamespace(c.Namespace()) }),
		document.Value("spec.service.port", within(0, 65535)),

		document.Value("spec.analysis.metrics[].name", ownName),
		document.Value("spec.analysis.metrics[].templateRef.name", document.CheckName),
		document.Value("spec.analysis.metrics[].templateRef.namespace", optional(document.CheckNamespace)),
		document.Value("spec.analysis.metrics[].templateVariables", plainKeys),
		document.Value("spec.analysis.metrics[].noValues", oneOf("", NoValuesFail, NoValuesPass, NoValuesInconclusive)),

		document.Value("spec.analysis.webhooks[].name", ownName),
		document.Value("spec.analysis.webhooks[].url", webURL),
		document.Value("spec.analysis.webhooks[].retries", within(0, math.MaxInt)),
		document.Value("spec.analysis.webhooks[].metadata", plainKeys),
		document.Value("spec.analysis.webhooks[].secretRef.name", document.CheckName),
		document.Value("spec.analysis.webhooks[].certSecretRef.name", document.CheckName),
		document.Value("spec.analysis.webhooks[].deadline", notNegative),
		failIf("spec.analysis.webhooks[]", "deadline", func(h *Hook) bool { return h.Deadline != 0 && !h.Type.confirms() },
			"is for the types %s, %s and %s: remove it", HookConfirmRollout, HookConfirmTrafficIncrease, HookConfirmPromotion),

		document.Value("spec.analysis.alerts[].name", ownName),
		document.Value("spec.analysis.alerts[].providerRef.name", document.CheckName),
		document.Value("spec.analysis.alerts[].providerRef.namespace", optional(document.CheckNamespace)),
	},
	broken: {
		document.Value("spec.progressDeadlineSeconds", within(0, maxDeadlineSeconds)),
		document.Value("spec.metricsServer", optional(webURL)),
		document.Value("spec.analysis.interval", notNegative),
		document.Value("spec.analysis.threshold", within(0, math.MaxInt)),
		document.Value("spec.analysis.maxWeight", within(0, 100)),
		document.Value("spec.analysis.stepWeight", within(0, 100)),
		document.Value("spec.analysis.stepWeightPromotion", within(0, 100)),
		document.Value("spec.analysis.mirrorWeight", within(0, 100)),
		document.Value("spec.analysis.iterations", within(0, math.MaxInt)),
		document.Value("spec.analysis.primaryReadyThreshold", within(0, 100)),
		document.Value("spec.analysis.canaryReadyThreshold", within(0, 100)),
		document.Related("", "spec.analysis.stepWeight", stepBelowMax),
		document.Related("", "spec.analysis.stepWeights", stepsRise),
		failIf("", "spec.analysis", func(c *Canary) bool {
			a := &c.Spec.Analysis
			return !c.Spec.SkipAnalysis && a.StepWeight == 0 && len(a.StepWeights) == 0 && a.Iterations == 0
		}, "has neither stepWeight, stepWeights nor iterations, so that it would never end: set one of them"),
		document.Related("", "spec.analysis.webhooks", timeoutsBelowInterval),
		document.Value("spec.analysis.match[].headers", checkHeaders),

		document.Value("spec.analysis.metrics[].interval", notNegative),
		failIf("spec.analysis.metrics[]", "", func(m *Metric) bool { return m.Query == "" && m.TemplateRef == nil && !m.Builtin() },
			"has no query and no templateRef, and is neither %s nor %s: add one", SuccessRate, RequestDuration),
		failIf("spec.analysis.metrics[]", "thresholdRange", func(m *Metric) bool { return m.ThresholdRange == nil && m.Threshold == nil },
			"is missing, so that every value would pass: set min, max or both"),
		document.Value("spec.analysis.metrics[].thresholdRange", checkRange),
		failIf("spec.analysis.metrics[]", "threshold", func(m *Metric) bool { return m.Threshold != nil && math.IsNaN(*m.Threshold) },
			"is no number"),

		document.Related("spec.analysis.webhooks[]", "type", func(h *Hook) error { return oneOf(HookTypes()...)(h.Kind()) }),
		document.Value("spec.analysis.webhooks[].timeout", notNegative),
		document.Value("spec.analysis.alerts[].severity", oneOf("", Info, Warn, Error)),
	},
	advice: {
		failIf("spec.analysis", "interval", func(a *Settings) bool { return a.Interval > 0 && a.Interval < Duration(MinInterval) },
			"is raised to %s, the shortest", MinInterval),
		failIf("spec.analysis", "stepWeight", func(a *Settings) bool { return a.Iterations > 0 && a.StepWeight != 0 }, "has no effect: iterations is set"),
		failIf("spec.analysis", "maxWeight", func(a *Settings) bool { return a.Iterations > 0 && a.MaxWeight != 0 }, "has no effect: iterations is set"),
		failIf("spec.analysis", "stepWeights", func(a *Settings) bool { return a.Iterations > 0 && len(a.StepWeights) > 0 }, "has no effect: iterations is set"),
		failIf("spec.analysis", "stepWeights", func(a *Settings) bool { return a.StepWeight > 0 && len(a.StepWeights) > 0 }, "has no effect: stepWeight is set"),
		failIf("spec.analysis", "mirror", func(a *Settings) bool { return a.Mirror && a.Iterations > 0 && len(a.Match) > 0 },
			"has no effect: an A/B test copies no requests"),
		failIf("spec.analysis", "mirrorWeight", func(a *Settings) bool { return a.MirrorWeight != 0 && !a.Mirror }, "has no effect: mirror is not set"),
		failIf("spec.analysis", "primaryReadyThreshold", func(a *Settings) bool { return a.PrimaryReadyThreshold != nil },
			"has no effect: the target says when it is ready"),
		failIf("spec.analysis", "canaryReadyThreshold", func(a *Settings) bool { return a.CanaryReadyThreshold != nil },
			"has no effect: the target says when it is ready"),
		document.Related("", "spec.analysis.webhooks", retriesBelowInterval),

		failIf("spec.analysis.metrics[]", "threshold", func(m *Metric) bool { return m.Threshold != nil && m.ThresholdRange != nil },
			"has no effect: thresholdRange is set"),
		failIf("spec.analysis.metrics[]", "query", func(m *Metric) bool { return m.Query != "" && m.TemplateRef != nil }, "has no effect: templateRef is set"),
		failIf("spec.analysis.metrics[]", "templateVariables", func(m *Metric) bool {
			return len(m.TemplateVariables) > 0 && m.TemplateRef == nil && m.Query == ""
		}, "has no effect: there is no query and no templateRef"),

		failIf("spec.analysis.webhooks[]", "muteAlert", func(h *Hook) bool { return h.MuteAlert && !h.Type.confirms() },
			"has no effect: only webhooks of the types %s, %s and %s wait for an approval", HookConfirmRollout, HookConfirmTrafficIncrease, HookConfirmPromotion),
		document.Related("spec.analysis.webhooks[]", "metadata", keysOfEvents),
		document.Related("spec.analysis.webhooks[]", "url", checkURLCredentials),
		failIf("spec.analysis.webhooks[]", "certSecretRef", func(h *Hook) bool { return h.CertSecretRef != nil && strings.HasPrefix(h.URL, "http:") },
			"has no effect: url is http"),
		failIf("spec.analysis.webhooks[]", "disableTLS", func(h *Hook) bool { return h.DisableTLS && h.SecretRef != nil },
			"sends the credentials of secretRef to a server whose certificate is not verified: use certSecretRef"),
	},
}

// failIf returns a rule that is broken if is returns true; format and args are its
// error text.
func failIf[T any](at, field string, is func(*T) bool, format string, args ...any) document.Fact {
	return document.Related(at, field, func(v *T) error {
		if is(v) {
			return fmt.Errorf(format, args...)
		}
		return nil
	})
}

func stepBelowMax(c *Canary) error {
	if a := &c.Spec.Analysis; c.Strategy() == Weighted && a.StepWeight > c.MaxWeight() {
		return fmt.Errorf("is %d, more than maxWeight %d: lower it or raise maxWeight", a.StepWeight, c.MaxWeight())
	}
	return nil
}

// stepsRise returns an error unless stepWeights rise and stay within their limits.
func stepsRise(c *Canary) error {
	a := &c.Spec.Analysis
	if c.Strategy() != Weighted || a.StepWeight > 0 {
		return nil
	}
	for i, step := range a.StepWeights {
		switch {
		case step < 1 || step > 100:
			return fmt.Errorf("has the step %d: each must be from 1 to 100", step)
		case i > 0 && step <= a.StepWeights[i-1]:
			return fmt.Errorf("has the step %d after %d: each must be higher than the one before", step, a.StepWeights[i-1])
		case a.MaxWeight > 0 && step > a.MaxWeight:
			return fmt.Errorf("has the step %d, more than maxWeight %d: lower it or raise maxWeight", step, a.MaxWeight)
		}
	}
	return nil
}

// timeoutsBelowInterval checks the rule of the specification that the sum of the
// timeouts of all rollout webhooks is lower than the interval. The rule does not
// count retries.
func timeoutsBelowInterval(c *Canary) error {
	single, _, all := rolloutTime(c)
	if single < c.Interval() {
		return nil
	}
	return fmt.Errorf("the timeouts of the rollout webhooks add up to %s (%s), which must be lower than the interval of %s: "+
		"raise interval or lower the timeouts", shortDuration(single), strings.Join(all, ", "), shortDuration(c.Interval()))
}

func retriesBelowInterval(c *Canary) error {
	single, sum, _ := rolloutTime(c)
	if sum < c.Interval() || single >= c.Interval() {
		return nil
	}
	return fmt.Errorf("with their retries the rollout webhooks may take %s, which is not lower than the interval of %s: "+
		"a step may then take longer than that", shortDuration(sum), shortDuration(c.Interval()))
}

// rolloutTime returns how long all webhooks of type rollout may take, without and
// with retries, and a list of their names and timeouts.
func rolloutTime(c *Canary) (single, sum time.Duration, all []string) {
	for _, h := range c.Spec.Analysis.Webhooks {
		if h.Kind() != HookRollout {
			continue
		}
		attempts, note := time.Duration(min(max(h.Retries, 0), 1<<30)+1), ""
		single += min(h.timeout(), math.MaxInt64-single)
		sum += min(h.timeout(), (math.MaxInt64-sum)/attempts) * attempts
		if h.Timeout <= 0 {
			note = " by default"
		}
		all = append(all, document.Quote(h.Name)+" "+shortDuration(h.timeout())+note)
	}
	return single, sum, all
}

// shortDuration returns d without trailing zero units.
func shortDuration(d time.Duration) string {
	s := document.FormatDuration(d)
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}

// checkRange returns an error for a range that no value or every value is in.
func checkRange(r *Range) error {
	switch {
	case r.Min != nil && math.IsNaN(*r.Min) || r.Max != nil && math.IsNaN(*r.Max):
		return errors.New("has a bound that is no number")
	case r.Min != nil && r.Max != nil && *r.Min > *r.Max:
		return fmt.Errorf("has min %v above max %v, so that no value passes", *r.Min, *r.Max)
	case r.Min == nil && r.Max == nil:
		return errors.New("is empty, so that every value would pass: set min, max or both")
	}
	return nil
}

// HookTypes lists the types of webhooks in the order in which they are called.
func HookTypes() []HookType {
	return []HookType{
		HookConfirmRollout, HookPreRollout, HookRollout, HookConfirmTrafficIncrease,
		HookConfirmPromotion, HookPostRollout, HookRollback, HookEvent,
	}
}

// confirms reports whether the webhook is a gate.
func (t HookType) confirms() bool {
	return t == HookConfirmRollout || t == HookConfirmTrafficIncrease || t == HookConfirmPromotion
}

// keysOfEvents returns an error if the metadata has a key that each event sets.
func keysOfEvents(h *Hook) error {
	for _, key := range []string{"eventMessage", "eventType", "timestamp"} {
		if _, found := h.Metadata[key]; found && h.Type == HookEvent {
			return fmt.Errorf("has the key %s, which each event sets: rename it", key)
		}
	}
	return nil
}

// checkURLCredentials returns an error if the URL holds a password or credentials would be
// sent unencrypted.
func checkURLCredentials(h *Hook) error {
	u, err := url.Parse(h.URL)
	if err != nil {
		return nil // webURL reports it
	}
	if _, has := u.User.Password(); has {
		return errors.New("holds a password, which anyone who reads the manifest sees: use secretRef")
	}
	if u.Scheme == "http" && h.SecretRef != nil {
		return errors.New("is http, so that the credentials of secretRef go in the clear: use https")
	}
	return nil
}

// within returns a check that a number is from low to high.
func within(low, high int) func(int) error {
	return func(n int) error {
		switch {
		case n >= low && n <= high:
			return nil
		case high == math.MaxInt:
			return fmt.Errorf("is %d: it must not be negative", n)
		}
		return fmt.Errorf("is %d: it must be from %d to %d", n, low, high)
	}
}

func notNegative(d Duration) error {
	if d < 0 {
		return fmt.Errorf("is %s: it must not be negative", d)
	}
	return nil
}

// webURL returns an error unless text is a valid http or https URL.
func webURL(text string) error {
	_, err := notify.ParseURL(text)
	return err
}

// optional returns a check that accepts the empty text, and else calls check.
func optional(check func(string) error) func(string) error {
	return func(text string) error {
		if text == "" {
			return nil
		}
		return check(text)
	}
}

// ownName returns an error unless name is a valid name of a metric, webhook or alert.
func ownName(name string) error {
	if name == "" {
		return errors.New("is required")
	}
	return checkNoControl(name)
}

// checkNoControl returns an error if text has control characters.
func checkNoControl(text string) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("%s has control characters: remove them", document.Quote(text))
	}
	return nil
}

// oneOf returns a check that a word is one of words. An empty word stands for the default.
func oneOf[T ~string](words ...T) func(T) error {
	return func(word T) error {
		if slices.Contains(words, word) {
			return nil
		}
		var names []string
		for _, w := range words {
			if w != "" {
				names = append(names, string(w))
			}
		}
		return fmt.Errorf("%s is none of %s", document.Quote(string(word)), strings.Join(names, ", "))
	}
}

// plainKeys returns an error if a key of metadata or variables has control characters.
func plainKeys(m map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if err := checkNoControl(key); err != nil {
			return fmt.Errorf("the key %w", err)
		}
	}
	return nil
}

func checkHeaders(m map[string]StringMatch) error {
	if len(m) == 0 {
		return errors.New("is missing, so that every request would match: name a header and its value")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if err := checkCondition(name, m[name]); err != nil {
			return err
		}
	}
	return nil
}

// headerForm matches the name of a header (RFC 9110, token).
var headerForm = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// checkCondition returns an error unless the condition on a header is valid.
func checkCondition(name string, m StringMatch) error {
	texts := slices.DeleteFunc([]string{m.Exact, m.Prefix, m.Suffix, m.Regex}, func(text string) bool { return text == "" })
	defect := (*syntax.Error)(nil)
	_, err := syntax.Parse(m.Regex, syntax.Perl) // compiling may take long
	switch {
	case !headerForm.MatchString(name):
		return fmt.Errorf("has %s, which is no name of a header", document.Quote(name))
	case len(texts) != 1:
		return fmt.Errorf("needs one of exact, prefix, suffix and regex for %s, and has %d", name, len(texts))
	case errors.As(err, &defect):
		return fmt.Errorf("has a regex for %s that does not compile: %s", name, defect.Code)
	}
	return nil
}
