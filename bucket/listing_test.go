package bucket

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
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
				s := sieve{list: l, rules: rules, limits: limitsOf(artifact.Limits{})}
				if _, err := s.sift(context.Background()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(measure.Live()-before)/1e6, "B/key")
				runtime.KeepAlive(l)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/key")
		})
	}
}

// What a listing gives back is what was added, whatever it holds.
func TestListingRoundTrip(t *testing.T) {
	tags := []string{"", "0", "00", "0a", "0A", "abc", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef-12", "0x8DC", "\xff", strings.Repeat("ab", 512)}
	sizes := []int64{0, 1, 127, 128, 1 << 40, math.MaxInt64}
	var objects []Object
	for i := range 50_000 {
		objects = append(objects, Object{
			Key:     strings.Repeat("k", i%300) + fmt.Sprintf("%06d", i),
			ETag:    tags[i%len(tags)],
			Size:    sizes[i%len(sizes)],
			Version: strings.Repeat("v", i%3),
		})
	}
	objects = append(objects, Object{Key: strings.Repeat("z", maxKey)}, Object{Key: "\xff", ETag: "e"})
	l := new(listing)
	for _, o := range objects {
		if err := l.add(o); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.blocks) < 5 {
		t.Errorf("%d blocks", len(l.blocks))
	}
	same(t, l, objects)
	l.sort()
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	same(t, l, objects)
}

// same checks that l holds objects, in this order.
func same(t *testing.T, l *listing, objects []Object) {
	t.Helper()
	if l.len() != len(objects) {
		t.Fatalf("%d objects instead of %d", l.len(), len(objects))
	}
	for i, want := range objects {
		if got := l.at(i); got != want || l.key(i) != want.Key || !l.kept(i) {
			t.Fatalf("object %d is %+v, want %+v", i, got, want)
		}
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

// A key costs little beyond itself, while it is listed too: blocks are not copied.
func TestListingMemory(t *testing.T) {
	const keys, size = 200_000, 40
	l := new(listing)
	key := []byte(strings.Repeat("k", size))
	for i := range keys {
		copy(key, fmt.Sprintf("%08d", i))
		l.append(Object{Key: string(key), ETag: "0123456789abcdef0123456789abcdef", Size: 4096})
	}
	held := len(l.blocks)*maxBlock + l.last.Cap() + 4*cap(l.index)
	if each := held / keys; each > size+40 {
		t.Errorf("%d bytes a key of %d", each, size)
	}
}

func TestSearch(t *testing.T) {
	l := new(listing)
	if l.search("a") != 0 {
		t.Error("found in nothing")
	}
	keys := []string{"a", "a-b", "a/b", "a0", "b"}
	for _, key := range keys {
		l.append(Object{Key: key})
	}
	for _, key := range append(keys, "", "a/", "a/c", "z") {
		want, _ := slices.BinarySearch(keys, key)
		if got := l.search(key); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
}

// FuzzListing checks that a listing is the sorted list of what was added.
func FuzzListing(f *testing.F) {
	f.Add("b\x00a\x00c", "0a", "v", int64(1))
	f.Add("a\x00a/b\x00a-b", "0A", "", int64(1)<<62)
	f.Fuzz(func(t *testing.T, keys, tag, version string, size int64) {
		l, list := new(listing), []Object(nil)
		for i, key := range strings.Split(keys, "\x00") {
			o := Object{Key: key, ETag: strings.Repeat(tag, i%3), Size: size >> (i % 60), Version: version}
			if l.add(o) == nil {
				list = append(list, o)
			}
		}
		l.sort()
		slices.SortFunc(list, func(a, b Object) int {
			return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.ETag, b.ETag), cmp.Compare(a.Size, b.Size))
		})
		var got []Object
		for i := range l.len() {
			got = append(got, l.at(i))
			if i > 0 && l.key(i-1) > l.key(i) {
				t.Errorf("%q before %q", l.key(i-1), l.key(i))
			}
			if at := l.search(l.key(i)); l.key(at) != l.key(i) || at > i {
				t.Errorf("%q is at %d, found at %d", l.key(i), i, at)
			}
		}
		slices.SortFunc(got, func(a, b Object) int {
			return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.ETag, b.ETag), cmp.Compare(a.Size, b.Size))
		})
		if !reflect.DeepEqual(got, list) {
			t.Errorf("%+v, want %+v", got, list)
		}
	})
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
