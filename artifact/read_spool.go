package artifact

import "os"

// What may wait to be written to a spool: 768 KiB.
const (
	spoolBuffer  = 256 << 10
	spoolBuffers = 3
)

// A spooler writes a spool in a goroutine of its own, while its user decompresses
// what comes next. It ends with end.
type spooler struct {
	f    *os.File
	buf  []byte      // being filled; nil when there is none
	full chan []byte // to be written
	free chan []byte
	done chan struct{} // closed when nothing more is written
	err  error         // why; for those who have seen done
}

func newSpooler(f *os.File) *spooler {
	s := &spooler{f: f, full: make(chan []byte, spoolBuffers), free: make(chan []byte, spoolBuffers), done: make(chan struct{})}
	for range spoolBuffers {
		s.free <- make([]byte, 0, spoolBuffer)
	}
	go s.write()
	return s
}

func (s *spooler) write() {
	defer close(s.done)
	for b := range s.full {
		if _, err := s.f.Write(b); err != nil {
			s.err = &spoolError{err}
			return
		}
		s.free <- b[:0]
	}
}

// Write implements [io.Writer].
func (s *spooler) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if s.buf == nil {
			select {
			case s.buf = <-s.free:
			case <-s.done:
				return n, s.err
			}
		}
		more := min(len(p)-n, cap(s.buf)-len(s.buf))
		s.buf = append(s.buf, p[n:n+more]...)
		n += more
		if len(s.buf) == cap(s.buf) {
			s.full <- s.buf // never blocks: there is room for all buffers
			s.buf = nil
		}
	}
	return n, nil
}

// end writes what is left.
func (s *spooler) end() error {
	if len(s.buf) > 0 {
		s.full <- s.buf
	}
	close(s.full)
	<-s.done
	return s.err
}

type spoolError struct{ err error }

func (e *spoolError) Error() string { return "write spool: " + e.err.Error() }
func (e *spoolError) Unwrap() error { return e.err }
