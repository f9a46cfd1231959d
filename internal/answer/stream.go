package answer

import (
	"net/http"
	"sync"
	"time"
)

const flushAfter = 50 * time.Millisecond

// A Stream is an answer that is written bit by bit. What is written is flushed
// soon; a reader that takes nothing for [Time] ends it.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu      sync.Mutex
	timer   *time.Timer
	pending bool // what was written is to be flushed
	closed  bool
	err     error
}

// NewStream returns the stream of an answer, whose header is set. Its owner
// calls Close.
func NewStream(w http.ResponseWriter) *Stream {
	return &Stream{w: w, control: http.NewResponseController(w)}
}

// EventHeader sets the header of a stream of events, which no proxy is to keep.
func EventHeader(header http.Header) {
	header.Set("Content-Type", "text/event-stream")
	header["X-Content-Type-Options"] = nosniff
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
}

// Begin sends the header.
func (s *Stream) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
}

// Write writes what is flushed soon.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.control.SetWriteDeadline(time.Now().Add(Time))
	n, err := s.w.Write(p)
	if s.err = err; err == nil && !s.pending && !s.closed {
		s.pending = true
		s.timer = time.AfterFunc(flushAfter, s.flushLater)
	}
	return n, err
}

func (s *Stream) flushLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending && !s.closed {
		s.flush()
	}
}

func (s *Stream) flush() {
	s.pending = false
	s.control.SetWriteDeadline(time.Now().Add(Time))
	if err := s.control.Flush(); err != nil && s.err == nil {
		s.err = err
	}
}

// Close ends the stream; nothing is written after it.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// Send writes something whole, and flushes it.
func (s *Stream) Send(text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control.SetWriteDeadline(time.Now().Add(Time))
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	s.flush()
	return s.err
}
