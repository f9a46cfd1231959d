package yaml

import (
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf8"
)

const (
	bufSize = 64 << 10
	// window is how much text there is in the buffer where a token begins,
	// unless the document ends before.
	window = 8 << 10
	// slack is how many NULs follow the text in the buffer.
	slack = 8
)

// An input is the text of a document: all of it is valid UTF-8 without
// characters that YAML forbids; what is not ends it.
type input struct {
	src       io.Reader
	buf       []byte // of bufSize + slack bytes; buf[pos:end] is the text, NULs follow
	pos, end  int
	base      int64 // offset of buf[0] in the document
	line      int   // of pos, from 1
	lineStart int   // index in buf where the line of pos begins, possibly below 0
	eof       bool  // nothing comes after end
	bad       error // why nothing comes after end when the document does not end there
	part      [utf8.UTFMax]byte
	parts     int  // bytes of part: the beginning of a character
	json      bool // the document begins with { or [
	decided   bool // json is known
	empty     int  // reads in a row without a byte
}

// fill reads until a window of text is there or the document ends.
func (in *input) fill() {
	if in.pos >= bufSize/2 {
		copy(in.buf, in.buf[in.pos:in.end])
		in.base += int64(in.pos)
		in.lineStart -= in.pos
		in.end -= in.pos
		in.pos = 0
	}
	for in.end-in.pos < window && !in.eof {
		in.read()
	}
	clear(in.buf[in.end : in.end+slack])
}

// ensure makes n bytes of text follow pos, at most a window, unless the document ends.
func (in *input) ensure(n int) {
	if in.end-in.pos < n && !in.eof {
		in.fill()
	}
}

// read appends one read of the source to the text.
func (in *input) read() {
	old := in.end
	copy(in.buf[old:], in.part[:in.parts])
	n, err := in.src.Read(in.buf[old+in.parts : bufSize])
	in.empty++
	switch {
	case n > 0:
		in.empty = 0
	case err == nil && in.empty == 100:
		err = io.ErrNoProgress
	}
	text := in.buf[old : old+in.parts+n]
	in.parts = 0
	if in.base == 0 && old == 0 {
		if len(text) < 3 && err == nil { // it may be part of a byte order mark
			in.parts = copy(in.part[:], text)
			return
		}
		in.begin(text)
	}
	in.decide(text)
	good, problem := in.valid(text)
	in.end = old + good
	switch rest := text[good:]; {
	case in.bad != nil:
	case problem != "":
		in.bad, in.eof = &Error{Problem: problem}, true
	case err == io.EOF:
		in.eof = true
		if len(rest) > 0 {
			in.bad = &Error{Problem: "invalid UTF-8: the document ends within a character"}
		}
	case err != nil:
		in.bad, in.eof = err, true
	default:
		in.parts = copy(in.part[:], rest)
	}
}

// begin looks at the byte order mark.
func (in *input) begin(text []byte) {
	if len(text) >= 2 && (text[0] == 0xFE && text[1] == 0xFF || text[0] == 0xFF && text[1] == 0xFE) {
		in.bad, in.eof = &Error{Problem: "the document is in UTF-16: only UTF-8 is read"}, true
		return
	}
	if len(text) >= 3 && text[0] == 0xEF && text[1] == 0xBB && text[2] == 0xBF {
		in.pos, in.lineStart = 3, 3
	}
}

// decide finds out whether the document begins like JSON.
func (in *input) decide(text []byte) {
	if in.decided {
		return
	}
	if in.base == 0 && in.end == 0 {
		text = text[in.pos:]
	}
	for _, c := range text {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			in.decided, in.json = true, c == '{' || c == '['
			return
		}
	}
}

// valid returns how many bytes of text are whole valid characters, and why the
// one after them is none when it cannot become one.
func (in *input) valid(text []byte) (int, string) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for i < len(text) {
		for i+8 <= len(text) {
			x := binary.LittleEndian.Uint64(text[i:])
			del := x ^ ones*0x7F
			if (x|(x-ones*0x20)|(del-ones)&^del)&highs != 0 {
				break
			}
			i += 8
		}
		stop := min(i+8, len(text))
		for i < stop {
			if c := text[i]; c >= 0x20 && c < 0x7F || c == '\n' {
				i++
				continue
			}
			n, problem := in.character(text[i:])
			if n == 0 {
				return i, problem
			}
			i += n
		}
	}
	return i, ""
}

// character returns the length of the first character of text, or else 0, and
// why it is none when it cannot become one.
func (in *input) character(text []byte) (int, string) {
	c := text[0]
	switch {
	case c == '\r' || c == '\t':
		return 1, ""
	case !utf8.FullRune(text):
		return 0, ""
	}
	v, n := utf8.DecodeRune(text)
	switch {
	case v == utf8.RuneError && n == 1:
		return 0, fmt.Sprintf("invalid UTF-8: byte %#x", c)
	case v < 0x20, !in.json && (v >= 0x7F && v < 0xA0 && v != 0x85 || v == 0xFFFE || v == 0xFFFF):
		return 0, fmt.Sprintf("control character %q", v)
	}
	return n, ""
}

// more makes text follow pos, which is at end. It returns false at the end of
// the document, and when there is no reading on.
func (r *Reader) more() bool {
	r.fill()
	if r.end > r.pos {
		return true
	}
	if r.bad != nil && r.err == nil {
		if e, ok := r.bad.(*Error); ok {
			r.err = &Error{Line: r.line, Problem: e.Problem}
		} else {
			r.err = fmt.Errorf("line %d: %w", r.line, r.bad)
		}
	}
	return false
}
