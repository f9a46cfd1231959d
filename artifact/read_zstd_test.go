package artifact_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/headgate-io/headgate/artifact"
)

// zstandard compresses data to one frame.
func zstandard(t testing.TB, data []byte, options ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	zw, err := zstd.NewWriter(&out, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, options...)...)
	must(t, err)
	must(t, second(zw.Write(data)))
	must(t, zw.Close())
	return out.Bytes()
}

// stored returns a frame of uncompressed blocks with the window size 2^log.
func stored(data []byte, log byte) []byte {
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3}
	for {
		n := min(len(data), 100<<10)
		head := uint32(n) << 3
		if n == len(data) {
			head |= 1
		}
		out = append(out, byte(head), byte(head>>8), byte(head>>16))
		if out, data = append(out, data[:n]...), data[n:]; len(data) == 0 {
			return out
		}
	}
}

// skippableFrame returns a skippable frame.
func skippableFrame(content string) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte("\x53\x2a\x4d\x18"), uint32(len(content))), content...)
}

func TestReadZstd(t *testing.T) {
	tree := many(300)
	tree["large"] = &fstest.MapFile{Data: noise(1 << 20)}
	plain := tarOf(t, tree)
	half := len(plain) / 2
	for name, archive := range map[string][]byte{
		"one frame":         zstandard(t, plain),
		"no checksum":       zstandard(t, plain, zstd.WithEncoderCRC(false)),
		"best":              zstandard(t, plain, zstd.WithEncoderLevel(zstd.SpeedBestCompression)),
		"window of 128 MiB": stored(plain, 27),
		"single segment":    zstandard(t, plain, zstd.WithSingleSegment(true), zstd.WithWindowSize(8<<20)),
		"many frames":       append(zstandard(t, plain[:half]), zstandard(t, plain[half:])...),
		"skipped first":     append(skippableFrame("12345678"), zstandard(t, plain)...),
		"skipped last":      append(zstandard(t, plain), skippableFrame("table of contents")...),
		"empty frame":       append(zstandard(t, nil, zstd.WithZeroFrames(true)), zstandard(t, plain)...),
	} {
		t.Run(name, func(t *testing.T) {
			if got := tarOf(t, opened(t, archive)); !bytes.Equal(got, plain) {
				t.Error("read and packed again: other bytes")
			}
		})
	}
}

func TestReadZstdRefuses(t *testing.T) {
	plain := archived(t, file("a", strings.Repeat("text ", 1000)), file("b", "2"))
	packed := zstandard(t, plain)
	header := func(fields ...byte) []byte { return append([]byte("\x28\xb5\x2f\xfd"), fields...) }
	tests := map[string]struct {
		archive []byte
		want    string // in the error
	}{
		"text":                        {zstandard(t, bytes.Repeat([]byte("text"), 1000)), "invalid tar header"},
		"nothing":                     {zstandard(t, nil, zstd.WithZeroFrames(true)), "truncated"},
		"window of 256 MiB":           {stored(plain, 28), "128 MiB"},
		"window of 3 TiB":             {header(0x00, 0xff, 0x01, 0x00, 0x00), "128 MiB"},
		"single segment of 1 EiB":     {header(0xe0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x01, 0x00, 0x00), "128 MiB"},
		"dictionary":                  {header(0x01, 0x58, 0x2a, 0x01, 0x00, 0x00), "without a dictionary"},
		"bad checksum":                {append(bytes.Clone(packed[:len(packed)-1]), packed[len(packed)-1]^1), "zstd"},
		"damaged":                     {append(bytes.Clone(packed[:20]), bytes.Repeat([]byte{0xff}, 100)...), "zstd"},
		"reserved block":              {header(0x00, 0x00, 0xff, 0xff, 0xff), "zstd"},
		"skipped frame cut":           {append(bytes.Clone(packed), skippableFrame("12345678")[:12]...), "unexpected EOF"},
		"nothing but a skipped frame": {skippableFrame("12345678"), "truncated"},
		"gzip after zstd":             {append(bytes.Clone(packed), compressed(t, plain)...), "zstd"},
		"content after the archive":   {append(bytes.Clone(packed), packed...), "data follows"},
	}
	for n := 1; n < 6; n++ {
		tests[fmt.Sprintf("%d bytes of garbage after it", n)] = struct {
			archive []byte
			want    string
		}{append(bytes.Clone(packed), "garbage"[:n]...), "zstd"}
	}
	for n := 4; n < len(packed); n += max(1, len(packed)/50) {
		tests[fmt.Sprintf("cut at %d", n)] = struct {
			archive []byte
			want    string
		}{packed[:n], "unexpected EOF"}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := artifact.Read(bytes.NewReader(test.archive), artifact.Limits{})
			if !errors.Is(err, artifact.ErrFormat) || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("error %v, want ErrFormat and %q", err, test.want)
			}
		})
	}
}

// repeatingReader reads p repeatedly, without end.
type repeatingReader struct {
	p    []byte
	rest []byte
}

func (e *repeatingReader) Read(b []byte) (int, error) {
	if len(e.rest) == 0 {
		e.rest = e.p
	}
	n := copy(b, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// TestReadBombs reads archives that expand a lot or have no content at all.
func TestReadBombs(t *testing.T) {
	small := artifact.Limits{Bytes: 1 << 20}
	for name, test := range map[string]struct {
		archive io.Reader
		limit   artifact.Limits
		want    string
	}{
		"zstd, zeros":                {bytes.NewReader(zstandard(t, make([]byte, 64<<20))), artifact.Limits{}, "for each compressed byte"},
		"zstd, zeros in many frames": {&repeatingReader{p: zstandard(t, make([]byte, 1<<20))}, artifact.Limits{}, "for each compressed byte"},
		"zstd, bytes":                {bytes.NewReader(zstandard(t, archived(t, file("a", strings.Repeat("x", 2<<20))))), small, "1048576 bytes in the archive"},
		"zstd, empty frames":         {&repeatingReader{p: zstandard(t, nil, zstd.WithZeroFrames(true))}, small, "compressed bytes"},
		"zstd, skipped frames":       {&repeatingReader{p: skippableFrame(strings.Repeat("x", 1000))}, small, "compressed bytes"},
		"gzip, empty members":        {&repeatingReader{p: compressed(t, nil)}, small, "compressed bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := artifact.Read(test.archive, test.limit)
			var limit *artifact.LimitError
			if !errors.As(err, &limit) || errors.Is(err, artifact.ErrFormat) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want a LimitError with %q", err, test.want)
			}
		})
	}
}
