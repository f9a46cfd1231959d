package index

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// lineInfo describes a line.
type lineInfo struct {
	starts bool   // a node begins on it; otherwise it is blank, a comment, or continues a scalar
	dash   bool   // the node is an element of a list
	column int    // of the first character that is not a space
	key    []byte // the key on it, after any dashes; nil if there is none or it has escapes
	keyAt  int    // column of the key
	value  int    // column after the colon of the key
	empty  bool   // nothing follows the key or the last dash
}

// lineParser parses YAML in block style line by line, only as far as needed to know which lines
// begin a node, at which column, and where scalars of several lines end. It does not
// understand collections in flow style, unless they are empty, anchors, aliases, tags,
// explicit keys, directives, further documents, and tabs in place of spaces.
type lineParser struct {
	begun bool // there was content
	// The last node follows a key or a dash at column parent. Everything further to the
	// right belongs to it: if it is a scalar, any line is its text; if nothing followed,
	// the node is still to come.
	parent int
	scalar bool
	quote  byte // of a quoted scalar that is still open, else 0
}

// read classifies a line, which is given without its line break. It returns false if it
// does not understand the line.
func (l *lineParser) read(line []byte) (c lineInfo, ok bool) {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if l.quote != 0 {
		end := closingQuote(line, 0, l.quote)
		if end < 0 {
			return c, true
		}
		l.quote = 0
		return c, onlyCommentFollows(line, end+1)
	}
	i := 0
	for i < len(line) && line[i] == ' ' {
		i++
	}
	switch {
	case i == len(line):
		return c, true
	case l.scalar && i > l.parent:
		return c, true
	case line[i] == '#':
		return c, true
	case i == 0 && isDocumentMarker(line):
		ok = !l.begun && string(line) == "---"
		l.begun = true
		return c, ok
	}
	c.starts, c.column = true, i
	if !l.begun {
		l.begun, l.parent = true, -1
	}
	return c, l.node(line, i, &c)
}

// isDocumentMarker reports whether a line that is not indented begins or ends a document.
func isDocumentMarker(line []byte) bool {
	return len(line) >= 3 && (string(line[:3]) == "---" || string(line[:3]) == "...") && (len(line) == 3 || line[3] == ' ' || line[3] == '\t')
}

// node reads dashes and a key from column i, and the value after them.
func (l *lineParser) node(line []byte, i int, c *lineInfo) bool {
	inner := !l.scalar && i > l.parent // it is the node that was still to come
	parent := l.parent
	for line[i] == '-' && (i+1 == len(line) || line[i+1] == ' ') {
		c.dash, inner, parent = true, true, i
		for i++; i < len(line) && line[i] == ' '; i++ {
		}
		if i == len(line) || line[i] == '#' {
			c.empty = true
			return l.setParent(parent, false)
		}
	}
	value, known := l.key(line, i, c)
	switch {
	case !known:
		return false
	case value >= 0:
		c.keyAt, c.value = i, value
		return l.value(line, value, i, c)
	case !inner:
		return false
	}
	return l.value(line, i, parent, c)
}

// key finds a key at column i. It returns the column after its colon, or -1 if there is no
// key, and false if it cannot tell.
func (l *lineParser) key(line []byte, i int, c *lineInfo) (value int, ok bool) {
	if q := line[i]; q == '"' || q == '\'' {
		return quotedKey(line, i, q, c)
	}
	if opens[line[i]] != opensPlain {
		return -1, true
	}
	for at := i; ; {
		n := bytes.IndexByte(line[at:], ':')
		if n < 0 {
			return -1, true
		}
		at += n + 1
		if at == len(line) || line[at] == ' ' {
			end := at - 1
			for line[end-1] == ' ' || line[end-1] == '\t' { // stops at line[i], which is not blank
				end--
			}
			c.key = line[i:end]
			return at, bytes.IndexByte(c.key, '#') < 0
		}
		if line[at] == '\t' {
			return -1, false
		}
	}
}

// quotedKey is key for a quoted key.
func quotedKey(line []byte, i int, q byte, c *lineInfo) (value int, ok bool) {
	end := closingQuote(line, i+1, q)
	if end < 0 {
		return -1, true
	}
	colon := end + 1
	for colon < len(line) && line[colon] == ' ' {
		colon++
	}
	if colon == len(line) || line[colon] != ':' {
		return -1, true
	}
	if text := line[i+1 : end]; !bytes.ContainsAny(text, `\'`) {
		c.key = text
	}
	return colon + 1, colon+1 == len(line) || line[colon+1] == ' '
}

