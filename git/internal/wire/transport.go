package wire

import (
	"bufio"
	"context"
	"io"
)

// A Transport reaches one remote repository. [HTTP] and [SSH] return one. It holds no
// connection and may be used several times.
type Transport interface {
	// dial connects as far as needed before the first request.
	dial(ctx context.Context) (conn, error)
	// String returns the redacted URL.
	String() string
}

// A conn carries requests to git-upload-pack, one at a time.
type conn interface {
	// greet requests the server's greeting and abandons an answer that is being read.
	greet(ctx context.Context) (stream, error)
	// sendRequest sends a request. It may be called only if ready returns true.
	sendRequest(ctx context.Context, body []byte) (stream, error)
	// ready reports whether a request can be sent without a new greeting.
	ready() bool
	// close ends the connection and unblocks all calls that wait for it.
	close()
}

// A stream is the answer of a server, as it arrives.
type stream interface {
	io.Reader
	// abort makes a Read that waits, and all later ones, return an error.
	abort()
	// release ends the reading. complete reports whether the answer was read up to its
	// end, so that the connection can be used again.
	release(complete bool)
}

// An answer is a stream of pkt-lines that ends early when a context does.
type answer struct {
	*pktReader
	s          stream
	smallReads bool        // the answer is likely to be given up early: read little at a time
	stop       func() bool // detaches the context
}

// smallRead is smaller than the buffer of net/http, which reads more from the network to
// fill a larger slice.
const smallRead = 1 << 10

func newAnswer(ctx context.Context, s stream, limit int64) *answer {
	a := &answer{s: s, stop: context.AfterFunc(ctx, s.abort)}
	a.pktReader = &pktReader{br: bufio.NewReaderSize(a, pktBuffer), left: limit, limit: limit}
	return a
}

func (a *answer) Read(p []byte) (int, error) {
	if a.smallReads {
		p = p[:min(len(p), smallRead)]
	}
	return a.s.Read(p)
}

func (a *answer) release(complete bool) {
	a.s.release(complete) // which may wait for the network, until the context ends
	a.stop()
}
