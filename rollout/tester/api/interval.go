package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const maxInterval = 365 * 24 * time.Hour

// ParseInterval reads a time span of a request: seconds as a bare number, or a
// duration such as 1m30s; positive, at most 365 days. Empty is fallback.
func ParseInterval(text string, fallback time.Duration) (time.Duration, error) {
	if text == "" {
		return fallback, nil
	}
	shown := text
	if len(shown) > 40 {
		shown = shown[:40] + "…"
	}
	seconds := text
	if strings.Trim(text, "0123456789.") == "" {
		seconds += "s"
	}
	d, err := time.ParseDuration(seconds)
	switch {
	case err != nil && strings.Trim(text, "0123456789") == "": // it overflows
		d = maxInterval + 1
	case err != nil:
		return 0, fmt.Errorf("%s is no time span: want seconds such as 90, or a duration such as 1m30s", strconv.QuoteToASCII(shown))
	}
	if d <= 0 || d > maxInterval {
		return 0, fmt.Errorf("%s is out of range: want more than 0 and at most 365 days", strconv.QuoteToASCII(shown))
	}
	return d, nil
}
