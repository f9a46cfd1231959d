package index

import "bytes"

// What the first byte of a node says in block style. The zero value is for all
// that is not understood.
const (
	opensPlain     = iota + 1 // a scalar without quotes
	opensIndicator            // likewise, when a byte of that class follows
	opensQuoted
	opensLiteral // a scalar that follows on its own lines
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

// closing returns the index of the quote that ends a quoted scalar whose text
// goes on at i, -1 when it is not on the line.
func closing(line []byte, i int, q byte) int {
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

// ends tells whether there is at most a comment from column i.
func ends(line []byte, i int) bool {
	at := i
	for at < len(line) && line[at] == ' ' {
		at++
	}
	return at == len(line) || at > i && line[at] == '#'
}

// flowEnd returns the column behind a collection in flow style that begins at
// column i, -1 when it does not end on the line or is not understood.
func flowEnd(line []byte, i int) int {
	depth, after := 0, flowPunctuation
	for ; i < len(line); i++ {
		switch line[i] {
		case ' ':
		case '[', '{':
			if depth++; after != flowPunctuation {
				return -1
			}
		case ']', '}':
			if depth, after = depth-1, flowWhole; depth == 0 {
				return i + 1
			}
		case ',':
			after = flowPunctuation
		default:
			if i, after = flowScalar(line, i, after); i < 0 {
				return -1
			}
		}
	}
	return -1
}

// flowScalar passes over a string in quotes, a byte of another scalar or the
// colon behind one, and returns the last column of it, -1 when it is not
// understood.
func flowScalar(line []byte, i int, after flowPart) (int, flowPart) {
	b, next := line[i], byte(' ')
	if i+1 < len(line) {
		next = line[i+1]
	}
	switch {
	case b == ':' && (after == flowWhole || after == flowWord && next == ' '):
		return i, flowPunctuation
	case after == flowWord && inWord(b, line[i-1], next):
		return i, flowWord
	case after == flowPunctuation && opens[b] == opensPlain:
		return i, flowWord
	case after == flowPunctuation && opens[b] == opensQuoted:
		return closing(line, i+1, b), flowWhole
	}
	return -1, after
}

// inWord tells whether b is surely no more than a byte of a plain scalar.
func inWord(b, last, next byte) bool {
	switch b {
	case '[', '{', '\t':
		return false
	case '#':
		return last != ' '
	case ':':
		return opens[next] == opensPlain
	}
	return true
}

// oddBreak tells whether text has line breaks other than "\n" and "\r\n".
func oddBreak(text []byte) bool {
	for at := 0; ; {
		n := bytes.IndexByte(text[at:], '\r')
		if n < 0 {
			break
		}
		if at += n + 1; at < len(text) && text[at] != '\n' {
			return true
		}
	}
	return has(text, 0xC2, "\u0085") || has(text, 0xE2, "\u2028") || has(text, 0xE2, "\u2029")
}

// has tells whether text has a character that begins with the byte first.
func has(text []byte, first byte, char string) bool {
	for {
		n := bytes.IndexByte(text, first)
		if n < 0 {
			return false
		}
		if text = text[n:]; len(text) >= len(char) && string(text[:len(char)]) == char {
			return true
		}
		text = text[1:]
	}
}
