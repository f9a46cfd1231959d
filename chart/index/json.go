package index

import (
	"bufio"
	"bytes"
	"encoding/json"
)

// A jsonScanner reads an index in JSON. It finds where entries begin and end, and decodes
// those of the wanted charts. Text that is not JSON is a [layoutError], since it may be
// YAML in flow style. Values that are not needed are skipped without a full check of their
// syntax.
type jsonScanner struct {
	*visitor
	in        *bufio.Reader
	line      int
	recording recording
}

func (s *jsonScanner) scan() error {
	err := s.members(func(name string, first byte) error {
		switch {
		case name == "entries" && first == '{':
			return s.members(s.versions)
		case name != "apiVersion" && (s.sum == nil || name == "generated"):
			return s.value(false)
		}
		if err := s.value(true); err != nil {
			return err
		}
		s.recording.addTo(s.sum, "field")
		text := string(s.recording.all)
		switch {
		case name == "entries" && text != "null", name == "apiVersion" && (text == "null" || text == `""` || first == '{' || first == '['):
			return s.newLayoutError()
		case name == "apiVersion":
			s.apiVersion = true
		}
		return nil
	})
	if err == nil && !s.apiVersion {
		err = s.newLayoutError()
	}
	return err
}

// versions reads the list of a chart.
func (s *jsonScanner) versions(chart string, first byte) error {
	if !s.chart(chart) {
		return s.value(false)
	}
	if first != '[' {
		line := s.line
		err := s.value(true)
		if err == nil && string(s.recording.all) != "null" {
			s.recording.addTo(s.sum, chart)
			s.malformed(chart, line, errNoList)
		}
		return err
	}
	count := 0
	return s.elements('[', ']', func(byte) error {
		if count++; count > versionLimit {
			return tooManyVersions(s.line, chart)
		}
		v := version{line: s.line}
		if err := s.value(true); err != nil {
			return err
		}
		s.recording.addTo(s.sum, chart)
		if s.recording.size > entrySize || s.recording.size+valueSize*estimateValues(s.recording.all) > entrySize {
			v.problem = errBig
		} else if !v.readJSON(s.recording.all) {
			return s.newLayoutError()
		}
		return s.version(chart, v)
	})
}

// members calls do for each member of the object that begins next, with the name and the
// first byte of the value. do must read the value.
func (s *jsonScanner) members(do func(name string, first byte) error) error {
	return s.elements('{', '}', func(first byte) error {
		if first != '"' {
			return s.newLayoutError()
		}
		if err := s.value(true); err != nil {
			return err
		}
		var name string
		if s.recording.size > entrySize || json.Unmarshal(s.recording.all, &name) != nil || s.expect(':') != nil {
			return s.newLayoutError()
		}
		first, err := s.next()
		if err != nil {
			return err
		}
		return do(name, first)
	})
}

// elements calls do for each element of the collection that begins next, with the first
// byte of the element. do must read the element.
func (s *jsonScanner) elements(open, end byte, do func(first byte) error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	c, err := s.next()
	for first := true; err == nil && (c != end || !first); first = false {
		if err := do(c); err != nil {
			return err
		}
		if c, err = s.next(); err != nil || c == end {
			break
		}
		if err = s.expect(','); err == nil {
			c, err = s.next()
		}
	}
	if err != nil {
		return err
	}
	return s.expect(end)
}

// expect reads a byte and returns an error unless it is the given punctuation.
func (s *jsonScanner) expect(punctuation byte) error {
	c, err := s.next()
	if err == nil && c != punctuation {
		err = s.newLayoutError()
	}
	s.in.Discard(1)
	return err
}

// next skips white space and returns the next byte without consuming it. The end of the
// index is an error.
func (s *jsonScanner) next() (byte, error) {
	for {
		c, err := s.in.ReadByte()
		switch {
		case err != nil:
			return 0, s.newLayoutError()
		case c == '\n':
			s.line++
		case c != ' ' && c != '\t' && c != '\r':
			return c, s.in.UnreadByte()
		}
	}
}

func (s *jsonScanner) newLayoutError() error { return &layoutError{s.line} }

// value reads the value that begins next, and records it if record is set.
func (s *jsonScanner) value(record bool) error {
	r := &s.recording
	r.start(s.line)
	var k skipper
	for {
		if _, err := s.in.Peek(1); err != nil {
			return s.newLayoutError()
		}
		text, _ := s.in.Peek(s.in.Buffered())
		n, state := k.skip(text)
		if record {
			r.add(text[:n], nil)
		}
		s.line += bytes.Count(text[:n], []byte{'\n'})
		s.in.Discard(n)
		switch state {
		case skipDone:
			if r.all = bytes.TrimRight(r.all, " \t\r\n"); r.size <= entrySize {
				r.size = len(r.all)
			}
			return nil
		case skipUnclear:
			return s.newLayoutError()
		}
	}
}

// A skipper skips one JSON value, chunk by chunk. It stops at text that cannot be JSON if
// that affects where strings and collections end.
type skipper struct {
	depth   int  // open brackets
	quoted  bool // inside a string
	escaped bool // after a backslash
	after   jsonPart
}

// A jsonPart is the last token that a skipper has skipped, apart from white space.
type jsonPart uint8

const (
	afterPunctuation jsonPart = iota // a value may come next
	afterWhole                       // a string or a collection
	afterWord                        // a number or a name
)

// A skipState says why skip stopped.
type skipState uint8

const (
	skipMore skipState = iota // at the end of the text
	skipDone                  // after the value
	skipUnclear
)

// skip reads text, which continues the text of the last call. It returns the number of
// bytes that belong to the value.
func (s *skipper) skip(text []byte) (int, skipState) {
	for i := 0; i < len(text); i++ {
		if s.quoted {
			if i = s.string(text, i); s.quoted {
				return len(text), skipMore
			}
		}
		if i == len(text) {
			break
		}
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n':
		case '"', '{', '[':
			if s.after != afterPunctuation {
				return i, skipUnclear
			}
			if c == '"' {
				s.quoted, s.after = true, afterWhole
			} else {
				s.depth++
			}
		case ',', '}', ']', ':':
			switch {
			case s.depth == 0:
				return i, skipDone
			case c == ':' && s.after != afterWhole:
				return i, skipUnclear
			case c == ',' || c == ':':
				s.after = afterPunctuation
			default:
				s.depth, s.after = s.depth-1, afterWhole
			}
		default:
			if c != '+' && c != '-' && c != '.' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return i, skipUnclear
			}
			s.after = afterWord
		}
	}
	return len(text), skipMore
}

// string reads on past the end of a string and returns the index after it, or len(text) if
// the string does not end in text.
func (s *skipper) string(text []byte, i int) int {
	if s.escaped && i < len(text) {
		s.escaped = false
		i++
	}
	for from := i; ; {
		n := bytes.IndexByte(text[i:], '"')
		end := i + n
		if n < 0 {
			end = len(text)
		}
		slashes := 0
		for end-slashes > from && text[end-slashes-1] == '\\' {
			slashes++
		}
		switch {
		case n < 0:
			s.escaped = slashes%2 == 1
			return end
		case slashes%2 == 0:
			s.quoted = false
			return end + 1
		}
		i, from = end+1, end+1
	}
}
