package bucket

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/headgate-io/headgate/artifact"
)

// million returns as many objects as a large bucket holds: keys of 40 bytes.
func million() func(i int) Object {
	const tag = "0123456789abcdef0123456789abcdef"
	keys := make([]byte, 0, 40_000_000)
	for i := range 1_000_000 {
		keys = fmt.Appendf(keys, "data/%03d/2026-11-21/part-%015d.dat", i/1000, i)
	}
	size := len(keys) / 1_000_000
	text := string(keys)
	return func(i int) Object { return Object{Key: text[i*size : (i+1)*size], ETag: tag, Size: 4096} }
}

func BenchmarkListing(b *testing.B) {
	object, order := million(), rand.Perm(1_000_000)
	rules, err := artifact.Ignore{Top: "*.png\n/tmp/\n!keep\n", Extra: "docs/\n*.tar.gz\n"}.Compile(nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, at := range map[string]func(int) int{"in order": func(i int) int { return i }, "in any order": func(i int) int { return order[i] }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var before, after runtime.MemStats
			for b.Loop() {
				runtime.GC()
				runtime.ReadMemStats(&before)
				l := new(listing)
				for i := range 1_000_000 {
					if err := l.add(object(at(i))); err != nil {
						b.Fatal(err)
					}
				}
				s := sieve{list: l, rules: rules, limits: limitsOf(artifact.Limits{})}
				if _, err := s.sift(); err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "B/key")
				runtime.KeepAlive(l)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/key")
		})
	}
}
