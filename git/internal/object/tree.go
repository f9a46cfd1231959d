package object

import (
	"bytes"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// A Mode is the mode of a tree entry. Git stores a handful of values, and older
// tools have written more permission bits than it uses today.
type Mode uint32

// The kinds of entries: bits of a Mode.
const (
	ModeDir        Mode = 0o040000
	ModeFile       Mode = 0o100000
	ModeExecutable Mode = 0o100100
	ModeSymlink    Mode = 0o120000
	ModeSubmodule  Mode = 0o160000

	modeKind = 0o170000
)

// IsDir reports whether m is the mode of a tree.
func (m Mode) IsDir() bool { return m&modeKind == ModeDir }

// FS returns m as a mode of the file system of [TreeFS]: files are 0644 or
// 0755, folders 0755; links have fs.ModeSymlink, submodules fs.ModeIrregular.
func (m Mode) FS() fs.FileMode {
	switch m & modeKind {
	case ModeDir:
		return fs.ModeDir | 0o755
	case ModeSymlink:
		return fs.ModeSymlink | 0o777
	case ModeSubmodule:
		return fs.ModeIrregular
	}
	if m&ModeExecutable == ModeExecutable {
		return 0o755
	}
	return 0o644
}

// A TreeEntry is one entry of a tree.
type TreeEntry struct {
	Mode Mode
	Name string
	ID   ID
}

// TreeEntries returns the entries of the content of a tree in their stored order. It
// fails for an entry that is malformed, hostile or out of order:
//
//   - a mode that is no octal number or none of the five kinds;
//   - an empty name, ".", "..", a name with "/", or one that some file system takes
//     for ".git" (letter case, trailing dots and spaces, a stream suffix, "git~1",
//     ignorable code points);
//   - a null or truncated ID;
//   - an order other than Git's (by name; folders sort as if their names ended in
//     "/").
//
// Two entries with one name, a file and a folder, can be far apart in that order:
// [TreeFS] detects them.
func TreeEntries(data []byte, format Format) (all []TreeEntry, err error) {
	names := string(data) // one allocation for all names
	for at := 0; at < len(data); {
		e, n, err := parseEntry(data[at:], names[at:], format.Size())
		if err == nil && at > 0 && all[len(all)-1].orderKey() >= e.orderKey() {
			err = fmt.Errorf("%w: tree entry %.80q is not in order", ErrCorrupt, e.Name)
		}
		if err != nil {
			return nil, err
		}
		all, at = append(all, e), at+n
	}
	return all, nil
}

// parseEntry parses the entry that data starts with and returns its length;
// text is data as a string.
func parseEntry(data []byte, text string, idLen int) (e TreeEntry, n int, err error) {
	mode, n := parseMode(data)
	if n == 0 {
		return e, 0, fmt.Errorf("%w: tree entry without a valid mode", ErrCorrupt)
	}
	end := bytes.IndexByte(data[n:], 0)
	if end < 0 || len(data)-n-end-1 < idLen {
		return e, 0, fmt.Errorf("%w: truncated tree", ErrCorrupt)
	}
	e.Mode, e.Name = mode, text[n:n+end]
	if err := checkName(e.Name); err != nil {
		return e, 0, err
	}
	n += end + 1
	e.ID.len = uint8(idLen)
	copy(e.ID.sum[:idLen], data[n:])
	if e.ID.IsZero() {
		return e, 0, fmt.Errorf("%w: tree entry %.80q has a null id", ErrCorrupt, e.Name)
	}
	return e, n + idLen, nil
}

// parseMode parses the octal digits and the space that an entry starts with. It
// returns their length n, or 0 if they are not valid.
func parseMode(data []byte) (m Mode, n int) {
	digits, _, ok := bytes.Cut(data[:min(len(data), 9)], []byte{' '})
	v, err := strconv.ParseUint(string(digits), 8, 16)
	m = Mode(v)
	switch m & modeKind {
	case ModeDir, ModeFile, ModeSymlink, ModeSubmodule:
		if ok && err == nil {
			return m, len(digits) + 1
		}
	}
	return 0, 0
}

// orderKey returns the key by which Git sorts the entries of a tree.
func (e TreeEntry) orderKey() string {
	if e.Mode.IsDir() {
		return e.Name + "/"
	}
	return e.Name
}

// CheckPath returns an error for a slash-separated path with a part that no honest
// tree has: "..", or a name that some file system takes for .git.
func CheckPath(path string) error {
	for part := range strings.SplitSeq(path, "/") {
		if err := checkName(part); err != nil {
			return err
		}
	}
	return nil
}

// checkName returns an error for a name that no honest tree has.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.IndexByte(name, '/') >= 0 {
		return fmt.Errorf("%w: tree entry with the forbidden name %.80q", ErrCorrupt, name)
	}
	if isDotGit(name) {
		return fmt.Errorf("%w: tree entry with the forbidden name %+.80q: a file system could take it for .git", ErrCorrupt, name)
	}
	return nil
}

// isDotGit reports whether some file system gives ".git" for name: one that
// ignores case, NTFS (short name, stream suffix, trailing dots and spaces) or
// HFS+ (ignorable code points).
func isDotGit(name string) bool {
	// Cheap test first: every form has one of these two letters near its front.
	if c := name[0]; c != '.' && c != 'g' && c != 'G' && c < 0x80 {
		return false
	}
	normalized := strings.Map(func(r rune) rune {
		if ignorable(r) {
			return -1
		}
		return r
	}, name)
	if stream := strings.IndexAny(normalized, `:\`); stream >= 0 {
		normalized = normalized[:stream]
	}
	normalized = strings.TrimRight(normalized, ". ")
	return strings.EqualFold(normalized, ".git") || strings.EqualFold(normalized, "git~1")
}

// ignorable reports whether HFS+ ignores r when it compares names.
func ignorable(r rune) bool {
	return 0x200c <= r && r <= 0x200f || 0x202a <= r && r <= 0x202e ||
		0x206a <= r && r <= 0x206f || r == 0xfeff
}
