package rollout

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/internal/secret"
)

// Secrets returns the data of a Secret. The error wraps fs.ErrNotExist if there is none.
type Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error)

// A Caller calls webhooks. Its zero value works; it is safe for concurrent use.
// Call Close to close idle connections.
//
// All calls with the same TLS settings share connections. A redirect (307 and 308)
// is followed only within the origin of the URL of the webhook, and credentials
// are never sent to another origin.
type Caller struct {
	Proxy   func(*http.Request) (*url.URL, error)      // as in [http.Transport]; nil for none
	Secrets Secrets                                    // nil: a webhook that names a Secret is an error
	Wait    func(context.Context, time.Duration) error // between attempts; nil for the clock
	Now     func() time.Time                           // for signatures and for dates in Retry-After; nil for the clock

	pool notify.Pool
}

// Call posts payload to the webhook (specification, "Calls made by the
// controller"). The error is nil exactly if the type of the webhook accepts the
// status of the answer. It wraps
//
//   - a [*StatusError] if the answer has another status
//   - the error of ctx if ctx has ended
//   - [os.ErrDeadlineExceeded] if no answer came within the timeout of the
//     webhook, which limits each attempt
//   - the error of the transport, or the defect of the webhook
//
// Call retries, up to hook.Retries times, after status 429, after any status from
// 500 on except 501, and after transport errors except those of certificates.
// Between attempts it waits 1 s, 2 s, 4 s and so on up to 30 s. A Retry-After of
// 429 and 503 replaces the wait, up to 30 s.
//
// The answer is that of the last attempt, also if there is an error.
func (c *Caller) Call(ctx context.Context, hook Hook, payload Payload) (Answer, error) {
	answer, err := c.call(ctx, hook, payload)
	if err != nil {
		err = redact.Error(fmt.Errorf("%s webhook %s: %w", hook.Kind(), hook.Name, err))
	}
	return answer, err
}

// Close closes idle connections; connections in use are closed 4 s after their
// calls. A Caller can be used after Close, and closed again.
func (c *Caller) Close() { c.pool.Close() }

// A call holds the data that each attempt posts.
type call struct {
	*Caller
	*notify.Target
	rule    rule
	timeout time.Duration // of an attempt
	body    []byte
	key     []byte // for signatures, nil for none
}

func (c *Caller) call(ctx context.Context, hook Hook, payload Payload) (Answer, error) {
	rule, known := hook.Type.rule()
	_, err := notify.ParseURL(hook.URL)
	switch {
	case !known:
		return Answer{}, errors.New("type: unknown, use one of those of the specification")
	case hook.Timeout < 0:
		return Answer{}, fmt.Errorf("timeout: %s is not positive", time.Duration(hook.Timeout))
	case hook.Retries < 0:
		return Answer{}, fmt.Errorf("retries: %d is negative", hook.Retries)
	case err != nil:
		return Answer{}, fmt.Errorf("url: %w", err)
	case hook.SecretRef != nil && hook.SecretRef.Name == "", hook.CertSecretRef != nil && hook.CertSecretRef.Name == "":
		return Answer{}, errors.New("secretRef or certSecretRef: name is missing")
	}
	r := &call{Caller: c, rule: rule, timeout: hook.timeout()}
	if r.body, err = json.Marshal(payload); err != nil {
		return Answer{}, err
	}
	to := notify.Webhook{
		URL: hook.URL, Secret: hook.SecretRef.in(payload.Namespace), Certs: hook.CertSecretRef.in(payload.Namespace),
		Insecure: hook.DisableTLS, HTTP2: true, Credentials: r.authorize, Secrets: c.Secrets, Proxies: c.Proxy, Pool: &c.pool,
	}
	if r.Target, err = to.Target(ctx); err != nil {
		return Answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := r.run(ctx, hook.Retries)
	if err != nil {
		err = fmt.Errorf("POST %s: %w", redact.URL(r.URL), redact.Error(err, r.Hidden...))
	}
	return answer, err
}

// in returns the Secret that r names for a canary in namespace.
func (r *SecretRef) in(namespace string) notify.Ref {
	if r == nil {
		return notify.Ref{}
	}
	return notify.Ref{Namespace: namespace, Name: r.Name}
}

// authorize reads the credentials and the signature key of a Secret. It is an
// error if the Secret has neither.
func (r *call) authorize(s secret.Reader, header http.Header) error {
	err := notify.Authorize(s, header, []string{"bearerToken"}, SignatureHeader)
	if r.key, _ = s.Value([]string{"hmacKey"}); err == nil && len(header) == 0 && r.key == nil {
		err = s.Problem("bearerToken", "is missing, and so are username, headers and hmacKey: set one")
	}
	return err
}

// run makes attempts until one succeeds or must not be retried.
func (r *call) run(ctx context.Context, retries int) (Answer, error) {
	wait := r.Wait
	if wait == nil {
		wait = sleep
	}
	for n := 1; ; n++ {
		answer, after, err := r.attempt(ctx)
		answer.Attempts = n
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return answer, ctx.Err()
		case n > retries || !retryable(err):
			if retries > 0 {
				err = fmt.Errorf("attempt %d of %d: %w", n, retries+1, err)
			}
			return answer, err
		}
		if after < 0 {
			after = time.Second << min(n-1, 5)
		}
		if ended := wait(ctx, min(after, maxPause)); ended != nil {
			return answer, fmt.Errorf("after attempt %d of %d, %v: %w", n, retries+1, err, ended)
		}
	}
}

