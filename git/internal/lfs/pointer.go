package lfs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxPointer is what a pointer is smaller than, in bytes.
const maxPointer = 1024

// A Pointer is what stands in a repository for an object.
type Pointer struct {
	OID  string // SHA-256 of the content, 64 hexadecimal digits in lower case
	Size int64  // of the content, in bytes
}

var (
	// ErrNotPointer is returned for content that is not a pointer.
	ErrNotPointer = errors.New("not a Git LFS pointer")
	// ErrExtension is returned for a pointer whose content went through extensions.
	ErrExtension = errors.New("the pointer uses Git LFS extensions, which are not supported: " +
		"store the file without them (git lfs ext, git lfs migrate)")
)

// versions are the first lines of pointers.
var versions = map[string]bool{
	"version https://git-lfs.github.com/spec/v1": true,
	"version https://hawser.github.com/spec/v1":  true, // before its first release
}

var emptyOID = hex.EncodeToString(sha256.New().Sum(nil))

// ParsePointer reads the content of a file. As git-lfs does, it takes a pointer
// whose lines end in CR LF, and one with blanks around it or no last line break.
func ParsePointer(b []byte) (Pointer, error) {
	if len(b) >= maxPointer {
		return Pointer{}, ErrNotPointer
	}
	text := strings.ReplaceAll(strings.TrimSpace(string(b)), "\r\n", "\n")
	lines := strings.Split(text, "\n")
	if !versions[lines[0]] {
		return Pointer{}, ErrNotPointer
	}
	lines = lines[1:]
	if len(lines) > 0 && strings.HasPrefix(lines[0], "ext-") {
		return Pointer{}, ErrExtension
	}
	if len(lines) != 2 {
		return Pointer{}, fmt.Errorf("%w: it has %d lines after the first, want oid and size", ErrNotPointer, len(lines))
	}
	oid, ok := strings.CutPrefix(lines[0], "oid sha256:")
	if !ok || !validOID(oid) {
		return Pointer{}, fmt.Errorf("%w: no SHA-256 in the line oid", ErrNotPointer)
	}
	digits, ok := strings.CutPrefix(lines[1], "size ")
	size, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil {
		return Pointer{}, fmt.Errorf("%w: no number in the line size", ErrNotPointer)
	}
	if (size == 0) != (oid == emptyOID) {
		return Pointer{}, fmt.Errorf("%w: its size %d and its oid contradict each other", ErrNotPointer, size)
	}
	return Pointer{oid, int64(size)}, nil
}

func validOID(s string) bool {
	return len(s) == hex.EncodedLen(sha256.Size) && strings.Trim(s, "0123456789abcdef") == ""
}
