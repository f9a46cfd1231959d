package run

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A scanner reads all that a task writes for what it says of tests.
type scanner interface {
	io.Writer
	Summary() *api.Summary
}

// A sink is where a task writes: secrets are masked and characters mended, then
// it goes to the tape and to the scanner.
type sink struct {
	mu     sync.Mutex
	mask   *redact.Stream
	part   []byte // of a character
	tape   *tape
	scan   scanner // nil for none
	bytes  int64   // that were written
	closed bool

	secrets []string // that mask knows
	found   *api.Summary
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	s.bytes += int64(len(b))
	for rest := b; len(rest) > 0; { // in pieces, or a mask would copy all of it
		n := min(len(rest), pieceSize)
		s.put(s.mask.Next(rest[:n]), false)
		rest = rest[n:]
	}
	return len(b), nil
}

// close ends the output. What is still written is refused.
func (s *sink) close() (written int64, summary *api.Summary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.put(s.mask.End(), true)
		s.tape.end()
		s.found = s.summary()
	}
	s.mask, s.scan = nil, nil
	return s.bytes, s.found
}

// put passes b on as whole, valid characters.
func (s *sink) put(b []byte, last bool) {
	if len(s.part) > 0 {
		b = append(s.part, b...)
	}
	n := len(b)
	if !last {
		n = whole(b)
	}
	text := b[:n]
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\ufffd"))
	}
	s.tape.write(text)
	s.scanned(text)
	s.part = append([]byte(nil), b[n:]...)
}

// scanned and summary keep a scanner that panics from ending the process: it
// may be called from a goroutine of the task.
func (s *sink) scanned(text []byte) {
	if s.scan == nil {
		return
	}
	defer s.dropped()
	s.scan.Write(text)
}

func (s *sink) summary() *api.Summary {
	if s.scan == nil {
		return nil
	}
	defer s.dropped()
	found := s.scan.Summary()
	if found != nil {
		for i, name := range found.Failures {
			found.Failures[i] = masked(name, s.secrets)
		}
	}
	return found
}

// masked returns a name without secrets: a tool may have escaped them in a way
// of its own, which the scanner undid, or the name may end within one.
func masked(name string, secrets []string) string {
	name = redact.String(name, secrets...)
	if begin, isCut := strings.CutSuffix(name, "…"); isCut {
		return redact.Tail(begin, secrets...) + "…"
	}
	return name
}

func (s *sink) dropped() {
	if recover() != nil {
		s.scan = nil
	}
}

// written returns how much there was so far, in bytes.
func (s *sink) written() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}
