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

// A verifyReader reads content and compares it with its descriptor.
type verifyReader struct {
	from   io.ReadCloser
	hash   hash.Hash // nil where the reader compares the digest
	digest digest.Digest
	size   int64
	left   int64 // bytes that are still due
	err    error // what ended it
}

// Read implements [io.Reader].
func (r *verifyReader) Read(p []byte) (n int, err error) {
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	if r.left > 0 {
		n, err = r.from.Read(p[:min(int64(len(p)), r.left)])
		if r.hash != nil {
			r.hash.Write(p[:n])
		}
		if r.left -= int64(n); r.left > 0 {
			if r.err = err; err == io.EOF {
				r.err = &ContentError{Digest: r.digest, Size: r.size, Read: r.size - r.left}
			}
			return n, r.err
		}
	}
	r.err = r.end()
	return n, r.err
}

// end judges content that has its size: there must be no more, and its digest the right one.
func (r *verifyReader) end() error {
	var more [1]byte
	if n, err := io.ReadFull(r.from, more[:]); n > 0 {
		return &ContentError{Digest: r.digest, Size: r.size, Read: r.size + 1}
	} else if err != io.EOF {
		return err
	}
	if r.hash == nil {
		return io.EOF
	}
	got := digest.NewDigestFromEncoded(r.digest.Algorithm(), hex.EncodeToString(r.hash.Sum(nil)))
	if got != r.digest {
		return &ContentError{Digest: r.digest, Size: r.size, Got: got, Read: r.size}
	}
	return io.EOF
}

// Close implements [io.Closer].
func (r *verifyReader) Close() error { return r.from.Close() }
