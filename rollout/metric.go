package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
)

// The metrics that need no query, because each provider defines one.
const (
	SuccessRate     = "request-success-rate" // percent of requests without a server error, 0 to 100
	RequestDuration = "request-duration"     // milliseconds, the 99th percentile
)

// The values of [Metric.NoValues], which says what a metric without values decides.
const (
	NoValuesFail         = "fail"         // a failed check; the default
	NoValuesPass         = "pass"         // the same as a value within the range
	NoValuesInconclusive = "inconclusive" // keep the weight and count nothing
)

// Builtin reports whether the metric is one of those that need no query.
func (m Metric) Builtin() bool {
	return m.Query == "" && m.TemplateRef == nil && (m.Name == SuccessRate || m.Name == RequestDuration)
}

// Judge returns the verdict on the result of a query; value and err are the
// results of [Metrics].Query. The verdict is Pause if err wraps [ErrTooEarly], or
// if there is no value and noValues is inconclusive; otherwise it is Pass or Halt.
// The error gives the reason. It is nil if the value is within the range of the
// metric, and not nil with Pass if there is no value and noValues is pass.
//
// An error of the query is a failed check. A missing value is one by default, with
// the text of the specification: "no values found for metric
// request-success-rate". NaN counts as a missing value. An infinity is a value,
// outside every range with a bound on its side.
func (m Metric) Judge(c *Canary, value float64, err error) (Verdict, error) {
	switch {
	case err == nil && math.IsNaN(value):
		return m.judgeNone(c, fmt.Errorf("%w: the value is NaN", ErrNoValues))
	case errors.Is(err, ErrTooEarly):
		return Pause, fmt.Errorf("metric %s of %s: %w", m.Name, c.target(), err)
	case errors.Is(err, ErrNoValues):
		return m.judgeNone(c, err)
	case err != nil:
		return Halt, fmt.Errorf("metric %s of %s: %w", m.Name, c.target(), err)
	}
	// A duration is compared in whole milliseconds, so fractions of its bounds do not count.
	within, round := m.Bounds(), func(v float64) float64 { return v }
	if m.Builtin() && m.Name == RequestDuration {
		round = math.Trunc
	}
	value = round(value)
	side := ""
	if within.Min != nil && !(value >= round(*within.Min)) {
		side = fmt.Sprintf("below %v", round(*within.Min))
	} else if within.Max != nil && !(value <= round(*within.Max)) {
		side = fmt.Sprintf("above %v", round(*within.Max))
	}
	if side != "" {
		return Halt, fmt.Errorf("metric %s of %s is %v, %s", m.Name, c.target(), value, side)
	}
	return Pass, nil
}

// judgeNone judges a query without a value.
func (m Metric) judgeNone(c *Canary, err error) (Verdict, error) {
	provider := ""
	if m.Builtin() && c.Spec.Provider != "" {
		provider = " of provider " + c.Spec.Provider
	}
	cause := err.Error()
	for _, prefix := range []string{ErrNoValues.Error(), " for metric " + m.Name} { // the reason below repeats these
		cause = strings.TrimPrefix(cause, prefix)
	}
	if cause = strings.TrimPrefix(cause, ": "); cause != "" {
		cause = ": " + cause
	}
	reason := &noValuesError{err, fmt.Sprintf("no values found for metric %s%s: %s probably gets no traffic%s", m.Name, provider, c.target(), cause)}
	switch m.NoValues {
	case NoValuesPass:
		return Pass, reason
	case NoValuesInconclusive:
		return Pause, reason
	}
	return Halt, reason
}

// A noValuesError is an error that wraps ErrNoValues, with the text of the specification.
type noValuesError struct {
	err  error
	text string
}

func (e *noValuesError) Error() string { return e.text }
func (e *noValuesError) Unwrap() error { return e.err }

// Bounds returns the range that the value must be in: thresholdRange, or else the
// older threshold, which is the minimum of the success rate and the maximum of
// any other metric.
func (m Metric) Bounds() Range {
	switch {
	case m.ThresholdRange != nil:
		return *m.ThresholdRange
	case m.Builtin() && m.Name == SuccessRate:
		return Range{Min: m.Threshold}
	}
	return Range{Max: m.Threshold}
}

// target returns the name of the target as TARGET.NAMESPACE.
func (c *Canary) target() string {
	return cmp.Or(c.Spec.TargetRef.Name, c.Metadata.Name) + "." + c.Namespace()
}
