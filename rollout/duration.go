package rollout

import (
	"time"

	"github.com/headgate-io/headgate/internal/document"
)

// A Duration is a time span, written as an unsigned sequence of decimal
// numbers with the units ms, s, m and h: 1m30s.
type Duration time.Duration

// String returns d in the form of manifests, when it is not negative.
func (d Duration) String() string { return document.FormatDuration(time.Duration(d)) }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	span, err := document.ParseDuration(string(text))
	*d = Duration(span)
	return err
}
