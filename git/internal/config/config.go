// Package config parses the format of Git's configuration files (git-config,
// "CONFIGURATION FILE"), which .gitmodules and .lfsconfig use too.
//
// It only parses text: it follows no includes and interprets no values. It refuses
// what git refuses, and names the line; it also refuses a NUL byte, a section without
// a name and a variable outside of any section.
package config

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
)

// An Entry is one variable. The same one may be set several times.
type Entry struct {
	Section    string // in lower case
	Subsection string // as written, "" where there is none
	Key        string // in lower case
	Value      string // without quotes, escapes and comment
	Bare       bool   // there is no "=" and hence no Value: it stands for true
	Line       int    // 1-based

	fullSection string // with the subsection
}

// Name returns SECTION.KEY or SECTION.SUBSECTION.KEY, as git config --list spells it.
func (e Entry) Name() string { return e.fullSection + "." + e.Key }

var (
	errSection = errors.New(`a section that is not written [NAME] or [NAME "SUBSECTION"]`)
	errKey     = errors.New("neither a section, nor KEY = VALUE, nor a comment")
	errOutside = errors.New("a variable outside of any section")
	errQuote   = errors.New("a quote that is not closed")
	errEscape  = errors.New(`a backslash before something else than ", \, n, t, b or the end of the line`)
	errNUL     = errors.New("a NUL byte")
)

// The parts of a text.
var (
	blanksAndComments = regexp.MustCompile(`^(?:[ \t\r\n]|[#;][^\n]*)*`)
	header            = regexp.MustCompile(`^\[([-0-9A-Za-z.]+)([ \t\r]+"((?:[^"\\\n]|\\[^\n])*)")?\]`)
	unclosedHeader    = regexp.MustCompile(`^\[[-0-9A-Za-z.]+[ \t\r]+"(?:[^"\\\n]|\\[^\n])*\\?(?:\n|$)`)
	quoted            = regexp.MustCompile(`(?s)\\(.)`)
	variableStart     = regexp.MustCompile(`^([A-Za-z][-0-9A-Za-z]*)[ \t]*(=[ \t\r]*|\n|$)`)
)

// Parse yields the variables of text in their order. At the first line that is not
// well formed it yields an error and ends.
func Parse(text string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		rest := strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
		e := Entry{Line: 1}
		cut := func(n int) {
			e.Line += strings.Count(rest[:n], "\n")
			rest = rest[n:]
		}
		fail := func(err error) { yield(Entry{}, fmt.Errorf("line %d: %w", e.Line, err)) }
		if nul := strings.IndexByte(rest, 0); nul >= 0 {
			cut(nul)
			fail(errNUL)
			return
		}
		for {
			cut(len(blanksAndComments.FindString(rest)))
			if rest == "" {
				return
			}
			if rest[0] == '[' {
				m := header.FindStringSubmatch(rest)
				switch {
				case m == nil && unclosedHeader.MatchString(rest):
					fail(errQuote)
					return
				case m == nil:
					fail(errSection)
					return
				}
				e.fullSection = strings.ToLower(m[1])
				if m[2] != "" {
					e.fullSection += "." + quoted.ReplaceAllString(m[3], "$1")
				}
				name, _, _ := strings.Cut(strings.ToLower(m[1]), ".") // the old spelling of a subsection
				e.Section, e.Subsection = name, strings.TrimPrefix(e.fullSection[len(name):], ".")
				cut(len(m[0]))
				continue
			}
			m := variableStart.FindStringSubmatch(rest)
			switch {
			case m == nil && !('a' <= rest[0]|0x20 && rest[0]|0x20 <= 'z') || m == nil && e.fullSection != "":
				fail(errKey)
				return
			case e.fullSection == "":
				fail(errOutside)
				return
			}
			found := e
			found.Key, found.Bare = strings.ToLower(m[1]), !strings.HasPrefix(m[2], "=")
			if cut(len(m[0])); !found.Bare {
				n := 0
				var err error
				found.Value, n, err = parseValue(rest)
				if cut(n); err != nil {
					fail(err)
					return
				}
			}
			if !yield(found, nil) {
				return
			}
		}
	}
}

// escapes maps each character that may follow a backslash in a value to the text that
// the escape stands for.
var escapes = map[byte]string{'"': `"`, '\\': `\`, 'n': "\n", 't': "\t", 'b': "\b", '\n': ""}

// parseValue reads a value up to the end of its last line, which is n bytes into s.
func parseValue(s string) (v string, n int, err error) {
	var b strings.Builder
	length := 0 // of the value without trailing space
	for inQuotes := false; ; n++ {
		switch end := n >= len(s); {
		case end || s[n] == '\n':
			if inQuotes {
				err = errQuote
			}
			return b.String()[:length], min(n, len(s)), err
		case s[n] == '"':
			inQuotes = !inQuotes
			length = b.Len()
		case s[n] == '\\':
			n++
			text, ok := escapes['\n']
			if n < len(s) {
				text, ok = escapes[s[n]]
			}
			if !ok {
				return "", n - 1, errEscape
			}
			b.WriteString(text)
			length = b.Len()
		case !inQuotes && (s[n] == '#' || s[n] == ';'):
			line, _, _ := strings.Cut(s[n:], "\n")
			n += len(line) - 1
		default:
			b.WriteByte(s[n])
			if inQuotes || s[n] != ' ' && s[n] != '\t' && s[n] != '\r' {
				length = b.Len()
			}
		}
	}
}
