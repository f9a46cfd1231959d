package run_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/run"
)

// From a request to the first instruction of its task, with a history on disk.
func BenchmarkStart(b *testing.B) {
	d, err := run.Open(run.Config{Dir: b.TempDir(), Concurrency: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Shutdown(context.Background())
	var all []time.Duration
	for i := 0; b.Loop(); i++ {
		began := make(chan time.Time)
		at := time.Now()
		if _, err := d.Start(request(fmt.Sprint(i)), task(func(context.Context, io.Writer) error { began <- time.Now(); return nil })); err != nil {
			b.Fatal(err)
		}
		all = append(all, (<-began).Sub(at))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs/median")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "µs/p99")
}

// Output through masks, tape and summaries.
func BenchmarkOutput(b *testing.B) {
	for _, secrets := range []int{0, 1, 20} {
		b.Run(fmt.Sprint(secrets, " secrets"), func(b *testing.B) {
			d, err := run.Open(run.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Shutdown(context.Background())
			r := request("a")
			for i := range secrets {
				r.Secrets = append(r.Secrets, fmt.Sprintf("%dsecret/of some+length", i))
			}
			line := bytes.Repeat([]byte("all work and no play makes jack a dull boy, 10 times 20 times\n"), 500)
			b.SetBytes(int64(len(line)))
			d.Wait(context.Background(), r, task(func(_ context.Context, out io.Writer) error {
				for b.Loop() {
					out.Write(line)
				}
				return nil
			}))
		})
	}
}
