package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
)

const (
	timeout      = 5 * time.Second // of one post, if the notifier has none
	maxRedirects = 5
)

// A Notifier posts messages to the service of one provider. It is safe for
// concurrent use. Its owner ends idle connections with Close.
type Notifier struct {
	Provider *Provider
	Secrets  rollout.Secrets                       // nil: a provider that names a Secret is an error
	Proxy    func(*http.Request) (*url.URL, error) // for providers without one, as in [http.Transport]; nil for none
	Timeout  time.Duration                         // of one post, default 5s

	mu     sync.Mutex
	client *http.Client
	made   [sha256.Size]byte // of what client was made from
}

// Check returns what a post would fail with before it connects.
func (n *Notifier) Check(ctx context.Context) error {
	_, err := n.target(ctx)
	return n.name(nil, err)
}

// Post posts m: one attempt. The service has accepted it when the error is nil. An answer other than 200 to 299 is a
// [*rollout.StatusError]; redirects are followed when they keep the request
// and its origin. Secrets are read anew each time.
func (n *Notifier) Post(ctx context.Context, m *Message) error {
	ctx, cancel := context.WithTimeout(ctx, n.timeout())
	defer cancel()
	t, err := n.target(ctx)
	if err != nil {
		return n.name(nil, err)
	}
	return n.name(t, n.post(ctx, t, m))
}

func (n *Notifier) timeout() time.Duration { return cmp.Or(n.Timeout, timeout) }

// Close ends idle connections.
func (n *Notifier) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil {
		n.client.CloseIdleConnections()
	}
}

// name says in err whose it is, without what only the service may know.
func (n *Notifier) name(t *target, err error) error {
	switch {
	case err == nil:
		return nil
	case t == nil:
		return redact.Error(fmt.Errorf("alert provider %s: %w", n.Provider, err))
	}
	return redact.Error(fmt.Errorf("alert provider %s: post to %s at %s: %w", n.Provider, n.Provider.Spec.Type, t.origin(), err), t.secrets()...)
}

func (n *Notifier) post(ctx context.Context, t *target, m *Message) error {
	body, err := n.Provider.Spec.Type.of(t.url).body(&n.Provider.Spec, m)
	if err != nil {
		return permanent{err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return permanent{bare(err)}
	}
	req.Header.Set("Content-Type", "application/json")
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := n.clientFor(t).Do(req)
	if err != nil {
		return bare(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, rollout.MaxBody))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return refusal(resp, answer, t)
	case n.Provider.Spec.Type == Slack:
		return accepted(answer)
	}
	return nil
}

// refusal returns the answer as an error, without what only the service may know.
func refusal(resp *http.Response, answer []byte, t *target) error {
	e := &rollout.StatusError{Code: resp.StatusCode, Body: []byte(fit(redact.String(string(answer), t.secrets()...), MaxText, plain))}
	e.RetryAfter, _ = retry.After(resp.Header, time.Now())
	if at, err := resp.Location(); err == nil && e.Code < 400 {
		e.Location = at.Scheme + "://" + at.Host
	}
	return e
}

// accepted returns what Slack's API says in answers of status 200.
func accepted(answer []byte) error {
	var said struct {
		OK    *bool  `json:"ok"`
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &said) != nil || said.OK == nil || *said.OK {
		return nil
	}
	err := fmt.Errorf("the message was not accepted: %s", fit(said.Error, maxField, plain))
	if said.Error == "ratelimited" || said.Error == "rate_limited" {
		return err
	}
	return permanent{err}
}

// bare returns err without the URL that net/http puts in front of it.
func bare(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		if e.Timeout() {
			return fmt.Errorf("no answer: %w", e.Err)
		}
		return e.Err
	}
	return err
}

// clientFor returns the client for t: that of the last post if it was made for the same settings.
func (n *Notifier) clientFor(t *target) *http.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil && n.made == t.made {
		return n.client
	}
	if n.client != nil {
		n.client.CloseIdleConnections()
	}
	n.client, n.made = &http.Client{Transport: t.transport(n.timeout()), CheckRedirect: sameOrigin}, t.made
	return n.client
}

// sameOrigin follows redirects that repeat the request where it was meant for.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0]
	if req.Method != first.Method || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	req.Header.Del("Referer")
	return nil
}
