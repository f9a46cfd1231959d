package yaml

// What a byte may end.
const (
	endsPlain   = 1 << iota // a run of a plain scalar in block context
	endsFlow                // a run of a plain scalar in flow context
	endsSingle              // a run of a single-quoted scalar
	endsDouble              // a run of a double-quoted scalar
	endsLine                // it is or begins a line break, or it is NUL
	inName                  // it belongs to a word: the name of an anchor
	inTag                   // it belongs to a tag
	startsPlain             // a plain scalar may begin with it whatever follows
)

// class tells for every byte what it ends. NUL ends everything: it follows the
// text in the buffer and is not within it. 0xC2 and 0xE2 begin the line breaks
// NEL, LS and PS, besides other characters.
var class = classes()

func classes() (c [256]uint8) {
	set := func(bit uint8, bytes string) {
		for i := range len(bytes) {
			c[bytes[i]] |= bit
		}
	}
	const breaks = "\n\r\xC2\xE2\x00"
	for i := 0x21; i < 0x100; i++ {
		if i != 0x7F {
			c[i] |= startsPlain
		}
	}
	for i := range len("-?:,[]{}#&*!|>'\"%@`") {
		c["-?:,[]{}#&*!|>'\"%@`"[i]] &^= startsPlain
	}
	set(endsPlain, breaks+" \t:")
	set(endsFlow, breaks+" \t:,?[]{}")
	set(endsSingle, breaks+"'")
	set(endsDouble, breaks+"\"\\")
	set(endsLine, breaks)
	const word = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"
	set(inName, word)
	set(inTag, word+";/?:@&=+$,.!~*'()[]%")
	return c
}

// breakLen returns the length of the line break at b[p:], 0 when there is none.
func breakLen(b []byte, p int) int {
	switch b[p] {
	case '\n':
		return 1
	case '\r':
		if b[p+1] == '\n' {
			return 2
		}
		return 1
	case 0xC2: // NEL
		if b[p+1] == 0x85 {
			return 2
		}
	case 0xE2: // LS, PS
		if b[p+1] == 0x80 && b[p+2]&^1 == 0xA8 {
			return 3
		}
	}
	return 0
}

// appendBreak appends what the line break at b[p:p+n] stands for.
func appendBreak(out, b []byte, p, n int) []byte {
	if n == 3 {
		return append(out, b[p:p+3]...)
	}
	return append(out, '\n')
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// blankAt reports whether b[p:] begins with a blank or a line break or is the end.
func blankAt(b []byte, p int) bool {
	c := b[p]
	return c <= ' ' || (c == 0xC2 || c == 0xE2) && breakLen(b, p) > 0
}
