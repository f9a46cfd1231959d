package bucket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv/measure"
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
	rules, err := artifact.Ignore{Top: "*.png\n/tmp/\n!keep\n", Extra: "docs/\n*.tar.gz\n"}.Compile(context.Background(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, at := range map[string]func(int) int{"in order": func(i int) int { return i }, "in any order": func(i int) int { return order[i] }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				before := measure.Live()
				l := new(listing)
				for i := range 1_000_000 {
					if err := l.add(object(at(i))); err != nil {
						b.Fatal(err)
					}
				}
				s := selection{list: l, rules: rules, limits: limitsOf(artifact.Limits{})}
				if _, err := s.choose(context.Background()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(measure.Live()-before)/1e6, "B/key")
				runtime.KeepAlive(l)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/key")
		})
	}
}

// The bytes of a listing are bounded, whatever it lists.
func TestListingLimit(t *testing.T) {
	l := &listing{limit: 10_000}
	for i := 0; ; i++ {
		err := l.add(Object{Key: fmt.Sprint("endless/", i), ETag: "e"})
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "more than 10000 bytes of keys and ETags: narrow spec.prefix") || i < 100 {
			t.Errorf("after %d: %v", i, err)
		}
		return
	}
}

func TestSearch(t *testing.T) {
	l := new(listing)
	if l.search("a") != 0 {
		t.Error("found in nothing")
	}
	keys := []string{"a", "a-b", "a/b", "a0", "b"}
	for _, key := range keys {
		l.objects = append(l.objects, listedObject{Object: Object{Key: key}})
	}
	for _, key := range append(keys, "", "a/", "a/c", "z") {
		want, _ := slices.BinarySearch(keys, key)
		if got := l.search(key); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
}

// The rules in one pass and one by one say the same.
func FuzzIsPath(f *testing.F) {
	for _, key := range []string{"", ".", "..", "a/b", "a//b", "/", "a\\b", "\u0085", "\u00a0", "\xc2", "a\x7f", strings.Repeat("p", 256), "é/.", "./a"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		problem := ""
		for _, r := range keyRules {
			if problem == "" && r.broken(key) {
				problem = r.problem
			}
		}
		if got := problemOf(key); got != problem || isPath(key) != (problem == "") {
			t.Errorf("%q: %q, want %q", key, got, problem)
		}
	})
}
