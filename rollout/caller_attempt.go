package rollout

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
)

// A call is one call of a webhook with all its attempts.
type call struct {
	caller    *Caller
	rule      rule
	url       *url.URL
	body      []byte
	timeout   time.Duration // of an attempt
	retries   int
	transport http.RoundTripper
	credentials
}

// An outcome is what came of one attempt.
type outcome struct {
	answer Answer
	err    error
	header http.Header // of the answer
}

// run makes attempts until one is not to be repeated.
func (c *call) run(ctx context.Context) (Answer, error) {
	for n := 1; ; n++ {
		o := c.attempt(ctx)
		o.answer.Attempts = n
		switch {
		case o.err == nil:
			return o.answer, nil
		case ctx.Err() != nil:
			return o.answer, ctx.Err()
		case n > c.retries || !retryable(o.err):
			if c.retries > 0 {
				o.err = fmt.Errorf("attempt %d of %d: %w", n, c.retries+1, o.err)
			}
			return o.answer, o.err
		}
		if err := c.caller.wait(ctx, c.pause(n, o)); err != nil {
			return o.answer, fmt.Errorf("after attempt %d of %d, %v: %w", n, c.retries+1, o.err, err)
		}
	}
}

// attempt posts once, follows redirects, and reads the answer, all within the timeout.
func (c *call) attempt(ctx context.Context) (o outcome) {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.follow(limited)
	if err != nil {
		o.err = c.cause(limited, err)
		return o
	}
	defer resp.Body.Close()
	o.answer.Status, o.header = resp.StatusCode, resp.Header
	o.answer.Actor, o.answer.Reason = c.person(resp.Header, ActorHeader), c.person(resp.Header, ReasonHeader)
	if resp.StatusCode != http.StatusSwitchingProtocols { // after which there is no body but another protocol
		o.answer.Body, o.answer.Truncated, err = readBody(resp.Body)
	}
	if len(c.private) > 0 {
		c.mask(&o.answer)
	}
	switch {
	case !c.rule.accepts(resp.StatusCode):
		after, _ := retry.After(resp.Header, c.caller.now())
		o.err = &StatusError{resp.StatusCode, o.answer.Body, c.redirect(resp), after}
	case err != nil:
		o.err = fmt.Errorf("status %d, then its body: %w", resp.StatusCode, c.cause(limited, err))
	}
	return o
}

// mask takes what is private out of a body. At the end of one that is not whole
// may stand the beginning of a secret.
func (c *call) mask(a *Answer) {
	text := redact.Secrets(string(a.Body), c.private...)
	if a.Truncated {
		text = redact.Tail(text, c.private...)
	}
	if len(text) > MaxBody { // masks may be longer
		text, a.Truncated = text[:MaxBody], true
	}
	a.Body = []byte(text)
}

// cause returns why an exchange failed: the timeout, when that ended it.
func (c *call) cause(limited context.Context, err error) error {
	if limited.Err() != nil {
		return timeoutError(c.timeout)
	}
	return err
}

// A timeoutError is the timeout of an attempt that passed: not the end of the
// context, and so not [context.DeadlineExceeded].
type timeoutError time.Duration

func (e timeoutError) Error() string { return "no answer within " + time.Duration(e).String() }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Unwrap() error   { return os.ErrDeadlineExceeded }

// post sends the request to a URL. All requests of a call that are not signed
// share a header: transports do not change it.
func (c *call) post(ctx context.Context, to *url.URL) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	req.URL, req.Host, req.Header = to, to.Host, c.header
	if c.signing != nil {
		req.Header = c.header.Clone()
		req.Header.Set(SignatureHeader, signature(c.signing, c.body, c.caller.now()))
	}
	return c.transport.RoundTrip(req)
}

// redirect returns where a redirect leads, for people; "" when resp is none.
func (c *call) redirect(resp *http.Response) string {
	location := resp.Header.Get("Location")
	if resp.StatusCode < 300 || resp.StatusCode > 399 {
		return ""
	}
	return shorten(redact.String(location, c.private...), 4*maxExcerpt)
}
