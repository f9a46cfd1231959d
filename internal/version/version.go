// Package version finds the highest of many versions.
package version

import (
	"strings"

	"github.com/Masterminds/semver/v3"
)

// A Highest collects the added items with the highest version within a range. There are
// several if versions differ only in build metadata or a leading v; the caller chooses
// among them.
type Highest[T any] struct {
	Range *semver.Constraints
	Found []T

	best *semver.Version
}

// Add adds item, whose version is text: three numeric parts, with or without a leading v.
// It ignores items with any other text.
func (h *Highest[T]) Add(item T, text string) {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(text, "v"))
	if err != nil || !h.Range.Check(v) {
		return
	}
	switch {
	case h.best == nil || v.GreaterThan(h.best):
		h.best, h.Found = v, []T{item}
	case v.Equal(h.best):
		h.Found = append(h.Found, item)
	}
}