const maxPause = 30 * time.Second

// retryable reports whether another attempt may succeed after err.
func retryable(err error) bool {
	if answer, ok := errors.AsType[*StatusError](err); ok {
		return retry.IsRetryable(answer.Code)
	}
	_, refused := errors.AsType[*tls.CertificateVerificationError](err)
	return !refused
}

// attempt posts once, follows redirects, and reads the answer, all within the
// timeout. It returns the wait that the answer asks for, negative for none.
func (r *call) attempt(ctx context.Context) (answer Answer, after time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	header, now := r.Header, r.now()
	if r.key != nil {
		at := strconv.FormatInt(now.Unix(), 10)
		mac := hmac.New(sha256.New, r.key)
		mac.Write([]byte(at + "."))
		mac.Write(r.body)
		header = header.Clone()
		header.Set(SignatureHeader, "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
	}
	a, err := r.Send(limited, http.MethodPost, header, r.body, MaxBody)
	if err != nil {
		return answer, -1, r.cause(limited, err)
	}
	answer = Answer{Status: a.Status, Truncated: a.Truncated, Actor: r.headerText(a.Header, ActorHeader), Reason: r.headerText(a.Header, ReasonHeader)}
	text := redact.Secrets(string(a.Body), r.Hidden...)
	if a.Truncated { // the text may end within a secret
		text = redact.MaskPartialEnd(text, r.Hidden...)
	}
	if len(text) > MaxBody { // masks may be longer
		text, answer.Truncated = text[:MaxBody], true
	}
	answer.Body = []byte(text)
	retryAfter, given := retry.After(a.Header, now)
	if after = -1; given && (a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable) {
		after = retryAfter
	}
	switch {
	case !r.rule.accepts(a.Status):
		location := ""
		if a.Status >= 300 && a.Status <= 399 {
			location = redact.Excerpt(a.Header.Get("Location"), 4*maxExcerpt, r.Hidden...)
		}
		err = &StatusError{a.Status, answer.Body, location, retryAfter}
	case a.Err != nil:
		err = fmt.Errorf("status %d, then its body: %w", a.Status, r.cause(limited, a.Err))
	}
	return answer, after, err
}

func (c *Caller) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// cause returns why an exchange failed. It replaces the end of the attempt's own
// timeout by an error that is not the one of the caller's context.
func (r *call) cause(limited context.Context, err error) error {
	if limited.Err() != nil {
		return fmt.Errorf("no answer within %s: %w", r.timeout, os.ErrDeadlineExceeded)
	}
	return err
}

// headerText returns the unescaped text of a header with a name or a reason, on one line, "" if it has none.
func (r *call) headerText(h http.Header, name string) string {
	text, err := url.PathUnescape(h.Get(name))
	if err != nil || text == "" {
		return ""
	}
	return redact.Excerpt(text, maxReason, r.Hidden...)
}

// An Answer is the answer of a webhook.
type Answer struct {
	Status    int    // 0: no answer came
	Body      []byte // at most [MaxBody] bytes of it, without the credentials of the call
	Truncated bool   // the body was longer, or did not end
	Attempts  int

	// The person who decided the answer, and why, if the webhook sends the headers
	// [ActorHeader] and [ReasonHeader]; without the credentials of the call.
	// They are unverified claims of the webhook.
	Actor, Reason string
}

// The headers in which a webhook names the person who decided its answer, and the
// reason. The values are percent-encoded as in the path of a URL.
const (
	ActorHeader  = "X-Headgate-Actor"
	ReasonHeader = "X-Headgate-Reason"
)

// SignatureHeader is the header with the signature of a call, sent if the Secret
// of the webhook has an hmacKey:
//
//	t=1767323045,v1=<hexadecimal HMAC-SHA256 of "1767323045." and the body>
//
// A receiver computes the same of the body as received and compares in constant
// time. It refuses times too far from its own clock, to reject replayed requests.
const SignatureHeader = "X-Headgate-Signature"

// MaxBody is the maximum size of the body in an [Answer], in bytes.
const MaxBody = notify.MaxBody

// A StatusError is an answer with a status that the type of the webhook does
// not accept.
type StatusError struct {
	Code     int
	Body     []byte // see [Answer]
	Location string // of a redirect that was not followed, without credentials and control characters

	RetryAfter time.Duration // the wait that the answer asks for, 0 for none
}

// Error returns the status and the beginning of the body, on one line.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("status %d", e.Code)
	if e.Location != "" {
		text += ": redirect to " + redact.Excerpt(e.Location, maxExcerpt) + " is not followed"
	}
	if body := redact.Excerpt(string(e.Body), maxExcerpt); body != "" {
		text += ": " + body
	}
	return text
}

