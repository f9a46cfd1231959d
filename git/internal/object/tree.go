package object

import (
	"bytes"
	"fmt"
	"io/fs"
	"iter"
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

// TreeEntries returns the entries of the content of a tree in their stored
// order, and yields one error, after which it ends, for an entry that is
// malformed, hostile or out of order:
//
//   - a mode that is no octal number or none of the five kinds;
//   - an empty name, ".", "..", a name with "/", or one that some file system
//     takes for ".git" (letter case, trailing dots and spaces, a stream suffix,
//     "git~1", ignorable code points);
//   - a null or truncated ID;
//   - an order other than Git's (by name, that of a folder ending in "/").
//
// Two entries with one name, a file and a folder, can be far apart in that
// order: they are found by [TreeFS].
func TreeEntries(data []byte, format Format) iter.Seq2[TreeEntry, error] {
	return func(yield func(TreeEntry, error) bool) {
		names := string(data) // one allocation for all names
		var last TreeEntry
		for at := 0; at < len(data); {
			e, n, err := parseEntry(data[at:], names[at:], format.Size())
			if err == nil && at > 0 && !treeLess(last, e) {
				err = fmt.Errorf("%w: tree entry %.80q is not in order", ErrCorrupt, e.Name)
			}
			if !yield(e, err) || err != nil {
				return
			}
			last, at = e, at+n
		}
	}
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

// parseMode parses the octal digits and the space that an entry starts with,
// n bytes; n is 0 where they are not there.
func parseMode(data []byte) (m Mode, n int) {
	for n < len(data) && n < 8 && '0' <= data[n] && data[n] <= '7' {
		m = m<<3 | Mode(data[n]-'0')
		n++
	}
	if n == 0 || n == len(data) || data[n] != ' ' {
		return 0, 0
	}
	switch m & modeKind {
	case ModeDir, ModeFile, ModeSymlink, ModeSubmodule:
		if m>>16 == 0 {
			return m, n + 1
		}
	}
	return 0, 0
}

// treeLess reports whether a comes before b in Git's order.
func treeLess(a, b TreeEntry) bool {
	n := min(len(a.Name), len(b.Name))
	if c := strings.Compare(a.Name[:n], b.Name[:n]); c != 0 {
		return c < 0
	}
	return orderByte(a, n) < orderByte(b, n)
}

// orderByte returns the byte that counts at n: a folder's name ends in "/".
func orderByte(e TreeEntry, n int) byte {
	if n < len(e.Name) {
		return e.Name[n]
	}
	if e.Mode.IsDir() {
		return '/'
	}
	return 0
}
