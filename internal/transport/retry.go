package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
)

const (
	maxTries   = 5
	maxHangUps = 3                      // attempts if servers hang up
	firstPause = 500 * time.Millisecond // without Retry-After, doubled each time
	maxPause   = time.Minute            // longest pause if the context has no deadline
)

// busyStatuses are the statuses after which the same request may succeed.
var busyStatuses = map[int]bool{
	http.StatusTooManyRequests:    true,
	http.StatusServiceUnavailable: true,
	http.StatusBadGateway:         true,
	http.StatusGatewayTimeout:     true,
}

// A RetryTransport is a round tripper that sends requests again if the server is busy (429,
// 502, 503, 504, and the statuses in Busy) or hangs up before it answers: at most 5
// attempts. Servers that limit their rate set the pause in the header Retry-After. If the
// context leaves no time for a pause, the result is the last response. Only requests that
// change nothing are sent again and, after 429, requests whose body can be read again.
type RetryTransport struct {
	Next http.RoundTripper
	Busy []int                                      // further statuses after which the same request may succeed
	Wait func(context.Context, time.Duration) error // default [Sleep]
	Now  func() time.Time                           // default [time.Now]
}

// RoundTrip implements [http.RoundTripper].
func (p *RetryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := p.Next.RoundTrip(req)
		again, pause := p.shouldRetry(req, resp, err, try)
		if !again || try == maxTries {
			return resp, err
		}
		if resp != nil {
			DrainAndClose(resp)
		}
		if err := p.pause(req.Context(), pause); err != nil {
			return nil, err
		}
		if req, err = RewindBody(req); err != nil {
			return nil, err
		}
	}
}

// HasBody reports whether req has a body.
func HasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// RewindBody returns req with its body from the beginning.
func RewindBody(req *http.Request) (*http.Request, error) {
	if !HasBody(req) {
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

func (p *RetryTransport) pause(ctx context.Context, d time.Duration) error {
	if p.Wait != nil {
		return p.Wait(ctx, d)
	}
	return Sleep(ctx, d)
}

func (p *RetryTransport) clock() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// shouldRetry returns whether to send req again, and the pause before that.
func (p *RetryTransport) shouldRetry(req *http.Request, resp *http.Response, err error, try int) (again bool, pause time.Duration) {
	if !repeatable(req, resp) {
		return false, 0
	}
	pause = firstPause << (try - 1)
	switch {
	case err != nil:
		again = try < maxHangUps && hungUp(err) && req.Context().Err() == nil
	case busyStatuses[resp.StatusCode] || slices.Contains(p.Busy, resp.StatusCode):
		again = true
		if after, given := RetryAfter(resp.Header, p.clock()); given {
			pause = after
		}
	}
	return again && p.fits(req.Context(), pause), pause
}

// fits reports whether the pause leaves time for another try.
func (p *RetryTransport) fits(ctx context.Context, pause time.Duration) bool {
	deadline, limited := ctx.Deadline()
	if !limited {
		return pause <= maxPause
	}
	return p.clock().Add(pause).Before(deadline)
}

// repeatable reports whether req can be sent twice: it changes nothing, or was refused
// before it did, and its body can be read again.
func repeatable(req *http.Request, resp *http.Response) bool {
	if HasBody(req) && req.GetBody == nil {
		return false
	}
	return req.Method == http.MethodGet || req.Method == http.MethodHead ||
		resp != nil && resp.StatusCode == http.StatusTooManyRequests
}

// hungUp reports whether err means that the connection ended before the response.
func hungUp(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return (op.Op == "read" || op.Op == "write") && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// maxRefusal is how many bytes of a refusal are read so that its connection can be reused.
const maxRefusal = 16 << 10

// DrainAndClose reads the rest of a refusal, so that its connection can be reused, and closes its
// body.
func DrainAndClose(resp *http.Response) {
	io.CopyN(io.Discard, resp.Body, maxRefusal)
	resp.Body.Close()
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	return retry.Sleep(ctx, d)
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (p *RetryTransport) CloseIdleConnections() {
	if c, ok := p.Next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RetryAfter returns how long the header of a response asks to wait; see [retry.After].
func RetryAfter(header http.Header, now time.Time) (after time.Duration, given bool) {
	return retry.After(header, now)
}
