package traffic

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// keep is how much of a body is kept for sending it again, in bytes: more than
// a transport reads before it finds that a connection is closed.
const keep = 64 << 10

// A sending is the body of a request. It knows whether the client was at fault
// when it could not be sent, and can begin again when little of it was read:
// a connection that was kept open may turn out to be closed by then.
type sending struct {
	io.ReadCloser
	flight *flight
	alone  bool // it is the only one on its connection
	fault  atomic.Pointer[error]
	whole  atomic.Bool // all of it was read
	over   atomic.Bool // the handler has returned: the body is not to be touched any more
	copy   *copying    // nil when it is not mirrored
	begun  []byte      // what was read so far
	long   bool        // more was read than is kept
}

func (s *sending) Read(b []byte) (int, error) {
	if s.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := s.ReadCloser.Read(b)
	s.flight.moves.Add(1)
	if err == io.EOF {
		s.whole.Store(true)
		s.flight.asked.Store(true)
	}
	if s.copy != nil {
		s.copy.add(b[:n], err)
	}
	if s.long = s.long || len(s.begun)+n > keep; s.long {
		s.begun = nil
	} else {
		s.begun = append(s.begun, b[:n]...)
	}
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
		s.fault.Store(&err)
	}
	return n, err
}

// again returns the body from its beginning: see GetBody of [http.Request].
// Nobody reads from what was returned before.
func (s *sending) again() (io.ReadCloser, error) {
	if s.long {
		return nil, errors.New("too much of the body was read")
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(s.begun), s)), nil
}

// early reports whether an answer comes before the end of the body. The server
// would take what is still to come for the next request, or fail at it: the
// connection ends with the answer.
func (s *sending) early() bool { return s != nil && s.alone && !s.whole.Load() }

// err returns why the client did not send all of it, nil when it did.
func (s *sending) err() error {
	if s == nil {
		return nil
	}
	if err := s.fault.Load(); err != nil {
		return *err
	}
	return nil
}
