package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
)

// A Notifier posts messages to the service of one provider. It is safe for
// concurrent use. Its owner ends idle connections with Close.
type Notifier struct {
	Provider *Provider
	Secrets  rollout.Secrets                       // nil: a provider that names a Secret is an error
	Proxy    func(*http.Request) (*url.URL, error) // for providers without one, as in [http.Transport]; nil for none
	Timeout  time.Duration                         // of one post, default 5s

	poster deliver.Poster
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
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(n.Timeout, deliver.Timeout)) // of the Secrets as well
	defer cancel()
	t, err := n.target(ctx)
	if err != nil {
		return n.name(nil, err)
	}
	t.Timeout = n.Timeout
	return n.name(t, n.post(ctx, t, m))
}

// Close ends idle connections.
func (n *Notifier) Close() { n.poster.Close() }

// name says in err whose it is, without what only the service may know.
func (n *Notifier) name(t *target, err error) error {
	switch {
	case err == nil:
		return nil
	case t == nil:
		return redact.Error(fmt.Errorf("alert provider %s: %w", n.Provider, err))
	}
	return redact.Error(fmt.Errorf("alert provider %s: post to %s at %s: %w", n.Provider, n.Provider.Spec.Type, t.Origin(), err), t.secrets()...)
}

func (n *Notifier) post(ctx context.Context, t *target, m *Message) error {
	body, err := n.Provider.Spec.Type.of(t.URL).body(&n.Provider.Spec, m)
	if err != nil {
		return deliver.Permanent{Err: err}
	}
	if t.token != "" {
		t.Header = http.Header{"Authorization": {"Bearer " + t.token}}
	}
	answer, err := n.poster.Post(ctx, &t.Target, body, rollout.MaxBody)
	switch {
	case err != nil:
		return err
	case answer.Code < 200 || answer.Code > 299:
		return refusal(answer, t)
	case n.Provider.Spec.Type == Slack:
		return accepted(answer.Body)
	}
	return nil
}

// refusal returns the answer as an error, without what only the service may know.
func refusal(a *deliver.Answer, t *target) error {
	e := &rollout.StatusError{Code: a.Code, Location: a.Location, Body: []byte(fit(redact.String(string(a.Body), t.secrets()...), MaxText, plain))}
	e.RetryAfter, _ = retry.After(a.Header, time.Now())
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
	return deliver.Permanent{Err: err}
}
