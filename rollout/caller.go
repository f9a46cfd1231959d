package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/redact"
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
	proxy, err := c.proxy(target)
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
	u, wrong := parseWebURL(text)
	if wrong != "" {
		return nil, nil, fmt.Errorf("url: %s", wrong)
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

// proxy returns that for a URL, nil for none.
func (c *Caller) proxy(target *url.URL) (*url.URL, error) {
	if c.Proxy == nil {
		return nil, nil
	}
	proxy, err := c.Proxy(&http.Request{Method: http.MethodPost, URL: target, Header: http.Header{}, Host: target.Host})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return proxy, nil
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
