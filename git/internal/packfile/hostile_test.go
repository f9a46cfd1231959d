package packfile_test

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/objecttest"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// idOf returns the ID of a blob.
func idOf(content string) object.ID { return objecttest.ID(object.SHA1, object.Blob, content) }

// delta returns a delta with the given sizes and instructions.
func delta(base, result int64, ops string) string {
	b := binary.AppendUvarint(nil, uint64(base))
	return string(binary.AppendUvarint(b, uint64(result))) + ops
}

// readAndClose reads a pack, checks that it leaves no file open, and returns the error.
func readAndClose(t testing.TB, r io.Reader, o packfile.Options) error {
	t.Helper()
	var spools []*os.File
	o.Temp = func() (*os.File, error) {
		f, err := os.CreateTemp(t.TempDir(), "spool")
		spools = append(spools, f)
		return f, err
	}
	p, err := packfile.Read(context.Background(), r, o)
	if err == nil {
		err = p.Close()
	}
	for _, f := range spools {
		if f.Close() == nil {
			t.Error("the spool was left open")
		}
	}
	return err
}

// TestReadHostile reads packs that are named after their defects.
func TestReadHostile(t *testing.T) {
	const blob = 3
	one := func(f func(b *objecttest.Pack)) []byte {
		b := objecttest.NewPack(2, 1)
		f(b)
		return b.Sum()
	}
	// onDelta returns a pack of the blob "base" and an offset delta on it.
	onDelta := func(d string) []byte {
		b := objecttest.NewPack(2, 2)
		at := b.Add(blob, "base")
		b.Add(6, d, byte(b.Len()-at))
		return b.Sum()
	}
	absent := idOf("absent")
	for name, data := range map[string][]byte{
		"empty stream":                {},
		"not a pack":                  []byte("HTTP/1.1 200 OK\r\n\r\n<html>"),
		"version 4":                   objecttest.NewPack(4, 0).Sum(),
		"object count too large":      objecttest.NewPack(2, 1).Sum(),
		"object count too small":      func() []byte { b := objecttest.NewPack(2, 0); b.Add(blob, "x"); return b.Sum() }(),
		"wrong checksum":              append(objecttest.NewPack(2, 0).Bytes(), make([]byte, 20)...),
		"data after the end":          append(objecttest.NewPack(2, 0).Sum(), 0),
		"type 0":                      one(func(b *objecttest.Pack) { b.Add(0, "x") }),
		"type 5":                      one(func(b *objecttest.Pack) { b.Add(5, "x") }),
		"size of 70 bits":             one(func(b *objecttest.Pack) { b.WriteString("\xbf" + strings.Repeat("\xff", 10) + "\x01") }),
		"size too large":              one(func(b *objecttest.Pack) { b.Header(blob, 3); b.Deflate(strings.NewReader("xx")) }),
		"size too small":              one(func(b *objecttest.Pack) { b.Header(blob, 1); b.Deflate(strings.NewReader("xx")) }),
		"size 0 with content":         one(func(b *objecttest.Pack) { b.Header(blob, 0); b.Deflate(strings.NewReader("xx")) }),
		"match beyond the size":       one(func(b *objecttest.Pack) { b.Header(blob, 2); b.Deflate(strings.NewReader(strings.Repeat("x", 99))) }),
		"not zlib":                    one(func(b *objecttest.Pack) { b.Header(blob, 1); b.WriteString("plain") }),
		"zlib with a dictionary":      one(func(b *objecttest.Pack) { b.Header(blob, 1); b.WriteString("\x78\xbb1234") }),
		"unknown block":               one(func(b *objecttest.Pack) { b.Header(blob, 1); b.WriteString("\x78\x9c\x07") }),
		"stored length damaged":       one(func(b *objecttest.Pack) { b.Header(blob, 1); b.WriteString("\x78\x9c\x01\x01\x00\x00\x00x") }),
		"match before the beginning":  one(func(b *objecttest.Pack) { b.Header(blob, 9); b.WriteString("\x78\x9c\x4b\x04\x13\x00") }),
		"offset delta without base":   one(func(b *objecttest.Pack) { b.Add(6, delta(1, 1, "\x01x"), 5) }),
		"offset delta on itself":      one(func(b *objecttest.Pack) { b.Add(6, delta(1, 1, "\x01x"), 0) }),
		"offset of 70 bits":           one(func(b *objecttest.Pack) { b.Add(6, delta(1, 1, "\x01x"), bytes.Repeat([]byte{0xff}, 10)...) }),
		"id delta without base":       one(func(b *objecttest.Pack) { b.Add(7, delta(1, 1, "\x01x"), absent.Bytes()...) }),
		"delta with wrong base size":  onDelta(delta(5, 1, "\x01x")),
		"delta with less than it has": onDelta(delta(4, 1, "\x02xy")),
		"delta with more than it has": onDelta(delta(4, 3, "\x02xy")),
		"delta cut off in insert":     onDelta(delta(4, 3, "\x03xy")),
		"delta cut off in copy":       onDelta(delta(4, 3, "\x91")),
		"delta cut off in its sizes":  onDelta("\x84"),
		"delta of nothing":            onDelta(""),
		"delta with instruction 0":    onDelta(delta(4, 1, "\x00x")),
		"delta copy beyond the base":  onDelta(delta(4, 4, "\x91\x01\x04")),
		"delta copy too large":        onDelta(delta(4, 3, "\x90\x04")),
		"delta size of 70 bits":       onDelta(strings.Repeat("\xff", 10) + "\x01"),
		"deltas on each other": func() []byte {
			b := objecttest.NewPack(2, 2)
			b.Add(7, delta(1, 1, "\x01x"), idOf("y").Bytes()...)
			b.Add(7, delta(1, 1, "\x01y"), idOf("x").Bytes()...)
			return b.Sum()
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			err := readAndClose(t, bytes.NewReader(data), packfile.Options{})
			if !errors.Is(err, object.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
		})
	}
	err := readAndClose(t, bytes.NewReader(one(func(b *objecttest.Pack) { b.Add(7, delta(1, 1, "\x01x"), absent.Bytes()...) })), packfile.Options{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), absent.String()) {
		t.Errorf("missing base: %v does not name %v", err, absent)
	}
}

