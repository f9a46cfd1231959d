package source

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Duration is a time span written as an unsigned sequence of decimal
// numbers with the units ms, s, m and h, for example 1m30s. A timeout is
// written without h (reference, section 0).
type Duration time.Duration

var (
	durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`)
	timeoutForm  = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`)
)

// ParseDuration reads a duration as an API server accepts it.
func ParseDuration(text string) (Duration, error) {
	return parseSpan(text, durationForm, "ms, s, m and h")
}

func parseTimeout(text string) (Duration, error) {
	return parseSpan(text, timeoutForm, "ms, s and m")
}

func parseSpan(text string, form *regexp.Regexp, units string) (Duration, error) {
	if !form.MatchString(text) {
		return 0, fmt.Errorf("%s is no duration: write unsigned numbers with the units %s, such as 1m30s", quote(text), units)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s is too long: the limit is 292 years", quote(text))
	}
	return Duration(d), nil
}

// String returns d in a form that [ParseDuration] accepts when d is not negative.
func (d Duration) String() string {
	if d <= -Duration(time.Millisecond) || d == 0 || d >= Duration(time.Millisecond) {
		return time.Duration(d).String()
	}
	// The units µs and ns of the Go form are not in the API's.
	sign, n := "", d
	if d < 0 {
		sign, n = "-", -d
	}
	return sign + "0." + strings.TrimRight(fmt.Sprintf("%06d", int64(n)), "0") + "ms"
}

// timeout returns d without the unit h.
func (d Duration) timeout() string {
	if d < Duration(time.Hour) {
		return d.String()
	}
	minutes := int64(d / Duration(time.Minute))
	return strconv.FormatInt(minutes, 10) + "m" + (d % Duration(time.Minute)).String()
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}
