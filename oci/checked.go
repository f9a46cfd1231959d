package oci

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"github.com/opencontainers/go-digest"
)

// hashes are the digests there are (image specification 1.1, "Digests"). The
// order is that of their names' lengths.
var hashes = map[digest.Algorithm]func() hash.Hash{
	digest.SHA256: sha256.New,
	digest.SHA512: sha512.New,
}

// hasher returns the hash that d is made with.
func hasher(d digest.Digest) (hash.Hash, error) {
	if d.Validate() == nil {
		if of, ok := hashes[d.Algorithm()]; ok {
			return of(), nil
		}
	}
	return nil, fmt.Errorf("%.140q is no digest: want sha256:HEX or sha512:HEX", string(d))
}

// A ContentError says that content is not what its descriptor says.
type ContentError struct {
	Digest digest.Digest // of the descriptor
	Size   int64         // of the descriptor
	Got    digest.Digest // of the content, "" when its size is wrong
	Read   int64         // bytes of content that there were, up to one more than Size
}

func (e *ContentError) Error() string {
	switch {
	case e.Got != "":
		return fmt.Sprintf("content has the digest %s instead of %s", e.Got, e.Digest)
	case e.Read > e.Size:
		return fmt.Sprintf("content of %s goes on behind its %d bytes", e.Digest, e.Size)
	}
	return fmt.Sprintf("content of %s ends after %d of %d bytes", e.Digest, e.Read, e.Size)
}

// chunk is how much is read at once: hashing and writing alternate, and fewer
// turns leave the processor's caches alone.
const chunk = 128 << 10

// checked reads content and compares it with its descriptor.
type checked struct {
	from   io.ReadCloser
	hash   hash.Hash // nil where the reader compares the digest
	digest digest.Digest
	size   int64
	left   int64 // bytes that are still due
	err    error // what ended it
}

// Read implements [io.Reader].
func (c *checked) Read(p []byte) (n int, err error) {
	if c.err != nil || len(p) == 0 {
		return 0, c.err
	}
	if c.left > 0 {
		n, err = c.from.Read(p[:min(int64(len(p)), c.left)])
		if c.hash != nil {
			c.hash.Write(p[:n])
		}
		if c.left -= int64(n); c.left > 0 {
			if c.err = err; err == io.EOF {
				c.err = &ContentError{Digest: c.digest, Size: c.size, Read: c.size - c.left}
			}
			return n, c.err
		}
	}
	c.err = c.end()
	return n, c.err
}

// end judges content that has its size: there must be no more, and its digest the right one.
func (c *checked) end() error {
	var more [1]byte
	if n, err := io.ReadFull(c.from, more[:]); n > 0 {
		return &ContentError{Digest: c.digest, Size: c.size, Read: c.size + 1}
	} else if err != io.EOF {
		return err
	}
	if c.hash == nil {
		return io.EOF
	}
	got := digest.NewDigestFromEncoded(c.digest.Algorithm(), hex.EncodeToString(c.hash.Sum(nil)))
	if got != c.digest {
		return &ContentError{Digest: c.digest, Size: c.size, Got: got, Read: c.size}
	}
	return io.EOF
}

// WriteTo implements [io.WriterTo].
func (c *checked) WriteTo(w io.Writer) (written int64, err error) {
	buf := make([]byte, min(chunk, max(c.left, 1)))
	for {
		n, err := c.Read(buf)
		if n > 0 {
			m, failed := w.Write(buf[:n])
			if written += int64(m); failed != nil {
				return written, failed
			}
		}
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, err
		}
	}
}

// Close implements [io.Closer].
func (c *checked) Close() error { return c.from.Close() }
