package source

import (
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/document"
)

// A Duration is a time span written as an unsigned sequence of decimal
// numbers with the units ms, s, m and h, for example 1m30s. A timeout is
// written without h (reference, section 0).
type Duration time.Duration

// ParseDuration reads a duration as an API server accepts it.
func ParseDuration(text string) (Duration, error) {
	d, err := document.ParseDuration(text)
	return Duration(d), err
}

// String returns d in a form that [ParseDuration] accepts when d is not negative.
func (d Duration) String() string { return document.FormatDuration(time.Duration(d)) }

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
