package measure

import (
	"runtime/debug"
	"slices"
	"testing"
)

// Race reports whether the race detector is on, which makes computation about ten
// times slower.
func Race() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// WithoutRace skips a test under the race detector. In such a test one goroutine at a time computes
// much, such as what it makes of a hostile document: there is no race to be found.
func WithoutRace(t testing.TB) {
	t.Helper()
	if Race() {
		t.Skip("one goroutine at a time computes: run it without the race detector")
	}
}