// sample returns a small pack with all kinds of objects and blocks.
func sample() []byte {
	b := objecttest.NewPack(2, 5)
	at := b.Add(3, "base")
	b.Add(6, delta(4, 8, "\x90\x04\x90\x04"), byte(b.Len()-at))
	b.Add(3, strings.Repeat("a line of text that repeats\n", 30))
	b.Add(7, delta(8, 3, "\x91\x02\x02\x01x"), idOf("basebase").Bytes()...)
	b.Add(1, "commit")
	return b.Sum()
}

func TestReadTruncated(t *testing.T) {
	packData := sample()
	must(t, readAndClose(t, bytes.NewReader(packData), packfile.Options{}))
	for n := range packData {
		err := readAndClose(t, bytes.NewReader(packData[:n]), packfile.Options{})
		if !errors.Is(err, object.ErrCorrupt) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d of %d bytes: %v", n, len(packData), err)
		}
	}
}

func TestReadDamaged(t *testing.T) {
	packData := sample()
	for i := range packData {
		for _, bit := range []int{i % 8, 7} {
			damaged := bytes.Clone(packData)
			damaged[i] ^= 1 << bit
			err := readAndClose(t, bytes.NewReader(damaged), packfile.Options{})
			var limit *packfile.LimitError
			if !errors.Is(err, object.ErrCorrupt) && !errors.As(err, &limit) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
}

// A counted reader counts what is read from it.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

const mega = 1 << 20

// bomb returns a pack of a blob of zeros, a multiple of 1 MiB, whose header declares
// the given size.
func bomb(zeros, size int64) []byte {
	b := objecttest.NewPack(2, 1)
	b.Header(3, size)
	piece := make([]byte, mega)
	z := zlib.NewWriter(b)
	z.Write(piece)
	z.Flush()
	begin := b.Len()
	z.Write(piece)
	z.Flush()
	again := bytes.Clone(b.Bytes()[begin:]) // it ends at a byte boundary and refers only to zeros before it
	b.Truncate(begin)
	for range zeros/int64(len(piece)) - 1 {
		b.Write(again)
	}
	b.WriteString("\x03\x00\x00\x00\x00\x00") // an empty last block, and a checksum that is not verified
	return b.Sum()
}

func TestReadLimits(t *testing.T) {
	gigabyte := bomb(1024*mega, 1024*mega)
	doubling := objecttest.NewPack(2, 61)
	at, size := doubling.Add(3, strings.Repeat("x", 64<<10)), int64(64<<10)
	for range 60 {
		next := doubling.Len()
		copyBase := fmt.Sprintf("\xff%s%s", le(0, 4), le(size/2, 3))
		if size >= 1<<24 {
			copyBase = fmt.Sprintf("\xff%s%s", le(0, 4), le(1<<23, 3))
		}
		n := min(size, 1<<24)
		doubling.Add(6, delta(size, 2*n, strings.Repeat(copyBase, 4)), distance(next-at)...)
		at, size = next, 2*n
	}
	for name, test := range map[string]struct {
		data   []byte
		limits packfile.Limits
		limit  string
		reads  int64
	}{
		"pack":              {sample(), packfile.Limits{PackBytes: 50}, "PackBytes", 1 << 10},
		"objects":           {objecttest.NewPack(2, 1<<31).Bytes(), packfile.Limits{}, "Objects", 1 << 10},
		"objects unlimited": {objecttest.NewPack(2, 5_000_000).Bytes(), packfile.Limits{Objects: -1}, "", 1 << 10},
		"1 GB of zeros":     {gigabyte, packfile.Limits{ObjectBytes: 512 * mega}, "ObjectBytes", 256 << 10},
		"1 GB inflated":     {gigabyte, packfile.Limits{InflatedBytes: 512 * mega}, "InflatedBytes", 256 << 10},
		"1 GB that lies":    {bomb(1024*mega, mega), packfile.Limits{ObjectBytes: 512 * mega}, "", 256 << 10},
		"huge delta": {func() []byte {
			b := objecttest.NewPack(2, 2)
			at := b.Add(3, "base")
			b.Add(6, delta(4, 1<<40, "\x90\x04"), byte(b.Len()-at))
			return b.Sum()
		}(), packfile.Limits{}, "ObjectBytes", 1 << 10},
		"doubling deltas": {doubling.Sum(), packfile.Limits{InflatedBytes: 32 << 20}, "InflatedBytes", 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			r := &counted{Reader: bytes.NewReader(test.data)}
			err := readAndClose(t, r, packfile.Options{Limits: test.limits})
			var limit *packfile.LimitError
			if errors.As(err, &limit) != (test.limit != "") || limit != nil && limit.Limit != test.limit || err == nil {
				t.Errorf("got %v, want a LimitError about %q", err, test.limit)
			}
			if limit != nil && !strings.Contains(err.Error(), "raise the limit "+test.limit) {
				t.Errorf("%v does not say what to do", err)
			}
			if r.n > test.reads {
				t.Errorf("read %d bytes before it stopped, more than %d", r.n, test.reads)
			}
		})
	}
}

// le returns n bytes of v, the least significant first.
func le(v int64, n int) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(v))[:n])
}

