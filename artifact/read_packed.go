package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the window of a zstd frame, which the decoder keeps in
// memory: what the zstd program reads unless told otherwise. It writes 8 MiB at
// most up to level 19, 128 MiB at level 22 and with --long.
const maxWindow = 128 << 20

// compressions are those that [Read] undoes. Reading what open returns up to
// its end reads all of r, or fails. It runs nothing that would have to be ended.
var compressions = []struct {
	begins func(head []byte) bool
	open   func(r io.Reader) (io.Reader, error)
}{
	{isGzip, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{isZstd, openZstd},
}

func isGzip(head []byte) bool { return bytes.HasPrefix(head, []byte("\x1f\x8b")) }

// isZstd reports whether head begins with a frame: of data, or one that is to
// be skipped, which parallel encoders write first.
func isZstd(head []byte) bool {
	return bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")) ||
		len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18"
}

// openZstd returns the content of the frames in r.
func openZstd(r io.Reader) (io.Reader, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
	if err != nil {
		return nil, err
	}
	return zstdReader{d}, nil
}

// A zstdReader says in errors which format it is about.
type zstdReader struct{ r io.Reader }

func (z zstdReader) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		err = fmt.Errorf("zstd: %w: its window may have %d MiB: compress it without --ultra and --long", err, maxWindow>>20)
	case errors.Is(err, zstd.ErrUnknownDictionary):
		err = fmt.Errorf("zstd: %w: compress it without a dictionary", err)
	case err != nil && err != io.EOF:
		err = fmt.Errorf("zstd: %w", err)
	}
	return n, err
}
