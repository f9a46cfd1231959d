package tester

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const flushAfter = 50 * time.Millisecond

// streaming returns a context that also ends with the test runner.
func (s *Server) streaming(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-s.ending():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-stopped }
}

// A stream is an answer that is written bit by bit. What is written is flushed
// soon; a reader that takes nothing for answerTime ends it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu      sync.Mutex
	timer   *time.Timer
	pending bool // what was written is to be flushed
	closed  bool
	err     error
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, control: http.NewResponseController(w)}
}

// begin sends the header.
func (s *stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.control.SetWriteDeadline(time.Now().Add(answerTime))
	n, err := s.w.Write(p)
	if s.err = err; err == nil && !s.pending {
		s.pending = true
		s.timer = time.AfterFunc(flushAfter, s.flushLater)
	}
	return n, err
}

func (s *stream) flushLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending && !s.closed {
		s.flush()
	}
}

func (s *stream) flush() {
	s.pending = false
	s.control.SetWriteDeadline(time.Now().Add(answerTime))
	if err := s.control.Flush(); err != nil && s.err == nil {
		s.err = err
	}
}

// close ends the stream; nothing is written after it.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// send writes something whole, and flushes it.
func (s *stream) send(text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control.SetWriteDeadline(time.Now().Add(answerTime))
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	s.flush()
	return s.err
}

// watch streams changes of gates and runs that the caller may see.
func (c *apiCall) watch() error {
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	if c.r.Method == http.MethodHead {
		return nil
	}
	ctx, end := c.streaming(c.r.Context())
	defer end()
	gates, runs := c.Gates.Watch(ctx), c.Runs.Watch(ctx)
	idle := c.Keepalive
	if idle <= 0 {
		idle = defaultKeepalive
	}
	ticker := time.NewTicker(idle)
	defer ticker.Stop()
	out := newStream(c.w)
	defer out.close()
	for line := []byte(": changes from now on\n\n"); ; {
		if line != nil && out.send(line) != nil {
			return nil
		}
		var more bool
		if line, more = c.next(ctx, gates, runs, ticker.C); !more {
			return nil
		}
	}
}

// renew reports whether the caller is still known, and sees what it may do now.
func (c *apiCall) renew() bool {
	grant, err := c.Guard.Renew(c.Grant)
	c.Grant = grant
	return err == nil
}

// next returns what is to be written next, nil for nothing, and false when the
// stream ends, as it does when the caller is not known any more.
func (c *apiCall) next(ctx context.Context, gates <-chan api.Gate, runs <-chan api.Run, idle <-chan time.Time) ([]byte, bool) {
	var notice api.Notice
	select {
	case <-ctx.Done():
		return nil, false
	case <-idle:
		return []byte(":\n\n"), c.renew()
	case state, more := <-gates:
		if more = more && c.renew(); !more || c.Check(state.Key) != nil {
			return nil, more
		}
		notice.Gate = &state
	case state, more := <-runs:
		if more = more && c.renew(); !more || c.See(state.Namespace, state.Type) != nil {
			return nil, more
		}
		state.Output, state.URL = "", c.runURL(c.r, state.ID)
		notice.Run = &state
	}
	text, err := json.Marshal(notice)
	if err != nil {
		return nil, false
	}
	return append(append([]byte("data: "), text...), "\n\n"...), true
}
