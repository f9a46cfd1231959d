package access

import "strings"

// A Pattern matches whole texts; each * stands for any text, also for none.
type Pattern string

// Match reports whether text is one that p stands for. It takes time linear in
// both for each *.
func (p Pattern) Match(text string) bool {
	head, rest, star := strings.Cut(string(p), "*")
	if !star {
		return text == head
	}
	text, found := strings.CutPrefix(text, head)
	if !found {
		return false
	}
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text, rest = text[at+len(part):], next
	}
}

// Allows reports whether a scope has text; nil allows everything.
func Allows(scope *[]Pattern, text string) bool {
	if scope == nil {
		return true
	}
	for _, p := range *scope {
		if p.Match(text) {
			return true
		}
	}
	return false
}
