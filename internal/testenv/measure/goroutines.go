package measure

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// WaitGone waits until no goroutine has one of the names in its stack. A name is
// part of the name of a function, including its package. WaitGone fails the test
// after two minutes; idle connections of [net/http.DefaultTransport] live for 90 s.
func WaitGone(t testing.TB, names ...string) {
	t.Helper()
	again, end := time.NewTicker(time.Millisecond), time.After(2*time.Minute)
	defer again.Stop()
	for {
		left := filterStacks(stacks(), names)
		if left == "" {
			return
		}
		select {
		case <-again.C:
		case <-end:
			t.Fatalf("goroutines are left:\n%s", left)
		}
	}
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	for buf := make([]byte, 1<<20); ; buf = make([]byte, 2*len(buf)) {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return string(buf[:n])
		}
	}
}

// filterStacks returns the stacks that contain one of the names.
func filterStacks(stacks string, names []string) string {
	var found []string
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		for _, name := range names {
			if strings.Contains(stack, name) {
				found = append(found, stack)
				break
			}
		}
	}
	return strings.Join(found, "\n\n")
}
