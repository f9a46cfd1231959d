package object

import (
	"fmt"
	"strings"
)

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
	plain := strings.Map(func(r rune) rune {
		if ignorable(r) {
			return -1
		}
		return r
	}, name)
	if stream := strings.IndexAny(plain, `:\`); stream >= 0 {
		plain = plain[:stream]
	}
	plain = strings.TrimRight(plain, ". ")
	return strings.EqualFold(plain, ".git") || strings.EqualFold(plain, "git~1")
}

// ignorable reports whether HFS+ ignores r when it compares names.
func ignorable(r rune) bool {
	return 0x200c <= r && r <= 0x200f || 0x202a <= r && r <= 0x202e ||
		0x206a <= r && r <= 0x206f || r == 0xfeff
}
