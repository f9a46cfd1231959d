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

// WithoutRace skips a test under the race detector: it shows a bound by a large input that
// one goroutine reads, in which there is no race to be found.
func WithoutRace(t testing.TB) {
	t.Helper()
	if Race() {
		t.Skip("one goroutine reads a large input: run it without the race detector")
	}
}