// distance encodes the distance to a base.
func distance(n int) []byte {
	b := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		b = append([]byte{byte(n&0x7f) | 0x80}, b...)
	}
	return b
}

// TestReadMemory reads a blob far larger than the memory it may take.
func TestReadMemory(t *testing.T) {
	data := bomb(32*mega, 32*mega)
	var err error
	used := measure.AllocatedBytes(func() { err = readAndClose(t, bytes.NewReader(data), packfile.Options{}) })
	must(t, err)
	if used > 8<<20 {
		t.Errorf("%d bytes allocated", used)
	}
}

func TestReadPassesErrorsOn(t *testing.T) {
	boom := errors.New("connection reset")
	packData := sample()
	for _, n := range []int{0, 5, 20, 40, len(packData) - 3, len(packData)} {
		r := io.MultiReader(bytes.NewReader(packData[:n]), errorReader{boom})
		if err := readAndClose(t, r, packfile.Options{}); !errors.Is(err, boom) || errors.Is(err, object.ErrCorrupt) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestReadCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	_, err := packfile.Read(ctx, bytes.NewReader(bomb(32*mega, 32*mega)), packfile.Options{
		Progress: func(int, int) { cancel(cause) },
	})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestReadWithoutTemp(t *testing.T) {
	_, err := packfile.Read(context.Background(), bytes.NewReader(sample()), packfile.Options{
		Temp: func() (*os.File, error) { return nil, fs.ErrNotExist },
	})
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, object.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// fuzzLimits bound the time that one input takes.
var fuzzLimits = packfile.Limits{ObjectBytes: 1 << 20, InflatedBytes: 4 << 20, Objects: 1000}

// FuzzPack reads any bytes as a pack, with and without a valid trailer, and applies
// any delta to any base. It compares the results with those of go-git.
func FuzzPack(f *testing.F) {
	f.Add(sample(), "base", delta(4, 8, "\x90\x04\x90\x04"))
	f.Add(objecttest.NewPack(3, 0).Sum(), "base", delta(4, 6, "\x03abc\x91\x01\x03"))
	f.Add([]byte{}, strings.Repeat("x", 70000), delta(70000, 65536, "\x80"))
	f.Fuzz(func(t *testing.T, data []byte, base, d string) {
		for _, data := range [][]byte{data, (&objecttest.Pack{Buffer: *bytes.NewBuffer(bytes.Clone(data))}).Sum()} {
			if p, err := packfile.Read(context.Background(), bytes.NewReader(data), packfile.Options{Limits: fuzzLimits}); err == nil {
				p.Close()
			}
		}
		b := objecttest.NewPack(2, 2)
		at := b.Add(3, base)
		b.Add(6, d, distance(b.Len()-at)...)
		p, err := packfile.Read(context.Background(), bytes.NewReader(b.Sum()), packfile.Options{Limits: fuzzLimits})
		if err != nil {
			return
		}
		defer p.Close()
		want, err := gogit.PatchDelta([]byte(base), []byte(d))
		if len(d) < 4 { // go-git refuses these
			return
		}
		if got, readErr := object.Read(p, idOf(string(want)), object.Blob, 1<<20); err != nil || readErr != nil || string(got) != string(want) {
			t.Errorf("got %q, %v, go-git has %q, %v", got, readErr, want, err)
		}
	})
}

// TestInflatedPositions reads objects with all kinds of deflate blocks, one after the
// other: each object must begin where the stream before it ends.
func TestInflatedPositions(t *testing.T) {
	text := strings.Repeat("a text that repeats, and some that does not: 8761234581276345\n", 20)
	contents := []string{"", "x", text, strings.Repeat("0", 70000) + text, strings.Repeat(text, 300)}
	levels := []int{flate.NoCompression, flate.HuffmanOnly, flate.BestSpeed, flate.BestCompression}
	b := objecttest.NewPack(2, uint32(len(contents)*len(levels)))
	for _, level := range levels {
		for _, content := range contents {
			b.Header(3, int64(len(content)))
			b.WriteString("\x78\x9c")
			z, _ := flate.NewWriter(b, level)
			io.WriteString(z, content)
			z.Close()
			b.WriteString("sum?")
		}
	}
	p, err := packfile.Read(t.Context(), bytes.NewReader(b.Sum()), packfile.Options{})
	must(t, err)
	defer p.Close()
	for _, content := range contents {
		if got, err := object.Read(p, idOf(content), object.Blob, 1<<20); err != nil || string(got) != content {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, len(content))
		}
	}
}
