package sourcetest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"time"
)

// NoLeaks calls do and waits until no goroutine that was started by it runs
// code outside the standard library, which keeps idle connections for some
// time. It fails the test when that takes a minute.
func NoLeaks(t TB, do func(ctx context.Context)) {
	t.Helper()
	label := fmt.Sprintf("%s %p", t.Name(), &do)
	pprof.Do(t.Context(), pprof.Labels(labelled, label), do)
	if left := goroutines(label, time.After(time.Minute)); left != "" {
		t.Errorf("goroutines are left behind:\n%s", left)
	}
}

// labelled is the key of the label that goroutines are known by: they have
// that of the one that started them.
const labelled = "sourcetest"

// goroutines waits until no goroutine with the label runs code outside the
// standard library. It returns the stacks of those that still do at the deadline.
func goroutines(label string, deadline <-chan time.Time) string {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		left := stacks(label)
		if left == "" {
			return ""
		}
		select {
		case <-again.C:
		case <-deadline:
			return left
		}
	}
}

// stacks returns those with the label that have code outside the standard library.
func stacks(label string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	var left strings.Builder
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q", label)) && strings.Contains(stack, "\t") && foreign(stack) {
			left.WriteString(stack + "\n\n")
		}
	}
	return left.String()
}

// foreign reports whether a frame of the stack is outside the standard
// library, whose packages have no dot in the first element of their path.
func foreign(stack string) bool {
	for line := range strings.Lines(stack) {
		fields := strings.Split(line, "\t")
		if len(fields) < 3 {
			continue
		}
		first, _, nested := strings.Cut(fields[2], "/")
		if nested && strings.Contains(first, ".") {
			return true
		}
	}
	return false
}
