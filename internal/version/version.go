// Package version finds the highest of many versions.
package version

import (
	"strings"

	"github.com/Masterminds/semver/v3"
)

// A Highest collects, of all that it is shown, what has the highest version
// within a range. There are several when versions differ only in build metadata
// or a leading v: which of them is meant is for the caller to say.
type Highest[T any] struct {
	Range *semver.Constraints
	Found []T

	best *semver.Version
}

// Add shows item, of the version that text is: three numeric parts, and with
// or without a leading v. Other texts are no versions, and are passed over.
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
