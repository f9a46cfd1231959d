package rollout

import (
	"cmp"
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

// Secrets hands out Secrets: an error that wraps fs.ErrNotExist when there is none.
type Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error)

// A Caller calls webhooks. Its zero value works; it is safe for concurrent use.
// Its owner ends idle connections with Close.
//
// Connections are shared by all calls with the same TLS settings. A redirect
// (307 and 308) is followed only within the origin of the URL of the webhook,
// and no other origin is shown its credentials.
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
		err = redact.Error(fmt.Errorf("%s webhook %s: %w", hook.kind(), hook.Name, err))
	}
	return answer, err
}

// Close ends idle connections, and those in use when their calls end. A Caller
// can be used after it, and closed again.
func (c *Caller) Close() { c.pool.Close() }

// A request is what is posted in each attempt of a call.
type request struct {
	caller    *Caller
	rule      rule
	timeout   time.Duration // of an attempt
	url       *url.URL
	header    http.Header
	body      []byte
	signing   []byte   // key of signatures, nil for none
	private   []string // what answers and errors must not show
	transport *notify.Transport
}

func (c *Caller) call(ctx context.Context, hook Hook, payload Payload) (Answer, error) {
	rule, known := hook.Type.rule()
	switch {
	case !known:
		return Answer{}, errors.New("type: unknown, use one of those of the specification")
	case hook.Timeout < 0:
		return Answer{}, fmt.Errorf("timeout: %s is not positive", time.Duration(hook.Timeout))
	case hook.Retries < 0:
		return Answer{}, fmt.Errorf("retries: %d is negative", hook.Retries)
	}
	u, err := parseWebURL(hook.URL)
	if err != nil {
		return Answer{}, fmt.Errorf("url: %w", err)
	}
	r := &request{caller: c, rule: rule, timeout: hook.timeout(), url: u, header: http.Header{}}
	if r.body, err = json.Marshal(payload); err != nil {
		return Answer{}, err
	}
	if err := r.authorize(ctx, hook, payload.Namespace); err != nil {
		return Answer{}, err
	}
	r.header.Set("Content-Type", "application/json")
	u.Fragment, u.RawFragment = "", ""
	if err := r.connect(ctx, hook, payload.Namespace); err != nil {
		return Answer{}, err
	}
	defer c.pool.Release(r.transport)
	answer, err := r.run(ctx, hook.Retries)
	if err != nil {
		err = fmt.Errorf("POST %s: %w", redact.URL(u), redact.Error(err, r.private...))
	}
	return answer, err
}

// secret returns a Secret of a webhook of a canary in namespace.
func (c *Caller) secret(ctx context.Context, namespace string, ref *SecretRef) (secret.Reader, error) {
	if ref.Name == "" {
		return secret.Reader{}, errors.New("name is missing")
	}
	return secret.Get(ctx, c.Secrets, namespace, ref.Name)
}

// authorize takes the credentials of a webhook: those of its Secret, else of its URL.
func (r *request) authorize(ctx context.Context, hook Hook, namespace string) error {
	var auth secret.Auth
	if hook.SecretRef != nil {
		s, err := r.caller.secret(ctx, namespace, hook.SecretRef)
		if err == nil {
			r.header, auth, err = s.Credentials([]string{"bearerToken"}, SignatureHeader)
		}
		if err == nil {
			r.signing, _ = s.Value([]string{"hmacKey"})
			if auth == (secret.Auth{}) && len(r.header) == 0 && r.signing == nil {
				err = s.Problem("bearerToken", "is missing, and so are username, headers and hmacKey: set one")
			}
		}
		if err != nil {
			return fmt.Errorf("secretRef: %w", err)
		}
		for _, values := range r.header {
			r.private = append(r.private, values...)
		}
	}
	if user := r.url.User; user != nil && auth == (secret.Auth{}) && r.header.Get("Authorization") == "" {
		auth.Username = user.Username()
		auth.Password, _ = user.Password()
	}
	r.url.User = nil
	if value := auth.Header(); value != "" {
		r.header.Set("Authorization", value)
		r.private = append(r.private, value, auth.Bearer, cmp.Or(auth.Password, auth.Username)) // which is a token
	}
	return nil
}

