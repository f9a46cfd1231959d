package bucket

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A Bearer is a round tripper that sends a token with each request. It replaces
// the token when four fifths of its life are over and, once a request, when the
// server answers 401. It is safe for concurrent use.
type Bearer struct {
	Next http.RoundTripper // must be set before the first request

	issue func(context.Context) (source.Credential, error)
	turn  chan struct{} // held by the caller that uses what follows
	held  source.Credential
	until time.Time // when held is to be replaced; zero: when it is refused
}

// NewBearer returns a Bearer of the tokens that issue returns, and has the first
// one issued. Errors, those of later requests included, are the errors of issue,
// those of the context, and a *[source.StepError] when a token cannot be sent.
func NewBearer(ctx context.Context, issue func(context.Context) (source.Credential, error)) (*Bearer, error) {
	b := &Bearer{issue: issue, turn: make(chan struct{}, 1)}
	_, err := b.token(ctx, "")
	return b, err
}

// RoundTrip implements [http.RoundTripper].
func (b *Bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := b.token(req.Context(), "")
	if err != nil {
		return nil, err
	}
	resp, err := b.send(req, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	resp.Body.Close()
	if token, err = b.token(req.Context(), token); err != nil {
		return nil, err
	}
	return b.send(req, token)
}

func (b *Bearer) send(req *http.Request, token string) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	return b.Next.RoundTrip(req)
}

// token returns the token to send: another one than refused.
func (b *Bearer) token(ctx context.Context, refused string) (string, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if ended := !b.until.IsZero() && !time.Now().Before(b.until); b.held.Token != refused && !ended {
		return b.held.Token, nil
	}
	if b.held.Token == refused && b.held.Refused != nil {
		b.held.Refused()
	}
	b.held = source.Credential{}
	issued, err := b.issue(ctx)
	if err != nil {
		return "", err
	}
	if !Sendable(issued.Token) {
		return "", &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: errors.New("log in: the answer holds no token that can be sent")}
	}
	b.held, b.until = issued, time.Time{}
	if !issued.Expires.IsZero() {
		b.until = time.Now().Add(time.Until(issued.Expires) / 5 * 4)
	}
	return issued.Token, nil
}

// Sendable reports whether a credential can be sent in a header.
func Sendable(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
