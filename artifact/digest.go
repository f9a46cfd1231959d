package artifact

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"lukechampine.com/blake3"
)

// An Algorithm names a digest algorithm. The zero value is SHA256.
type Algorithm string

// The digest algorithms an artifact may have (reference A4). SHA-1 is not supported because it does
// not resist collisions.
const (
	SHA256 Algorithm = "sha256"
	SHA384 Algorithm = "sha384"
	SHA512 Algorithm = "sha512"
	BLAKE3 Algorithm = "blake3" // 256 bits of output
)

// ErrAlgorithm is wrapped by errors about a digest algorithm that this package does not support.
var ErrAlgorithm = errors.New("use sha256, sha384, sha512 or blake3")

// New returns a new hash of the algorithm. The error wraps [ErrAlgorithm] if it is not supported.
func (a Algorithm) New() (hash.Hash, error) {
	switch a {
	case SHA256, "":
		return sha256.New(), nil
	case SHA384:
		return sha512.New384(), nil
	case SHA512:
		return sha512.New(), nil
	case BLAKE3:
		return blake3.New(32, nil), nil
	}
	return nil, fmt.Errorf("digest algorithm %q is not supported: %w", string(a), ErrAlgorithm)
}

// ParseDigest splits a digest of the form ALGORITHM:HEX. The value must be
// lower-case hexadecimal of exactly the algorithm's length. A value of 64
// hexadecimal digits without an algorithm is read as SHA-256, the legacy form
// of reference A4. An unknown algorithm's error wraps [ErrAlgorithm].
func ParseDigest(digest string) (a Algorithm, value string, err error) {
	name, value, found := strings.Cut(digest, ":")
	if !found {
		name, value = string(SHA256), digest
	}
	a = Algorithm(name)
	if name == "" {
		return "", "", fmt.Errorf("digest %q has no algorithm", digest)
	}
	h, err := a.New()
	if err != nil {
		return "", "", fmt.Errorf("digest %q: %w", digest, err)
	}
	if want := 2 * h.Size(); len(value) != want {
		return "", "", fmt.Errorf("digest %q has %d digits, %s has %d", digest, len(value), a, want)
	}
	if strings.Trim(value, "0123456789abcdef") != "" {
		return "", "", fmt.Errorf("digest %q is not lower-case hexadecimal", digest)
	}
	return a, value, nil
}

// ContentDigest returns the SHA-256 of the tar stream in a gzip-compressed archive,
// sha256:HEX, which does not depend on the compressor. It reads r to its end.
func ContentDigest(r io.Reader) (string, error) {
	content, err := gzip.NewReader(r)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrFormat, err)
	}
	h := sha256.New()
	if _, err := io.Copy(h, content); err != nil {
		return "", err
	}
	return string(SHA256) + ":" + hex.EncodeToString(h.Sum(nil)), nil
}

// A DigestError reports content that does not match its digest.
type DigestError struct {
	Want, Got string // both ALGORITHM:HEX
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("content has digest %s, expected %s", e.Got, e.Want)
}

// VerifyReader returns a reader of r that ends with a [*DigestError] instead of [io.EOF] if the
// content does not have the digest. Bytes are returned before they are checked, so a caller must
// not act on them before the end. VerifyReader itself fails as [ParseDigest] does.
func VerifyReader(r io.Reader, digest string) (io.Reader, error) {
	a, value, err := ParseDigest(digest)
	if err != nil {
		return nil, err
	}
	h, err := a.New()
	if err != nil {
		return nil, err
	}
	return &verifyReader{r: r, h: h, algorithm: a, want: value}, nil
}

type verifyReader struct {
	r         io.Reader
	h         hash.Hash
	algorithm Algorithm
	want      string
}

func (v *verifyReader) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.h.Write(p[:n])
	if err == io.EOF {
		if got := hex.EncodeToString(v.h.Sum(nil)); got != v.want {
			err = &DigestError{Want: v.digest(v.want), Got: v.digest(got)}
		}
	}
	return n, err
}

func (v *verifyReader) digest(value string) string { return string(v.algorithm) + ":" + value }
