package s3

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A scanner takes XML apart as far as stores write it: elements, whose
// attributes are passed over, text, CDATA sections, comments and processing
// instructions, but no document type. encoding/xml takes thirty times as long,
// which is most of the time that a listing needs.
type scanner struct {
	text string
	open []string // names of the elements that are open, outermost first
	void bool     // the innermost one has no content: its end comes next
}

// A kind is what a token is.
type kind int

const (
	startOf kind = iota // an element: its name, without prefix
	endOf
	textOf // as it is written, see unescape
	dataOf // as it is meant
)

type token struct {
	kind kind
	text string
}

const maxDepth = 16 // of elements; listings have 4

var (
	errCutShort = errors.New("the answer ends too early")
	errNoXML    = errors.New("the answer is no XML as stores write it")
)

// next returns the next token. After the end of the outermost element there is none.
func (s *scanner) next() (token, error) {
	if s.void {
		s.void = false
		return s.pop(s.open[len(s.open)-1])
	}
	for {
		at := strings.IndexByte(s.text, '<')
		switch {
		case at < 0:
			return token{}, errCutShort
		case at > 0:
			text := s.take(at)
			if len(s.open) > 0 {
				return token{textOf, text}, nil
			}
			if strings.Trim(text, "\ufeff \t\r\n") != "" {
				return token{}, errNoXML
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
func (s *scanner) take(n int) string {
	text := s.text[:n]
	s.text = s.text[n:]
	return text
}

// through returns what is left up to end, which it passes over.
func (s *scanner) through(end string) (string, error) {
	text, rest, found := strings.Cut(s.text, end)
	if !found {
		return "", errCutShort
	}
	s.text = rest
	return text, nil
}

// markup reads what begins with <; found is false when it means nothing.
func (s *scanner) markup() (t token, found bool, err error) {
	for _, m := range []struct {
		begin, end string
		found      bool
	}{{"<?", "?>", false}, {"<!--", "-->", false}, {"<![CDATA[", "]]>", true}} {
		if strings.HasPrefix(s.text, m.begin) {
			s.take(len(m.begin))
			text, err := s.through(m.end)
			return token{dataOf, text}, m.found, err
		}
	}
	if strings.HasPrefix(s.text, "</") {
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
func (s *scanner) push() (token, error) {
	s.take(len("<"))
	end := strings.IndexAny(s.text, " \t\r\n/>")
	switch {
	case end < 0:
		return token{}, errCutShort
	case end == 0 || s.text[0] == '!' || len(s.open) == maxDepth:
		return token{}, errNoXML
	}
	name := s.take(end)
	if err := s.attributes(); err != nil {
		return token{}, err
	}
	s.open = append(s.open, name)
	return token{startOf, local(name)}, nil
}

// attributes passes over what stands in a tag behind its name.
func (s *scanner) attributes() error {
	for {
		at := strings.IndexAny(s.text, `"'/>`)
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
		case strings.HasPrefix(s.text, ">"):
			s.take(1)
			s.void = true
			return nil
		}
	}
}

// pop ends the innermost element, which must have the name.
func (s *scanner) pop(name string) (token, error) {
	last := len(s.open) - 1
	if last < 0 || s.open[last] != name {
		return token{}, errNoXML
	}
	s.open = s.open[:last]
	return token{endOf, local(name)}, nil
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
