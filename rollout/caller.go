package rollout

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/internal/secret"
)

// Secrets hands out Secrets: an error that wraps fs.ErrNotExist when there is none.
type Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error)

// A Caller calls webhooks. Its zero value works; it is safe for concurrent use.
// Its owner ends idle connections with Close.
//
// Connections are shared by all calls with the same TLS settings. A redirect
// (307 and 308) is followed only within the origin of the URL of the webhook,
// and nobody else is shown its credentials.
type Caller struct {
	Proxy   func(*http.Request) (*url.URL, error)      // as in [http.Transport]; nil for none
	Secrets Secrets                                    // nil: a webhook that names a Secret is an error
	Wait    func(context.Context, time.Duration) error // between attempts; nil for the clock
	Now     func() time.Time                           // in signatures, and what dates of Retry-After are compared with; nil for the clock

	pool notify.Pool
}

// Call posts payload to the webhook (specification, "Calls made by the
// controller"). The error is nil exactly when the type of the webhook accepts
// the status of the answer. It wraps
//
//   - a [*StatusError] when another status was answered
//   - the error of ctx when that ended
//   - [os.ErrDeadlineExceeded] when no answer came within the timeout of the
//     webhook, which is that of one attempt
//   - the cause of the transport, or what is wrong with the webhook
//
// Attempts after the first, as many as the webhook has retries, follow on
// statuses 429 and from 500 on, except 501, and on failures of the transport
// except those of certificates. Between them it waits 1 s, 2 s, 4 s and so on
// up to 30 s; a Retry-After of 429 and 503 replaces the wait, up to 30 s.
//
// The answer is what came in the last attempt, with and without an error.
func (c *Caller) Call(ctx context.Context, hook Hook, payload Payload) (Answer, error) {
	answer, err := c.call(ctx, hook, payload)
	if err != nil {
		kind := hook.Type
		if kind == "" {
			kind = HookRollout
		}
		err = redact.Error(fmt.Errorf("%s webhook %s: %w", kind, hook.Name, err))
	}
	return answer, err
}

// Close ends idle connections, and those in use when their calls end. A Caller
// can be used after it, and closed again.
func (c *Caller) Close() { c.pool.Close() }

func (c *Caller) call(ctx context.Context, hook Hook, payload Payload) (Answer, error) {
	r, known := hook.Type.rule()
	timeout := time.Duration(hook.Timeout)
	switch {
	case !known:
		return Answer{}, fmt.Errorf("type: unknown, use one of those of the specification")
	case timeout < 0:
		return Answer{}, fmt.Errorf("timeout: %s is not positive", timeout)
	case hook.Retries < 0:
		return Answer{}, fmt.Errorf("retries: %d is negative", hook.Retries)
	case timeout == 0:
		timeout = DefaultTimeout
	}
	target, user, err := parseTarget(hook.URL)
	if err != nil {
		return Answer{}, err
	}
	body, err := json.Marshal(payload)
	if err != nil {
		return Answer{}, err
	}
	to := &call{caller: c, rule: r, url: target, body: body, timeout: timeout, retries: hook.Retries}
	if to.credentials, err = c.credentials(ctx, payload.Namespace, hook.SecretRef, user); err != nil {
		return Answer{}, err
	}
	to.header.Set("Content-Type", "application/json")
	proxy, err := notify.ProxyFor(target, c.Proxy)
	if err != nil {
		return Answer{}, err
	}
	to.hide(proxy)
	t, err := c.transport(ctx, hook, payload.Namespace, proxy)
	if err != nil {
		return Answer{}, err
	}
	defer c.pool.Release(t)
	to.transport = t
	answer, err := to.run(ctx)
	if err != nil {
		err = fmt.Errorf("POST %s: %w", redact.URL(target), redact.Error(err, to.private...))
	}
	return answer, err
}

// parseTarget returns the URL of a webhook, and apart from it its user information.
func parseTarget(text string) (*url.URL, *url.Userinfo, error) {
	u, err := parseWebURL(text)
	if err != nil {
		return nil, nil, fmt.Errorf("url: %w", err)
	}
	user := u.User
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return u, user, nil
}

func (c *Caller) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Caller) wait(ctx context.Context, d time.Duration) error {
	if c.Wait != nil {
		return c.Wait(ctx, d)
	}
	return sleep(ctx, d)
}

// transport returns that of a webhook, whose URL has a proxy or nil. It is to be released.
func (c *Caller) transport(ctx context.Context, hook Hook, namespace string, proxy *url.URL) (*notify.Transport, error) {
	setting := notify.Setting{Insecure: hook.DisableTLS, HTTP2: true}
	if proxy != nil && proxy.Scheme == "https" {
		setting.Proxy = proxy.String()
	}
	var certs secret.Reader
	var err error
	if hook.CertSecretRef != nil {
		certs, err = c.secret(ctx, namespace, hook.CertSecretRef)
	}
	if err == nil {
		var t *notify.Transport
		if t, err = c.pool.Get(setting, certs, c.Proxy); err == nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("certSecretRef: %w", err)
}

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
	return redact.Excerpt(a.Header.Get("Location"), 4*maxExcerpt, c.private...)
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

// An Answer is what a webhook answered.
type Answer struct {
	Status    int    // 0: no answer came
	Body      []byte // at most [MaxBody] bytes of it, without the credentials of the call
	Truncated bool   // the body was longer, or did not end
	Attempts  int

	// The person who decided what is answered, and why, where the webhook names
	// them in the headers [ActorHeader] and [ReasonHeader]; without the
	// credentials of the call. They are claims of the webhook.
	Actor, Reason string
}

// The headers in which a webhook names the person who decided what it answers,
// with the escapes of a path of a URL.
const (
	ActorHeader  = "X-Headgate-Actor"
	ReasonHeader = "X-Headgate-Reason"
)

// person returns the text of one of those headers on one line, "" when it has none.
func (c *call) person(h http.Header, name string) string {
	text, err := url.PathUnescape(h.Get(name))
	if err != nil {
		return ""
	}
	return redact.Excerpt(text, maxReason, c.private...)
}

// MaxBody is how much of an answer is kept, in bytes.
const MaxBody = notify.MaxBody

// A StatusError is an answer with a status that the type of the webhook does
// not accept.
type StatusError struct {
	Code     int
	Body     []byte // see [Answer]
	Location string // of a redirect that was not followed, without credentials and control characters

	RetryAfter time.Duration // how long it asks to wait, 0 when it does not
}

// Error returns the status and the beginning of what was answered, on one line.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("status %d", e.Code)
	if e.Location != "" {
		text += ": redirect to " + redact.Excerpt(e.Location, maxExcerpt) + " is not followed"
	}
	if said := redact.Excerpt(string(e.Body), maxExcerpt); said != "" {
		text += ": " + said
	}
	return text
}

// maxExcerpt is how much of an answer an error shows, in bytes.
const maxExcerpt = 300
