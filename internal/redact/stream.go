package redact

import "unicode/utf8"

// A Stream masks secrets in a text that comes in pieces. The result is that of [Secrets]
// for the whole text, however the pieces are cut. The stream holds back the end of the text
// while it may be the beginning of a secret: at most the longest form of a secret, with a
// line break after each byte. Secrets that overlap become one mask. A nil Stream has no
// secrets and returns each piece unchanged.
type Stream struct {
	all        []form            // the longest first
	byPrefix   map[uint16][]form // by their first two bytes
	prefixBits [1 << 10]uint64   // a bit for each key of byPrefix (left by an earlier spec)
	held       []byte
	heldMasked int    // bytes at the beginning of held that are masked already
	last       []byte // at most four bytes before held
	out        []byte
}

// NewStream returns a stream that masks secrets, or nil if there are none.
func NewStream(secrets ...string) *Stream {
	all := allForms(secrets)
	if len(all) == 0 {
		return nil
	}
	s := &Stream{all: all, byPrefix: map[uint16][]form{}}
	for _, f := range all {
		if len(f.text) == 1 {
			for second := range 1 << 8 {
				s.index(f, byte(second))
			}
			continue
		}
		s.index(f, f.text[1])
		if f.wraps {
			s.index(f, '\r')
			s.index(f, '\n')
		}
	}
	return s
}

func (s *Stream) index(f form, second byte) {
	key := uint16(f.text[0])<<8 | uint16(second)
	s.byPrefix[key] = append(s.byPrefix[key], f)
	s.prefixBits[key>>6] |= 1 << (key & 63)
}

// Next returns the masked text that is certain after piece. The result is valid until the
// next call, and may share memory with piece.
func (s *Stream) Next(piece []byte) []byte { return s.mask(piece, false) }

// End returns the text that was held back, once no further piece follows.
func (s *Stream) End() []byte { return s.mask(nil, true) }

func (s *Stream) mask(piece []byte, final bool) []byte {
	if s == nil {
		return piece
	}
	text := piece
	if len(s.held) > 0 {
		s.held = append(s.held, piece...)
		text = s.held
	}
	s.out = s.out[:0]
	at, masked := 0, s.heldMasked // text before masked is covered by a mask
	pending := masked             // text from here on is not in out yet
	for ; at < len(text); at++ {
		if at+1 < len(text) {
			if key := uint16(text[at])<<8 | uint16(text[at+1]); s.prefixBits[key>>6]&(1<<(key&63)) == 0 {
				continue
			}
		}
		n, more := s.match(text, at, masked, final)
		if more {
			break
		}
		if n == 0 {
			continue
		}
		if at >= masked {
			s.out = append(append(s.out, text[pending:at]...), Mask...)
		}
		masked = max(masked, at+n)
		pending = masked
	}
	return s.put(text, at, masked, pending)
}

// put returns the output for text[:at], and holds back the rest.
func (s *Stream) put(text []byte, at, masked, pending int) []byte {
	if at > 0 {
		s.last = append(s.last, text[max(0, at-utf8.UTFMax):at]...)
		s.last = append(s.last[:0], s.last[max(0, len(s.last)-utf8.UTFMax):]...)
		if masked >= at {
			s.last = append(s.last[:0], Mask...)
		}
	}
	out := text[min(pending, at):at]
	if len(s.out) > 0 || len(s.held) > 0 { // the code below overwrites held
		s.out = append(s.out, out...)
		out = s.out
	}
	s.held, s.heldMasked = append(s.held[:0], text[at:]...), max(0, masked-at)
	return out
}

// match returns the length of the form that begins at text[at], or 0. more reports that it
// needs more text to decide.
func (s *Stream) match(text []byte, at, masked int, final bool) (n int, more bool) {
	rest, candidates := text[at:], s.all
	if len(rest) > 1 {
		candidates = s.byPrefix[uint16(rest[0])<<8|uint16(rest[1])]
	}
	for _, f := range candidates {
		length, within := matchPrefix(f, rest)
		switch {
		case within && !final:
			return 0, true
		case length == 0:
		case len(f.text) >= shortest:
			return length, false
		default:
			after := rest[length:]
			if !final && !utf8.FullRune(after) {
				return 0, true
			}
			if next, _ := utf8.DecodeRune(after); !wordRune(next) && !wordRune(s.runeBefore(text, at, masked)) {
				return length, false
			}
		}
	}
	return 0, false
}

// runeBefore returns the rune before text[at].
func (s *Stream) runeBefore(text []byte, at, masked int) rune {
	if masked > 0 && masked >= at {
		return '*'
	}
	var buf [2 * utf8.UTFMax]byte
	r, _ := utf8.DecodeLastRune(append(append(buf[:0], s.last...), text[max(0, at-utf8.UTFMax):at]...))
	return r
}
