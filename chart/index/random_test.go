package index_test

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/index"
)

// The documents that TestRandomIndexes reads: the same ones for the same seed.
var (
	documents = flag.Int("documents", 5000/thrift, "how many random indexes are read")
	seed      = flag.Uint64("seed", 1, "of the random indexes")
)

// TestRandomIndexes reads random indexes in YAML and JSON, of which many are
// broken. What is valid for the YAML library must say the same when versions of
// other charts are passed over, in pieces of any size.
func TestRandomIndexes(t *testing.T) {
	valid, scanned := 0, 0
	for n := range *documents {
		g := &generator{Rand: rand.New(rand.NewPCG(*seed, uint64(n)))}
		text, padded := g.index()
		name := g.one("podinfo", "podinfo", "podinfo", "podinfo", "podinfo", "a", "b", "podinfo-2", "pod info")
		want, err := index.Whole(strings.NewReader(text), name)
		if err != nil {
			continue // what is passed over need not be valid
		}
		valid++
		if index.Scanned(strings.NewReader(text), name) {
			scanned++
		}
		for _, size := range g.sizes(padded) {
			got, err := all(index.Entries(pieces{strings.NewReader(text), size}, name))
			if oddBreaks(text) {
				got, want = withoutLines(got), withoutLines(want)
			}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("document %d of seed %d: versions of %q in pieces of %d bytes: %s, %v\nwant %s\nof %q", n, *seed, name, size, short(got), err, short(want), cut(text))
			}
		}
	}
	t.Logf("of %d documents %d are valid; scanners read %d of them", *documents, valid, scanned)
	if *documents >= 1000 && (valid < *documents/4 || scanned < *documents/14) {
		t.Error("too few documents are worth reading")
	}
}

// sizes are those of pieces in which a document is read. Small ones take long.
func (g *generator) sizes(padded bool) []int {
	const buffer = 64 << 10
	large := []int{1 << 20, buffer - 1 + g.IntN(3)}
	if padded {
		return append(large, buffer/4+g.IntN(3))
	}
	return append(large, 1, []int{2, 7, 13, 4096}[g.IntN(4)])
}

// pieces is a reader of at most so many bytes at a time.
type pieces struct {
	*strings.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }

// cut shortens a text that is padded.
func cut(text string) string {
	if len(text) > 6000 {
		return text[:3000] + " … " + text[len(text)-3000:]
	}
	return text
}

// A generator writes random indexes: in the styles in which they are found, in
// others, and with what is likely to be misread.
type generator struct {
	*rand.Rand
	anchors []string // that were written, for aliases
	compact bool     // JSON without spaces
	tame    bool     // without anchors, tags and flow style
}

// index writes an index. It is padded when it is larger than the buffers of
// readers.
func (g *generator) index() (text string, padded bool) {
	json := g.rarely(3)
	g.tame = !g.rarely(3)
	if json {
		text = g.json()
	} else {
		text = g.yaml()
	}
	if g.rarely(3) {
		text = g.mutate(text)
	}
	if g.rarely(6) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if padded = g.rarely(60); padded {
		text = g.pad(text, json)
	}
	return text, padded
}

// rarely is true once in n times.
func (g *generator) rarely(n int) bool { return g.IntN(n) == 0 }

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

// sometimes is one of them once in n times, and otherwise nothing.
func (g *generator) sometimes(n int, of ...string) string {
	if g.rarely(n) {
		return g.one(of...)
	}
	return ""
}

// repeat joins from least to most texts.
func (g *generator) repeat(least, most int, text func() string) string {
	s := ""
	for range least + g.IntN(most-least+1) {
		s += text()
	}
	return s
}

// mutate changes up to three places.
func (g *generator) mutate(text string) string {
	b := []byte(text)
	for range g.IntN(4) {
		if len(b) == 0 {
			break
		}
		at, from := g.IntN(len(b)), g.IntN(len(b))
		switch g.IntN(5) {
		case 0:
			b = slices.Delete(b, at, min(len(b), at+1+g.IntN(4)))
		case 1:
			b = slices.Insert(b, at, []byte(g.one(" ", "\n", "\"", "'", "#", ":", "- ", "\t", "[", "]", "{", "}", "|", "\r", "\\", ", ", "&a ", "*a ", ": "))...)
		case 2:
			b = slices.Insert(b, at, slices.Clone(b[from:min(len(b), from+g.IntN(30))])...)
		case 3:
			b[at] = b[from]
		case 4:
			lines := strings.SplitAfter(string(b), "\n")
			lines = slices.Insert(lines, g.IntN(len(lines)), lines[g.IntN(len(lines))])
			b = []byte(strings.Join(lines, ""))
		}
	}
	return string(b)
}

// pad writes comments or spaces into a text, for some of it to be at the end of
// a buffer.
func (g *generator) pad(text string, json bool) string {
	size := (32 << 10) * (1 + g.IntN(4))
	if json {
		if at := strings.IndexAny(text[g.IntN(len(text)+1):], ",{["); at >= 0 {
			return text[:at+1] + strings.Repeat(" ", max(0, size-g.IntN(len(text)+3))) + text[at+1:]
		}
		return text
	}
	lines := strings.SplitAfter(text, "\n")
	lines = slices.Insert(lines, g.IntN(len(lines)), strings.Repeat("# padding\n", max(0, size-g.IntN(len(text)+13))/10))
	return strings.Join(lines, "")
}
