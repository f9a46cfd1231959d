package document

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

var (
	durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`)
	timeoutForm  = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`)
)

// ParseDuration reads a time span as an API server accepts it: an unsigned
// sequence of decimal numbers with the units ms, s, m and h.
func ParseDuration(text string) (time.Duration, error) {
	return parseSpan(text, durationForm, "ms, s, m and h")
}

// ParseTimeout reads a time span that is written without the unit h.
func ParseTimeout(text string) (time.Duration, error) {
	return parseSpan(text, timeoutForm, "ms, s and m")
}

func parseSpan(text string, form *regexp.Regexp, units string) (time.Duration, error) {
	if !form.MatchString(text) {
		return 0, fmt.Errorf("%s is no duration: write unsigned numbers with the units %s, such as 1m30s", Quote(text), units)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s is too long: the limit is 292 years", Quote(text))
	}
	return d, nil
}

// FormatDuration returns d in a form that [ParseDuration] accepts when d is not negative.
func FormatDuration(d time.Duration) string {
	if d <= -time.Millisecond || d == 0 || d >= time.Millisecond {
		return d.String()
	}
	// The units µs and ns of the Go form are not in the API's.
	sign, n := "", d
	if d < 0 {
		sign, n = "-", -d
	}
	return sign + "0." + strings.TrimRight(fmt.Sprintf("%06d", int64(n)), "0") + "ms"
}
