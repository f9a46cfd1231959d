package bucket

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a key that is a path.
const (
	maxPath = 4096 // bytes of the whole
	maxPart = 255  // bytes between two slashes
)

// keyRules says what no path may be like.
var keyRules = []struct {
	problem string
	broken  func(key string) bool
}{
	{"is empty", func(key string) bool { return key == "" }},
	{fmt.Sprintf("has more than %d bytes", maxPath), func(key string) bool { return len(key) > maxPath }},
	{"is not UTF-8 text", func(key string) bool { return !utf8.ValidString(key) }},
	{"has a control character", func(key string) bool { return strings.ContainsFunc(key, unicode.IsControl) }},
	{"has a backslash", func(key string) bool { return strings.Contains(key, `\`) }},
	{"has an empty part", anyPart(func(part string) bool { return part == "" })},
	{`has a part "." or ".."`, anyPart(func(part string) bool { return part == "." || part == ".." })},
	{fmt.Sprintf("has a part of more than %d bytes", maxPart), anyPart(func(part string) bool { return len(part) > maxPart })},
}

func anyPart(broken func(string) bool) func(string) bool {
	return func(key string) bool { return slices.ContainsFunc(strings.Split(key, "/"), broken) }
}

// problemOf says why key cannot be a path, "" if it can.
func problemOf(key string) string {
	if isPath(key) {
		return ""
	}
	for _, r := range keyRules {
		if r.broken(key) {
			return r.problem
		}
	}
	return "is no path"
}

// isPath reports whether key keeps keyRules, in one pass.
func isPath(key string) bool {
	if len(key) > maxPath || key == "." || !fs.ValidPath(key) {
		return false
	}
	part := 0
	for i := range len(key) {
		c := key[i]
		if part++; c == '/' {
			part = 0
		}
		if c < ' ' || c == '\\' || c == 0x7f || part > maxPart {
			return false
		}
		if c == 0xc2 && key[i+1] < 0xa0 { // a control character of Unicode's second block
			return false
		}
	}
	return true
}

// isMarker reports whether key stands for a directory.
func isMarker(key string) bool { return strings.HasSuffix(key, "/") }

// tagProblem says why an ETag cannot be in the text of a revision, "" if it can.
func tagProblem(tag string) string {
	switch {
	case tag == "":
		return "has no ETag"
	case strings.ContainsFunc(tag, func(c rune) bool { return c <= ' ' || unicode.IsControl(c) || c == utf8.RuneError }):
		return "has an ETag " + quoted(tag) + ", which is none"
	}
	return ""
}

const (
	maxNamed  = 5   // keys that an error names
	maxQuoted = 100 // bytes of a key in an error
)

// named are keys that a text is about: the first of them, and how many there are.
type named struct {
	first []string
	count int
}

// add notes that key has a problem, or nothing more than that it is one of them.
func (n *named) add(key, problem string) {
	if n.count++; n.count <= maxNamed {
		n.first = append(n.first, strings.TrimSpace(quoted(key)+" "+problem))
	}
}

func (n *named) String() string {
	text := strings.Join(n.first, ", ")
	if more := n.count - len(n.first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// quoted quotes a key, shortened.
func quoted(key string) string {
	if len(key) <= maxQuoted {
		return strconv.Quote(key)
	}
	return strconv.Quote(strings.ToValidUTF8(key[:maxQuoted], "")) + "…"
}
