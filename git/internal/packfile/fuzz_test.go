package packfile_test

import (
	"bytes"
	"compress/flate"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// fuzzLimits keep an input from taking long.
var fuzzLimits = packfile.Limits{ObjectBytes: 1 << 20, InflatedBytes: 4 << 20, Objects: 1000}

// FuzzRead reads any bytes as a pack, with and without a right trailer.
func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add(newBuilder(3, 0).sum())
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, (&builder{*bytes.NewBuffer(bytes.Clone(data))}).sum()} {
			p, err := packfile.Read(context.Background(), bytes.NewReader(data), packfile.Options{Limits: fuzzLimits})
			if err != nil {
				continue
			}
			if p.Size() != int64(len(data)) {
				t.Errorf("size %d of %d bytes", p.Size(), len(data))
			}
			p.Close()
		}
	})
}

// FuzzDelta applies any delta to any base, and compares a result with that of a
// plain implementation.
func FuzzDelta(f *testing.F) {
	f.Add("base", delta(4, 8, "\x90\x04\x90\x04"))
	f.Add("base", delta(4, 6, "\x03abc\x91\x01\x03"))
	f.Add(strings.Repeat("x", 70000), delta(70000, 65536, "\x80"))
	f.Fuzz(func(t *testing.T, base, d string) {
		b := newBuilder(2, 2)
		at := b.add(3, base)
		b.add(6, d, distance(b.Len()-at)...)
		p, err := packfile.Read(context.Background(), bytes.NewReader(b.sum()), packfile.Options{Limits: fuzzLimits})
		want, ok := applied(base, d)
		if ok && len(want) > int(fuzzLimits.ObjectBytes) {
			ok = false
		}
		if (err == nil) != ok {
			t.Fatalf("got %v, want success %v", err, ok)
		}
		if err != nil {
			return
		}
		defer p.Close()
		if got, err := object.Read(p, idOf(want), object.Blob, 1<<20); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

// applied applies a delta the simple way.
func applied(base, d string) (string, bool) {
	var sizes [2]uint64
	for i := range sizes {
		for shift := 0; ; shift += 7 {
			if d == "" || shift > 55 {
				return "", false
			}
			c := d[0]
			d = d[1:]
			sizes[i] |= uint64(c&0x7f) << shift
			if c < 0x80 {
				break
			}
		}
	}
	if sizes[0] != uint64(len(base)) || sizes[1] > 1<<20 {
		return "", false
	}
	var out strings.Builder
	for d != "" {
		op := d[0]
		d = d[1:]
		if op < 0x80 {
			if op == 0 || int(op) > len(d) {
				return "", false
			}
			out.WriteString(d[:op])
			d = d[op:]
			continue
		}
		var v uint64
		for i := range 7 {
			if op>>i&1 == 1 {
				if d == "" {
					return "", false
				}
				v |= uint64(d[0]) << (8 * i)
				d = d[1:]
			}
		}
		offset, size := v&0xffffffff, v>>32
		if size == 0 {
			size = 1 << 16
		}
		if offset+size > uint64(len(base)) {
			return "", false
		}
		out.WriteString(base[offset : offset+size])
		if uint64(out.Len()) > sizes[1] {
			return "", false
		}
	}
	return out.String(), uint64(out.Len()) == sizes[1]
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
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, content := range contents {
		if got, err := object.Read(p, idOf(content), object.Blob, 1<<20); err != nil || string(got) != content {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, len(content))
		}
	}
}
