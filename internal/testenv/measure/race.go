package measure

import (
	"runtime/debug"
	"slices"
	"testing"
)

// RaceEnabled reports whether the race detector is on, which makes computation about ten
// times slower.
func RaceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// WithoutRace skips a test under the race detector. It is for tests in which one goroutine at a time
// computes a lot, for example while it parses a hostile document: such a test has no races to find.
func WithoutRace(t testing.TB) {
	t.Helper()
	if RaceEnabled() {
		t.Skip("one goroutine at a time computes: run it without the race detector")
	}
}
