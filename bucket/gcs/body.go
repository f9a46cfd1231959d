package gcs

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/bucket"
)

// A body is the content of an object. It ends with an error that wraps
// [bucket.ErrChanged] when more comes than was listed, or something else than
// the store announced.
type body struct {
	io.ReadCloser
	left int64       // bytes that are still to come
	sum  hash.Hash32 // nil when there is nothing to compare with
	want uint32

	vault *bucket.Vault
}

func newBody(resp *http.Response, o bucket.Object, offset int64, v *bucket.Vault) *body {
	b := &body{ReadCloser: resp.Body, left: o.Size - offset, vault: v}
	if want, announced := announcedSum(resp.Header); announced && offset == 0 {
		b.sum, b.want = crc32.New(crc32.MakeTable(crc32.Castagnoli)), want
	}
	return b
}

// Read implements [io.Reader]. The bytes that complete the object are given out
// only if the object is what it should be.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF { // of a trailer, for example, which it repeats
		err = cause(err, b.vault)
	}
	if int64(n) > b.left {
		return 0, fmt.Errorf("%w: it is longer", bucket.ErrChanged)
	}
	b.left -= int64(n)
	if b.sum == nil {
		return n, err
	}
	b.sum.Write(p[:n])
	if got := b.sum.Sum32(); b.left == 0 && got != b.want {
		return 0, fmt.Errorf("%w: its CRC-32C is %08x, the store announced %08x", bucket.ErrChanged, got, b.want)
	}
	return n, err
}

// announcedSum returns the CRC-32C of the whole object that the header of an answer has.
func announcedSum(header http.Header) (sum uint32, announced bool) {
	for _, line := range header.Values("X-Goog-Hash") {
		for field := range strings.SplitSeq(line, ",") {
			value, found := strings.CutPrefix(strings.TrimSpace(field), "crc32c=")
			if !found {
				continue
			}
			if raw, err := base64.StdEncoding.DecodeString(value); err == nil && len(raw) == 4 {
				return binary.BigEndian.Uint32(raw), true
			}
		}
	}
	return 0, false
}
