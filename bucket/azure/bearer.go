package azure

import (
	"context"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/headgate-io/headgate/source"
)

// early is how long before its end a token is used no more.
const early = 2 * time.Minute

// A bearer shows a token with each request, whose host and scope were judged
// when it was issued. The SDK's own policy asks for tokens that the server
// names; this one does not listen to it.
type bearer struct {
	issue func(context.Context) (source.Credential, error)
	now   func() time.Time

	turn    chan struct{} // held by who reads or writes the rest
	current source.Credential
	renewed bool // current was issued because the one before was refused, and was not accepted yet
}

// newBearer returns a bearer of what issue returns, which it asks for the first time.
func newBearer(ctx context.Context, issue func(context.Context) (source.Credential, error)) (*bearer, error) {
	first, err := issue(ctx)
	if err != nil {
		return nil, err
	}
	return &bearer{issue: issue, now: time.Now, turn: make(chan struct{}, 1), current: first}, nil
}

// Do implements [policy.Policy].
func (b *bearer) Do(req *policy.Request) (*http.Response, error) {
	token, err := b.token(req.Raw().Context(), "")
	if err != nil {
		return nil, err
	}
	resp, err := b.send(req, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	again, err := b.token(req.Raw().Context(), token)
	if err != nil || again == token {
		return resp, err
	}
	resp.Body.Close()
	return b.send(req, again)
}

func (b *bearer) send(req *policy.Request, token string) (*http.Response, error) {
	again := req.Clone(req.Raw().Context())
	again.Raw().Header.Set("Authorization", "Bearer "+token)
	resp, err := again.Next()
	if err == nil && resp.StatusCode != http.StatusUnauthorized {
		b.accepted(req.Raw().Context(), token)
	}
	return resp, err
}

// token returns the token to use in place of the refused one, "" for none. It is
// the same when that was issued in place of a refused one itself.
func (b *bearer) token(ctx context.Context, refused string) (string, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	mine := refused == b.current.Token
	ended := !b.current.Expires.IsZero() && b.now().After(b.current.Expires.Add(-early))
	if mine && b.renewed || !mine && !ended {
		return b.current.Token, nil
	}
	if mine && b.current.Refused != nil {
		b.current.Refused()
	}
	next, err := b.issue(ctx)
	if err != nil {
		return "", err
	}
	b.current, b.renewed = next, mine
	return next.Token, nil
}

func (b *bearer) accepted(ctx context.Context, token string) {
	select {
	case b.turn <- struct{}{}:
		b.renewed = b.renewed && b.current.Token != token
		<-b.turn
	case <-ctx.Done():
	}
}