// maxExcerpt is the maximum length of the part of an answer that an error shows, in bytes.
const maxExcerpt = 300

// Event posts an event to a webhook of type event (specification, "Events").
// Answer and errors are those of [Caller.Call].
//
// The metadata always has eventMessage, eventType and timestamp, and the keys of
// the webhook. It also has eventCode, eventSequence, canaryWeight, maxWeight,
// iteration, failedChecks, hook and reason, unless they are zero or the webhook
// sets the same key.
func (c *Caller) Event(ctx context.Context, hook Hook, e Event) (Answer, error) {
	if hook.Type != HookEvent {
		return Answer{}, fmt.Errorf("webhook %s: type: %q is not %s", hook.Name, hook.Type, HookEvent)
	}
	if e.Time.IsZero() {
		e.Time = c.now()
	}
	number := strconv.Itoa
	all := map[string]string{
		"eventCode": string(e.Code), "hook": e.Hook, "reason": e.Reason, "eventSequence": strconv.FormatInt(e.Sequence, 10),
		"canaryWeight": number(e.Weight), "maxWeight": number(e.MaxWeight), "iteration": number(e.Iteration), "failedChecks": number(e.FailedChecks),
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" || value == "0" })
	maps.Copy(all, hook.Metadata)
	all["eventMessage"], all["eventType"], all["timestamp"] = e.Message, "Normal", strconv.FormatInt(e.Time.UnixMilli(), 10)
	if e.Warning {
		all["eventType"] = "Warning"
	}
	return c.Call(ctx, hook, Payload{Name: e.Name, Namespace: e.Namespace, Phase: e.Phase, Checksum: e.Checksum, Metadata: all})
}
