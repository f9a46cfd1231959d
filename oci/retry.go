package oci

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
)

// Requests are sent again when the server is busy (429, 502, 503, 504) or hangs
// up before it answers, a few times: those of registries that
// limit their rate say when in the header Retry-After. A pause that the context
// leaves no time for is not begun: the answer is the error then.
const (
	maxTries   = 5
	maxHangUps = 3                      // tries when servers hang up
	firstPause = 500 * time.Millisecond // without Retry-After, doubled each time
	maxPause   = time.Minute            // what is waited for when the context has no deadline
)

// busy are the answers after which the same request may succeed.
var busy = map[int]bool{
	http.StatusTooManyRequests:    true,
	http.StatusServiceUnavailable: true,
	http.StatusBadGateway:         true,
	http.StatusGatewayTimeout:     true,
}

// patient is a round tripper that sends requests again.
type patient struct {
	next http.RoundTripper
	wait func(context.Context, time.Duration) error
	now  func() time.Time
}

// RoundTrip implements [http.RoundTripper].
func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := p.next.RoundTrip(req)
		again, pause := p.judge(req, resp, err, try)
		if !again || try == maxTries {
			return resp, err
		}
		if resp != nil {
			finish(resp)
		}
		if err := p.wait(req.Context(), pause); err != nil {
			return nil, err
		}
		if req, err = afresh(req); err != nil {
			return nil, err
		}
	}
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// afresh returns req with its content from the beginning.
func afresh(req *http.Request) (*http.Request, error) {
	if !hasBody(req) {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.Body = body
	return out, nil
}

// judge tells whether to send req again, and after how long a pause.
func (p *patient) judge(req *http.Request, resp *http.Response, err error, try int) (again bool, pause time.Duration) {
	if !repeatable(req, resp) {
		return false, 0
	}
	pause = firstPause << (try - 1)
	switch {
	case err != nil:
		again = try < maxHangUps && hungUp(err) && req.Context().Err() == nil
	case busy[resp.StatusCode]:
		again = true
		if after, given := transport.RetryAfter(resp.Header, p.now()); given {
			pause = after
		}
	}
	return again && p.fits(req.Context(), pause), pause
}

// fits reports whether the pause leaves time for another try.
func (p *patient) fits(ctx context.Context, pause time.Duration) bool {
	deadline, limited := ctx.Deadline()
	if !limited {
		return pause <= maxPause
	}
	return p.now().Add(pause).Before(deadline)
}

// repeatable reports whether req can be sent twice: it changes nothing, or was
// refused before it did, and its content can be had again.
func repeatable(req *http.Request, resp *http.Response) bool {
	if hasBody(req) && req.GetBody == nil {
		return false
	}
	return req.Method == http.MethodGet || req.Method == http.MethodHead ||
		resp != nil && resp.StatusCode == http.StatusTooManyRequests
}

// hungUp reports whether err is a connection that ended before the answer.
func hungUp(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return (op.Op == "read" || op.Op == "write") && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (p *patient) CloseIdleConnections() {
	if c, ok := p.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
