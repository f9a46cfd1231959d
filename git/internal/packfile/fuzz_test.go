package packfile_test

import (
	"bytes"
	"compress/flate"
	"context"
	"io"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// fuzzLimits keep an input from taking long.
var fuzzLimits = packfile.Limits{ObjectBytes: 1 << 20, InflatedBytes: 4 << 20, Objects: 1000}

// FuzzPack reads any bytes as a pack, with and without a right trailer, and applies
// any delta to any base, with go-git for a second opinion.
func FuzzPack(f *testing.F) {
	f.Add(sample(), "base", delta(4, 8, "\x90\x04\x90\x04"))
	f.Add(newBuilder(3, 0).sum(), "base", delta(4, 6, "\x03abc\x91\x01\x03"))
	f.Add([]byte{}, strings.Repeat("x", 70000), delta(70000, 65536, "\x80"))
	f.Fuzz(func(t *testing.T, data []byte, base, d string) {
		for _, data := range [][]byte{data, (&builder{*bytes.NewBuffer(bytes.Clone(data))}).sum()} {
			if p, err := packfile.Read(context.Background(), bytes.NewReader(data), packfile.Options{Limits: fuzzLimits}); err == nil {
				p.Close()
			}
		}
		b := newBuilder(2, 2)
		at := b.add(3, base)
		b.add(6, d, distance(b.Len()-at)...)
		p, err := packfile.Read(context.Background(), bytes.NewReader(b.sum()), packfile.Options{Limits: fuzzLimits})
		if err != nil {
			return
		}
		defer p.Close()
		want, err := gogit.PatchDelta([]byte(base), []byte(d))
		if len(d) < 4 { // which go-git refuses
			return
		}
		if got, readErr := object.Read(p, idOf(string(want)), object.Blob, 1<<20); err != nil || readErr != nil || string(got) != string(want) {
			t.Errorf("got %q, %v, go-git has %q, %v", got, readErr, want, err)
		}
	})
}

// TestInflatedPositions reads objects of all kinds of blocks, one after the
// other: what follows one begins where its stream ends.
func TestInflatedPositions(t *testing.T) {
	text := strings.Repeat("a text that repeats, and some that does not: 8761234581276345\n", 20)
	contents := []string{"", "x", text, strings.Repeat("0", 70000) + text, strings.Repeat(text, 300)}
	levels := []int{flate.NoCompression, flate.HuffmanOnly, flate.BestSpeed, flate.BestCompression}
	b := newBuilder(2, uint32(len(contents)*len(levels)))
	for _, level := range levels {
		for _, content := range contents {
			b.header(3, int64(len(content)))
			b.WriteString("\x78\x9c")
			z, _ := flate.NewWriter(b, level)
			io.WriteString(z, content)
			z.Close()
			b.WriteString("sum?")
		}
	}
	p, err := packfile.Read(t.Context(), bytes.NewReader(b.sum()), packfile.Options{})
	must(t, err)
	defer p.Close()
	for _, content := range contents {
		if got, err := object.Read(p, idOf(content), object.Blob, 1<<20); err != nil || string(got) != content {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, len(content))
		}
	}
}
