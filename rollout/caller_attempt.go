package rollout

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
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
	transport *notify.Transport
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
	header := c.header
	if c.signing != nil {
		header = c.header.Clone()
		header.Set(SignatureHeader, signature(c.signing, c.body, c.caller.now()))
	}
	a, err := c.transport.Post(limited, c.url, header, c.body)
	if err != nil {
		o.err = c.cause(limited, err)
		return o
	}
	o.header = a.Header
	o.answer = Answer{Status: a.Status, Body: a.Body, Truncated: a.Truncated, Actor: c.person(a.Header, ActorHeader), Reason: c.person(a.Header, ReasonHeader)}
	if len(c.private) > 0 {
		c.mask(&o.answer)
	}
	switch {
	case !c.rule.accepts(a.Status):
		after, _ := retry.After(a.Header, c.caller.now())
		o.err = &StatusError{a.Status, o.answer.Body, c.redirect(a), after}
	case a.Err != nil:
		o.err = fmt.Errorf("status %d, then its body: %w", a.Status, c.cause(limited, a.Err))
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

// redirect returns where a redirect leads, for people; "" when a is none.
func (c *call) redirect(a *notify.Answer) string {
	if a.Status < 300 || a.Status > 399 {
		return ""
	}
	return shorten(redact.String(a.Header.Get("Location"), c.private...), 4*maxExcerpt)
}

const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// retryable reports whether another attempt may end otherwise than in err.
func retryable(err error) bool {
	if answer, ok := errors.AsType[*StatusError](err); ok {
		return retry.Status(answer.Code)
	}
	_, refused := errors.AsType[*tls.CertificateVerificationError](err)
	return !refused
}

// pause returns how long to wait after the attempt with number n.
func (c *call) pause(n int, o outcome) time.Duration {
	if o.answer.Status == http.StatusTooManyRequests || o.answer.Status == http.StatusServiceUnavailable {
		if after, given := retry.After(o.header, c.caller.now()); given {
			return min(after, maxPause)
		}
	}
	if n > 5 { // 2^5 s is more than the longest
		return maxPause
	}
	return firstPause << (n - 1)
}
