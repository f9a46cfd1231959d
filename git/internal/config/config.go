// Package config reads the text format that Git keeps its configuration in
// (git-config, "CONFIGURATION FILE"), which .gitmodules and .lfsconfig have, too.
//
// It reads text only: includes are not followed and nothing is interpreted.
// What git refuses is refused, with the line; so are a NUL byte, a section
// without a name and a variable outside of any section.
package config

import (
	"errors"
	"fmt"
	"iter"
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

	section string // with the subsection
}

// Name returns SECTION.KEY or SECTION.SUBSECTION.KEY, as git config --list spells it.
func (e Entry) Name() string { return e.section + "." + e.Key }

// Parse yields the variables of text in their order, and one error, after
// which it ends, for a line that is not well formed.
func Parse(text string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s := &scanner{text: strings.TrimPrefix(text, "\ufeff"), line: 1}
		if nul := strings.IndexByte(text, 0); nul >= 0 {
			yield(Entry{}, fmt.Errorf("line %d: a NUL byte", 1+strings.Count(text[:nul], "\n")))
			return
		}
		for {
			e, ok, err := s.next()
			if err != nil {
				yield(Entry{}, fmt.Errorf("line %d: %w", s.line, err))
				return
			}
			if !ok || !yield(e, nil) {
				return
			}
		}
	}
}

// A scanner is somewhere in a text.
type scanner struct {
	text string
	pos  int
	line int // of the character at pos

	name, section, sub string // of the section; name is both
}

// end is what peek returns behind the text.
const end = '\n'

// peek returns the character at s; a line break is one character however it is written.
func (s *scanner) peek() byte {
	switch {
	case s.pos >= len(s.text):
		return end
	case strings.HasPrefix(s.text[s.pos:], "\r\n"):
		return '\n'
	}
	return s.text[s.pos]
}

// take returns the character at s and goes on behind it.
func (s *scanner) take() byte {
	c := s.peek()
	if s.pos < len(s.text) {
		if c == '\n' {
			s.line++
			if s.text[s.pos] == '\r' {
				s.pos++
			}
		}
		s.pos++
	}
	return c
}

// word takes the characters for which of is true.
func (s *scanner) word(of func(byte) bool) string {
	start := s.pos
	s.skip(of)
	return s.text[start:s.pos]
}

// skip goes on to the first character for which while is false.
func (s *scanner) skip(while func(byte) bool) {
	for s.pos < len(s.text) && while(s.peek()) {
		s.take()
	}
}

func isBlank(c byte) bool  { return c == ' ' || c == '\t' || c == '\r' }
func isSpace(c byte) bool  { return isBlank(c) || c == '\n' }
func isRemark(c byte) bool { return c == '#' || c == ';' }
func inLine(c byte) bool   { return c != '\n' }
func isAlpha(c byte) bool  { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isKey(c byte) bool    { return isAlpha(c) || '0' <= c && c <= '9' || c == '-' }

var (
	errSection = errors.New(`a section that is not written [NAME] or [NAME "SUBSECTION"]`)
	errKey     = errors.New("neither a section, nor KEY = VALUE, nor a comment")
	errOutside = errors.New("a variable outside of any section")
	errQuote   = errors.New("a quote that is not closed")
	errEscape  = errors.New(`a backslash before something else than ", \, n, t, b or the end of the line`)
)

// next returns the next variable; ok is false at the end of the text.
func (s *scanner) next() (e Entry, ok bool, err error) {
	for {
		s.skip(isSpace)
		if s.pos == len(s.text) {
			return Entry{}, false, nil
		}
		switch c := s.peek(); {
		case isRemark(c):
			s.skip(inLine)
		case c == '[':
			if err := s.header(); err != nil {
				return Entry{}, false, err
			}
		case !isAlpha(c):
			return Entry{}, false, errKey
		case s.name == "":
			return Entry{}, false, errOutside
		default:
			e, err := s.variable()
			return e, true, err
		}
	}
}

// header reads the head of a section.
func (s *scanner) header() error {
	s.take()
	s.name = strings.ToLower(s.word(func(c byte) bool { return isKey(c) || c == '.' }))
	if s.name == "" {
		return errSection
	}
	s.section, s.sub, _ = strings.Cut(s.name, ".") // the old spelling of a subsection
	if isBlank(s.peek()) {
		s.skip(isBlank)
		sub, err := s.subsection()
		if err != nil {
			return err
		}
		s.name += "." + sub
		s.sub = s.name[len(s.section)+1:]
	}
	if s.peek() != ']' {
		return errSection
	}
	s.take()
	return nil
}

// subsection reads a name in quotes.
func (s *scanner) subsection() (string, error) {
	if s.peek() != '"' {
		return "", errSection
	}
	s.take()
	var name strings.Builder
	for {
		c := s.peek()
		if c == '\\' {
			s.take()
			c = s.peek()
		} else if c == '"' {
			s.take()
			return name.String(), nil
		}
		if c == '\n' {
			return "", errQuote
		}
		name.WriteByte(s.take())
	}
}

// variable reads one variable of the section.
func (s *scanner) variable() (Entry, error) {
	e := Entry{Section: s.section, Subsection: s.sub, Line: s.line, section: s.name}
	e.Key = strings.ToLower(s.word(isKey))
	s.skip(func(c byte) bool { return c == ' ' || c == '\t' })
	if e.Bare = s.peek() == '\n'; e.Bare {
		return e, nil
	}
	if s.peek() != '=' {
		return Entry{}, errKey
	}
	s.take()
	var err error
	e.Value, err = s.value()
	return e, err
}

// value reads a value up to the end of its last line.
func (s *scanner) value() (string, error) {
	s.skip(isBlank)
	var value strings.Builder
	length := 0 // of value without the space at its end
	for quoted := false; ; {
		switch c := s.peek(); {
		case c == '\n' && quoted:
			return "", errQuote
		case c == '\n':
			return value.String()[:length], nil
		case c == '"':
			s.take()
			quoted = !quoted
			length = value.Len()
		case c == '\\':
			s.take()
			if err := s.escape(&value); err != nil {
				return "", err
			}
			length = value.Len()
		case !quoted && isRemark(c):
			s.skip(inLine)
		default:
			value.WriteByte(s.take())
			if quoted || !isBlank(c) {
				length = value.Len()
			}
		}
	}
}

// escapes are the characters that a backslash can stand before in a value.
var escapes = map[byte]string{'"': `"`, '\\': `\`, 'n': "\n", 't': "\t", 'b': "\b", '\n': ""}

// escape reads what follows a backslash in a value. A line break there is none.
func (s *scanner) escape(value *strings.Builder) error {
	text, ok := escapes[s.peek()]
	if !ok {
		return errEscape
	}
	s.take()
	value.WriteString(text)
	return nil
}
