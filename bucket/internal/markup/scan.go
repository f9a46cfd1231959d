// Package markup takes XML apart as far as stores write it.
package markup

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Scanner takes XML apart: elements, text, CDATA sections, comments and
// processing instructions, but no document type. encoding/xml takes thirty times
// as long, which is most of the time that a listing needs.
type Scanner struct {
	Text string // what is left

	open []string // names of the elements that are open, outermost first
	void bool     // the innermost one has no content: its end comes next
}

// A Kind is what a token is.
type Kind int

// The kinds of tokens.
const (
	Start Kind = iota // an element: its name, without prefix
	End
	Text // as it is written, see [Token.Meant]
	Data // as it is meant
)

// A Token is a part of a text.
type Token struct {
	Kind       Kind
	Text       string
	Attributes string // of a Start, as they are written
}

const maxDepth = 16 // of elements; listings have 4

var (
	errCutShort = errors.New("the answer ends too early")
	errNoXML    = errors.New("the answer is no XML as stores write it")
)

// Next returns the next token. After the end of the outermost element there is none.
func (s *Scanner) Next() (Token, error) {
	if s.void {
		s.void = false
		return s.pop(s.open[len(s.open)-1])
	}
	for {
		at := strings.IndexByte(s.Text, '<')
		switch {
		case at < 0:
			return Token{}, errCutShort
		case at > 0:
			text := s.take(at)
			if len(s.open) > 0 {
				return Token{Kind: Text, Text: text}, nil
			}
			if strings.Trim(text, "\ufeff \t\r\n") != "" {
				return Token{}, errNoXML
			}
			continue
		}
		t, found, err := s.markup()
		if found || err != nil {
			return t, err
		}
	}
}

// take returns the first n bytes of what is left, and goes on behind them.
func (s *Scanner) take(n int) string {
	text := s.Text[:n]
	s.Text = s.Text[n:]
	return text
}

// through returns what is left up to end, which it passes over.
func (s *Scanner) through(end string) (string, error) {
	text, rest, found := strings.Cut(s.Text, end)
	if !found {
		return "", errCutShort
	}
	s.Text = rest
	return text, nil
}

// markup reads what begins with <; found is false when it means nothing.
func (s *Scanner) markup() (t Token, found bool, err error) {
	for _, m := range []struct {
		begin, end string
		found      bool
	}{{"<?", "?>", false}, {"<!--", "-->", false}, {"<![CDATA[", "]]>", true}} {
		if strings.HasPrefix(s.Text, m.begin) {
			s.take(len(m.begin))
			text, err := s.through(m.end)
			return Token{Kind: Data, Text: text}, m.found, err
		}
	}
	if strings.HasPrefix(s.Text, "</") {
		s.take(len("</"))
		name, err := s.through(">")
		if err == nil {
			t, err = s.pop(strings.TrimRight(name, " \t\r\n"))
		}
		return t, true, err
	}
	t, err = s.push()
	return t, true, err
}

// push reads the start of an element.
func (s *Scanner) push() (Token, error) {
	s.take(len("<"))
	end := strings.IndexAny(s.Text, " \t\r\n/>")
	switch {
	case end < 0:
		return Token{}, errCutShort
	case end == 0 || s.Text[0] == '!' || len(s.open) == maxDepth:
		return Token{}, errNoXML
	}
	name := s.take(end)
	behind := s.Text
	if err := s.attributes(); err != nil {
		return Token{}, err
	}
	s.open = append(s.open, name)
	return Token{Start, local(name), strings.Trim(behind[:len(behind)-len(s.Text)], " \t\r\n/>")}, nil
}

// attributes passes over what stands in a tag behind its name.
func (s *Scanner) attributes() error {
	for {
		at := strings.IndexAny(s.Text, `"'/>`)
		if at < 0 {
			return errCutShort
		}
		s.take(at)
		switch quote := s.take(1); {
		case quote == ">":
			return nil
		case quote != "/":
			if _, err := s.through(quote); err != nil {
				return err
			}
		case strings.HasPrefix(s.Text, ">"):
			s.take(1)
			s.void = true
			return nil
		}
	}
}

// pop ends the innermost element, which must have the name.
func (s *Scanner) pop(name string) (Token, error) {
	last := len(s.open) - 1
	if last < 0 || s.open[last] != name {
		return Token{}, errNoXML
	}
	s.open = s.open[:last]
	return Token{Kind: End, Text: local(name)}, nil
}

// local returns a name without the prefix of its name space.
func local(name string) string { return name[strings.LastIndexByte(name, ':')+1:] }

var entities = map[string]string{"lt": "<", "gt": ">", "amp": "&", "quot": `"`, "apos": "'"}

// lines returns text with the line breaks that XML has (XML 1.0, section 2.11).
func lines(text string) string {
	if strings.IndexByte(text, '\r') < 0 {
		return text
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// Meant returns what the text of a token means.
func (t Token) Meant() (string, error) {
	text := lines(t.Text)
	if t.Kind == Data {
		return text, nil
	}
	return unescape(text)
}

// unescape returns what a text means.
func unescape(text string) (string, error) {
	at := strings.IndexByte(text, '&')
	if at < 0 {
		return text, nil
	}
	var b strings.Builder
	b.Grow(len(text))
	for ; at >= 0; at = strings.IndexByte(text, '&') {
		b.WriteString(text[:at])
		name, rest, ended := strings.Cut(text[at+1:], ";")
		meant, err := entity(name)
		if err != nil || !ended {
			return "", errNoXML
		}
		b.WriteString(meant)
		text = rest
	}
	b.WriteString(text)
	return b.String(), nil
}

// entity returns what a name between & and ; stands for.
func entity(name string) (string, error) {
	if meant, known := entities[name]; known {
		return meant, nil
	}
	digits, numbered := strings.CutPrefix(name, "#")
	base := 10
	if hex, found := strings.CutPrefix(digits, "x"); found {
		digits, base = hex, 16
	}
	code, err := strconv.ParseUint(digits, base, 31)
	if err != nil || !numbered || !utf8.ValidRune(rune(code)) {
		return "", errNoXML
	}
	return string(rune(code)), nil
}
