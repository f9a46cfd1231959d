package access

import (
	"strings"
	"unicode"

	"github.com/headgate-io/headgate/internal/document"
)

// A Scope is one list of patterns that a caller may have in the file.
type Scope struct {
	Field  string
	List   *[]Pattern              // nil when it is left out
	Check  func(Pattern) string    // says what is wrong with a pattern, "" for nothing
	Adjust func(p Pattern) Pattern // makes it the one that is compared; nil for the same
	Absent string                  // what leaving it out allows; default all
}

// CheckText is the check of names that may be anything.
func CheckText(p Pattern) string {
	if p == "" || strings.ContainsFunc(string(p), func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "must be a name, or a pattern with *"
	}
	return ""
}

// CheckNamespace is the check of namespaces.
func CheckNamespace(p Pattern) string {
	plain := strings.ReplaceAll(string(p), "*", "")
	if p == "" || strings.Trim(plain, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return document.Quote(string(p)) + " is no namespace: write lower-case letters, digits and '-', and * for any text"
	}
	return ""
}
