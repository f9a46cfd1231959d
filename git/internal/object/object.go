// Package object holds the Git object model: identifiers, types, the parsers of
// commits, tags and trees, and a tree of a [Database] as an [io/fs.FS].
//
// Everything here reads what a remote repository chose to send. The parsers
// accept any bytes, never panic, allocate in proportion to what they are given,
// and answer malformed input with an error that wraps [ErrCorrupt].
//
// A Database verifies: content that it returns has the ID that was asked for.
// The parsers do not hash.
package object

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/pjbgf/sha1cd"
)

// ErrCorrupt is wrapped by every error about an object or a pack that breaks
// the rules of its format.
var ErrCorrupt = errors.New("corrupt git data")

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
func (id ID) Bytes() []byte { return id.AppendTo(nil) }

// AppendTo appends the raw bytes of the ID to b.
func (id ID) AppendTo(b []byte) []byte { return append(b, id.sum[:id.len]...) }

// Compare orders IDs by their bytes. It returns -1, 0 or +1.
func (id ID) Compare(other ID) int { return bytes.Compare(id.sum[:id.len], other.sum[:other.len]) }

// IsZero reports whether id names nothing: the zero value, or all bytes zero.
func (id ID) IsZero() bool { return id.sum == [32]byte{} }

// Format returns the hash function that id belongs to. The zero value counts as SHA-1.
func (id ID) Format() Format {
	if id.len == 32 {
		return SHA256
	}
	return SHA1
}

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

var typeNames = [...]string{Commit: "commit", Tree: "tree", Blob: "blob", Tag: "tag"}

// String returns the word that Git uses for t, as in the header of an object.
func (t Type) String() string {
	if t >= Commit && t <= Tag {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// TypeNamed returns the type with the name, 0 for none.
func TypeNamed(name string) Type {
	return Type(max(0, slices.Index(typeNames[:], name)))
}

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
	hash.Hash // its Write adds content, and never fails
	buf       [64]byte
}

// NewHasher returns a Hasher for objects of format f.
func NewHasher(f Format) *Hasher {
	if f == SHA256 {
		return &Hasher{Hash: sha256.New()}
	}
	return &Hasher{Hash: sha1cd.New()}
}

// Begin starts an object of the given type and size; Write gives its content.
func (h *Hasher) Begin(t Type, size int64) {
	h.Reset()
	b := append(h.buf[:0], t.String()...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, size, 10)
	h.Write(append(b, 0))
}

// ID returns the ID of the object begun last. It returns an error that wraps
// [ErrCorrupt] when the content carries the marks of a SHA-1 collision attack.
func (h *Hasher) ID() (ID, error) {
	id := ID{len: uint8(h.Size())}
	if cd, ok := h.Hash.(sha1cd.CollisionResistantHash); ok {
		sum, collision := cd.CollisionResistantSum(h.buf[:0])
		if collision {
			return ID{}, fmt.Errorf("%w: object %x was made to collide with another one (SHA-1 attack)", ErrCorrupt, sum)
		}
		copy(id.sum[:], sum)
		return id, nil
	}
	copy(id.sum[:], h.Sum(h.buf[:0]))
	return id, nil
}

// A Database returns objects by ID. Both methods return an error that wraps
// fs.ErrNotExist and names the object when the database does not hold it. It is safe
// for concurrent use.
type Database interface {
	// Stat returns the type and the size in bytes of an object, if possible without
	// reading the content.
	Stat(id ID) (t Type, size int64, err error)

	// Open returns an object's content, size bytes long. The caller closes it.
	Open(id ID) (t Type, size int64, content io.ReadCloser, err error)
}

// Read returns the whole content of an object of type t. An object of another
// type, or of more than limit bytes, is an error.
func Read(db Database, id ID, t Type, limit int64) ([]byte, error) {
	got, size, content, err := db.Open(id)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if got != t {
		return nil, fmt.Errorf("%w: object %v is a %v, want a %v", ErrCorrupt, id, got, t)
	}
	if size > limit {
		return nil, fmt.Errorf("%v %v has %d bytes, more than the %d that a %v may have", t, id, size, limit, t)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(content, b); err != nil {
		return nil, fmt.Errorf("read %v %v: %w", t, id, err)
	}
	return b, nil
}

// A Ref is a name that a repository gives to an object.
type Ref struct {
	Name   string
	ID     ID
	Peeled ID     // the object that an annotated tag leads to; zero for other refs
	Symref string // the ref that a symbolic ref points to; "" for other refs
}

// Commit returns what the ref leads to once an annotated tag is peeled.
func (r Ref) Commit() ID {
	if r.Peeled.IsZero() {
		return r.ID
	}
	return r.Peeled
}

// Tag returns the name of r without refs/tags/.
func (r Ref) Tag() string { return strings.TrimPrefix(r.Name, "refs/tags/") }
