package access

import (
	"slices"
	"strings"

	callers "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
)

// What callers may do, as the file has it.
const (
	fetch  = "fetch"
	read   = "read"
	change = "change"
	debug  = "debug"
)

// A scope is what the file says of a caller beside who it is.
type scope struct {
	May        *[]callers.Pattern `json:"may,omitempty"`
	Namespaces *[]callers.Pattern `json:"namespaces,omitempty"`
	Kinds      *[]callers.Pattern `json:"kinds,omitempty"`
}

func (s *scope) lists() []callers.Scope {
	return []callers.Scope{
		{Field: "may", List: s.May, Check: checkMay, Absent: "all but debug"},
		{Field: "namespaces", List: s.Namespaces, Check: callers.CheckNamespace},
		{Field: "kinds", List: s.Kinds, Check: checkKind, Adjust: kindPattern},
	}
}

// allows reports whether a caller may do what, with the objects of its scope.
func (s *scope) allows(what string) bool {
	if s.May == nil {
		return what != debug
	}
	return slices.Contains(*s.May, callers.Pattern(what))
}

// hasKind reports whether a kind is in the scope, in any of its spellings.
func (s *scope) hasKind(kind string) bool {
	return s.Kinds == nil || callers.Allows(s.Kinds, kind) || slices.ContainsFunc(source.Spellings(kind), func(other string) bool {
		return callers.Allows(s.Kinds, other)
	})
}

func checkMay(p callers.Pattern) string {
	switch p {
	case fetch, read, change, debug:
		return ""
	}
	return document.Quote(string(p)) + " is nothing that callers may do: want one of fetch, read, change, debug"
}

func checkKind(p callers.Pattern) string {
	if strings.Contains(string(p), "*") {
		return callers.CheckText(p)
	}
	if _, known := source.ParseKind(string(p)); !known {
		return document.Quote(string(p)) + " is no kind: want one as GitRepository, or a pattern with *"
	}
	return ""
}

// kindPattern returns a kind as references have it.
func kindPattern(p callers.Pattern) callers.Pattern {
	if kind, known := source.ParseKind(string(p)); known {
		return callers.Pattern(kind)
	}
	return p
}
