//go:build unix

package job_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

// BenchmarkStart measures the time until the first byte of output of a shell,
// in a process with a heap of half a gigabyte.
func BenchmarkStart(b *testing.B) {
	ballast := make([]byte, 512<<20)
	for i := range ballast {
		ballast[i] = 1
	}
	var first []time.Duration
	for b.Loop() {
		began := time.Now()
		out := writer(func() { first = append(first, time.Since(began)) })
		if err := (job.Job{Args: []string{"/bin/sh", "-c", "echo"}, Out: out}).Run(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(first)
	b.ReportMetric(float64(first[len(first)/2].Microseconds()), "µs/median")
	_ = ballast[0]
}

type writer func()

func (w writer) Write(b []byte) (int, error) { w(); return len(b), nil }