// connect finds the connections of a webhook.
func (r *request) connect(ctx context.Context, hook Hook, namespace string) error {
	proxy, err := notify.ProxyFor(r.url, r.caller.Proxy)
	if err != nil {
		return err
	}
	setting := notify.Setting{Insecure: hook.DisableTLS, HTTP2: true}
	if proxy != nil && proxy.Scheme == "https" {
		setting.Proxy = proxy.String()
	}
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		r.private = append(r.private, secret.Auth{Username: proxy.User.Username(), Password: password}.Header(), password)
	}
	var certs secret.Reader
	if hook.CertSecretRef != nil {
		certs, err = r.caller.secret(ctx, namespace, hook.CertSecretRef)
	}
	if err == nil {
		r.transport, err = r.caller.pool.Get(setting, certs, r.caller.Proxy)
	}
	if err != nil {
		return fmt.Errorf("certSecretRef: %w", err)
	}
	return nil
}

// run makes attempts until one is not to be repeated.
func (r *request) run(ctx context.Context, retries int) (Answer, error) {
	wait := r.caller.Wait
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

// retryable reports whether another attempt may end otherwise than in err.
func retryable(err error) bool {
	if answer, ok := errors.AsType[*StatusError](err); ok {
		return retry.Status(answer.Code)
	}
	_, refused := errors.AsType[*tls.CertificateVerificationError](err)
	return !refused
}

// attempt posts once, follows redirects, and reads the answer, all within the
// timeout. It returns how long the answer asks to wait, negative when it does not.
func (r *request) attempt(ctx context.Context) (answer Answer, after time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	header, now := r.header, r.caller.now()
	if r.signing != nil {
		at := strconv.FormatInt(now.Unix(), 10)
		mac := hmac.New(sha256.New, r.signing)
		mac.Write([]byte(at + "."))
		mac.Write(r.body)
		header = header.Clone()
		header.Set(SignatureHeader, "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
	}
	a, err := r.transport.Post(limited, r.url, header, r.body)
	if err != nil {
		return answer, -1, r.cause(limited, err)
	}
	answer = Answer{Status: a.Status, Body: a.Body, Truncated: a.Truncated, Actor: r.person(a.Header, ActorHeader), Reason: r.person(a.Header, ReasonHeader)}
	r.mask(&answer)
	asked, given := retry.After(a.Header, now)
	if after = -1; given && (a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable) {
		after = asked
	}
	switch {
	case !r.rule.accepts(a.Status):
		location := ""
		if a.Status >= 300 && a.Status <= 399 {
			location = redact.Excerpt(a.Header.Get("Location"), 4*maxExcerpt, r.private...)
		}
		err = &StatusError{a.Status, answer.Body, location, asked}
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

// mask takes what is private out of a body. At the end of one that is not whole
// may stand the beginning of a secret.
func (r *request) mask(a *Answer) {
	if len(r.private) == 0 {
		return
	}
	text := redact.Secrets(string(a.Body), r.private...)
	if a.Truncated {
		text = redact.Tail(text, r.private...)
	}
	if len(text) > MaxBody { // masks may be longer
		text, a.Truncated = text[:MaxBody], true
	}
	a.Body = []byte(text)
}

// cause returns why an exchange failed: the timeout, when that ended it.
func (r *request) cause(limited context.Context, err error) error {
	if limited.Err() != nil {
		return timeoutError(r.timeout)
	}
	return err
}

// A timeoutError is the timeout of an attempt that passed: not the end of the
// context, and so not [context.DeadlineExceeded].
type timeoutError time.Duration

func (e timeoutError) Error() string { return "no answer within " + time.Duration(e).String() }
func (timeoutError) Unwrap() error   { return os.ErrDeadlineExceeded }

// person returns the text of a header that names a person or a reason on one line, "" when it has none.
func (r *request) person(h http.Header, name string) string {
	text, err := url.PathUnescape(h.Get(name))
	if err != nil {
		return ""
	}
	return redact.Excerpt(text, maxReason, r.private...)
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

// SignatureHeader is what a webhook whose Secret has an hmacKey is signed by:
//
//	t=1767323045,v1=<hexadecimal HMAC-SHA256 of "1767323045." and the body>
//
// A receiver computes the same of the body as it came, compares in constant
// time, and refuses times too far from its own: an old request repeated.
const SignatureHeader = "X-Headgate-Signature"

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

// Event posts an event to a webhook of type event (specification, "Events").
// Answer and errors are those of [Caller.Call].
//
// The metadata has eventMessage, eventType and timestamp always; then what the
// webhook has; then, unless they are zero or the webhook has them, eventCode,
// eventSequence, canaryWeight, maxWeight, iteration, failedChecks, hook and
// reason.
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