// value reads the value after a key or a dash at column parent.
func (l *lineParser) value(line []byte, i, parent int, c *lineInfo) bool {
	for i < len(line) && line[i] == ' ' {
		i++
	}
	if i == len(line) || line[i] == '#' && line[i-1] == ' ' {
		c.empty = true
		return l.setParent(parent, false)
	}
	end := l.inline(line, i)
	return end >= 0 && onlyCommentFollows(line, end) && l.setParent(parent, true)
}

// inline returns the column after the part of a value that is on the line, or -1 if it does
// not understand the value.
func (l *lineParser) inline(line []byte, i int) int {
	switch b := line[i]; opens[b] {
	case opensPlain:
		return len(line)
	case opensIndicator: // a key that begins with an indicator is not understood
		if i+1 < len(line) && opens[line[i+1]] == opensPlain && bytes.IndexByte(line[i+1:], ':') < 0 {
			return len(line)
		}
	case opensQuoted:
		if end := closingQuote(line, i+1, b); end >= 0 {
			return end + 1
		}
		l.quote = b
		return len(line)
	case opensLiteral:
		return len(line) - len(bytes.TrimLeft(line[i+1:], "+-123456789"))
	case opensFlow: // only an empty one
		if i+1 < len(line) && line[i+1] == b+2 {
			return i + 2
		}
	}
	return -1
}

func (l *lineParser) setParent(parent int, scalar bool) bool {
	l.parent, l.scalar = parent, scalar
	return true
}

// The meaning of the first byte of a node in block style. The zero value is for bytes that
// are not understood.
const (
	opensPlain     = iota + 1 // a scalar without quotes
	opensIndicator            // a plain scalar if an opensPlain byte follows
	opensQuoted
	opensLiteral // a scalar on the following lines
	opensFlow    // a collection in flow style
)

var opens = func() (t [256]byte) {
	for b := 0x80; b <= 0xFF; b++ {
		t[b] = opensPlain
	}
	for _, b := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789$()+./;<=^_~\\") {
		t[b] = opensPlain
	}
	for from, to := range map[string]byte{"-?:": opensIndicator, `"'`: opensQuoted, "|>": opensLiteral, "[{": opensFlow} {
		for _, b := range []byte(from) {
			t[b] = to
		}
	}
	return t
}()

// closingQuote returns the index of the quote that ends a quoted scalar whose text continues at
// i, or -1 if the quote is not on the line.
func closingQuote(line []byte, i int, q byte) int {
	for i < len(line) {
		n := bytes.IndexByte(line[i:], q)
		if n < 0 {
			return -1
		}
		end := i + n
		switch {
		case q == '"':
			slashes := 0
			for end-slashes > i && line[end-slashes-1] == '\\' {
				slashes++
			}
			if slashes%2 == 0 {
				return end
			}
			i = end + 1
		case end+1 < len(line) && line[end+1] == q:
			i = end + 2
		default:
			return end
		}
	}
	return -1
}

// onlyCommentFollows reports whether nothing but a comment follows from column i.
func onlyCommentFollows(line []byte, i int) bool {
	at := i
	for at < len(line) && line[at] == ' ' {
		at++
	}
	return at == len(line) || at > i && line[at] == '#'
}

// oddBreak reports whether a line, which ends with "\n", has line breaks other than that
// and "\r\n".
func oddBreak(line []byte) bool {
	if at := bytes.IndexByte(line, '\r'); at >= 0 && at != len(line)-2 {
		return true
	}
	return !isASCII(line) && (bytes.Contains(line, nextLine) || bytes.Contains(line, lineSeparator) || bytes.Contains(line, paragraphSeparator))
}

var nextLine, lineSeparator, paragraphSeparator = []byte("\u0085"), []byte("\u2028"), []byte("\u2029")

// isASCII reports whether a line has ASCII characters only. It checks eight bytes at a time,
// because for most lines of an index this check is the main cost.
func isASCII(line []byte) bool {
	for ; len(line) >= 8; line = line[8:] {
		if binary.NativeEndian.Uint64(line)&0x8080808080808080 != 0 {
			return false
		}
	}
	for _, b := range line {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
