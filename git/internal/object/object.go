// Package object holds the Git object model: identifiers, types and the
// parsers of commits, tags and trees.
package object

import (
	"encoding/hex"
	"fmt"
	"io"
)

// An ID is the name of an object: the SHA-1 (20 bytes) or SHA-256 (32 bytes)
// of its content. IDs are comparable; the zero value names nothing.
type ID struct {
	sum [32]byte
	len uint8
}

// ParseID parses 40 or 64 hexadecimal digits.
func ParseID(s string) (ID, error) {
	if len(s) != 40 && len(s) != 64 {
		return ID{}, fmt.Errorf("object id %.80q: want 40 or 64 hexadecimal digits", s)
	}
	var id ID
	if _, err := hex.Decode(id.sum[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("object id %.80q: %w", s, err)
	}
	id.len = uint8(len(s) / 2)
	return id, nil
}

// IDFromBytes returns the ID with the 20 or 32 bytes of b.
func IDFromBytes(b []byte) (ID, error) {
	if len(b) != 20 && len(b) != 32 {
		return ID{}, fmt.Errorf("object id of %d bytes: want 20 or 32", len(b))
	}
	var id ID
	copy(id.sum[:], b)
	id.len = uint8(len(b))
	return id, nil
}

// Bytes returns the raw bytes of the ID.
func (id ID) Bytes() []byte { return append([]byte(nil), id.sum[:id.len]...) }

// IsZero reports whether id names nothing: the zero value, or all bytes zero.
func (id ID) IsZero() bool { return id.sum == [32]byte{} }

func (id ID) String() string { return hex.EncodeToString(id.sum[:id.len]) }

// A Type is the type of an object, with its number in the pack format.
type Type uint8

// The object types.
const (
	Commit Type = 1
	Tree   Type = 2
	Blob   Type = 3
	Tag    Type = 4
)

// A Database gives objects by ID. Open returns an error that wraps
// fs.ErrNotExist when it does not hold the object. It is safe for concurrent use.
type Database interface {
	Open(id ID) (t Type, size int64, content io.ReadCloser, err error)
}
