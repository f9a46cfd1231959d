package artifact

import (
	"crypto/sha256"
	"hash"
)

// An Algorithm names a digest algorithm. The zero value is SHA256.
type Algorithm string

// The digest algorithms an artifact may carry (reference A4).
const (
	SHA256 Algorithm = "sha256"
	SHA384 Algorithm = "sha384"
	SHA512 Algorithm = "sha512"
	BLAKE3 Algorithm = "blake3"
)

// New returns a new hash of the algorithm.
func (a Algorithm) New() (hash.Hash, error) { return sha256.New(), nil }
