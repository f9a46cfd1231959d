package object

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"strconv"

	"github.com/pjbgf/sha1cd"
)

// A Format is the hash function that a repository names its objects with.
type Format uint8

// The object formats.
const (
	SHA1   Format = iota // SHA-1, 20 bytes, with collision detection
	SHA256               // SHA-256, 32 bytes
)

// Size returns the number of bytes in an ID of format f.
func (f Format) Size() int {
	if f == SHA256 {
		return sha256.Size
	}
	return sha1cd.Size
}

// String returns the name that Git's configuration and protocol use for f.
func (f Format) String() string {
	if f == SHA256 {
		return "sha256"
	}
	return "sha1"
}

// A Hasher computes IDs. It is not safe for concurrent use.
type Hasher struct {
	format Format
	hash   hash.Hash
	buf    [64]byte
}

// NewHasher returns a Hasher for objects of format f.
func NewHasher(f Format) *Hasher {
	if f == SHA256 {
		return &Hasher{format: f, hash: sha256.New()}
	}
	return &Hasher{format: f, hash: sha1cd.New()}
}

// Begin starts an object of the given type and size; Write gives its content.
func (h *Hasher) Begin(t Type, size int64) {
	h.hash.Reset()
	b := append(h.buf[:0], t.String()...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, size, 10)
	h.hash.Write(append(b, 0))
}

// Write adds content. It never fails.
func (h *Hasher) Write(p []byte) (int, error) { return h.hash.Write(p) }

// ID returns the ID of the object begun last. It returns an error that wraps
// [ErrCorrupt] when the content carries the marks of a SHA-1 collision attack.
func (h *Hasher) ID() (ID, error) {
	var id ID
	id.len = uint8(h.format.Size())
	if cd, ok := h.hash.(sha1cd.CollisionResistantHash); ok {
		sum, collision := cd.CollisionResistantSum(h.buf[:0])
		if collision {
			return ID{}, fmt.Errorf("%w: object %x was made to collide with another one (SHA-1 attack)", ErrCorrupt, sum)
		}
		copy(id.sum[:], sum)
		return id, nil
	}
	copy(id.sum[:], h.hash.Sum(h.buf[:0]))
	return id, nil
}
