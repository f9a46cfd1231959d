package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
)

// The metrics that need no query: the provider of the canary has one.
const (
	SuccessRate     = "request-success-rate" // percent of requests without a server error, 0 to 100
	RequestDuration = "request-duration"     // milliseconds, the 99th percentile
)

// What a metric without values decides: [Metric.NoValues].
const (
	NoValuesFail         = "fail"         // a failed check; the default
	NoValuesPass         = "pass"         // as a value within the range
	NoValuesInconclusive = "inconclusive" // neither: the weight is kept, and nothing is counted
)

// Builtin reports whether the metric is one of those that need no query.
func (m Metric) Builtin() bool {
	return m.Query == "" && m.TemplateRef == nil && (m.Name == SuccessRate || m.Name == RequestDuration)
}

// Judge returns what the result of a query decides: Pass, Halt or, when it is
// too early for values and for a metric without values whose noValues is
// inconclusive, Pause. The error says
// why; it is nil when the value is within the range of the metric, and not nil
// with Pass when there is no value and noValues is pass.
//
// Value and err are those of [Metrics]. An error is a failed check. No value
// is one by default, told in the words of the specification: "no values found
// for metric request-success-rate". NaN is no value; an infinity is one, and
// is out of every range with a bound on its side.
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
	// The bounds of a whole value are whole as well: their fractions do not count.
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
	for _, said := range []string{ErrNoValues.Error(), " for metric " + m.Name} { // what is said anyway
		cause = strings.TrimPrefix(cause, said)
	}
	if cause = strings.TrimPrefix(cause, ": "); cause != "" {
		cause = ": " + cause
	}
	reason := &noValues{err, fmt.Sprintf("no values found for metric %s%s: %s probably gets no traffic%s", m.Name, provider, c.target(), cause)}
	switch m.NoValues {
	case NoValuesPass:
		return Pass, reason
	case NoValuesInconclusive:
		return Pause, reason
	}
	return Halt, reason
}

// A noValues is an error that wraps ErrNoValues, in the words of the specification.
type noValues struct {
	err  error
	text string
}

func (e *noValues) Error() string { return e.text }
func (e *noValues) Unwrap() error { return e.err }

// Bounds returns what the value must be in: thresholdRange or else what the
// older threshold says, the least success rate, the most of anything else.
func (m Metric) Bounds() Range {
	switch {
	case m.ThresholdRange != nil:
		return *m.ThresholdRange
	case m.Builtin() && m.Name == SuccessRate:
		return Range{Min: m.Threshold}
	}
	return Range{Max: m.Threshold}
}

// target names what is rolled out, as TARGET.NAMESPACE.
func (c *Canary) target() string {
	return cmp.Or(c.Spec.TargetRef.Name, c.Metadata.Name) + "." + c.Namespace()
}
