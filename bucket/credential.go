package bucket

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

// Issued holds a credential that a service issues. It is replaced when four
// fifths of its life are over, and when the server refuses it. One that ends in
// less than ten seconds is that of a clock that is wrong, and used until it is
// refused. It is safe for concurrent use.
type Issued struct {
	issue func(context.Context) (source.Credential, error)
	turn  chan struct{} // held by the caller that uses what follows
	held  *source.Credential
	until time.Time // when held is to be replaced; zero: when it is refused
}

const minLife = 10 * time.Second

// NewIssued returns the credentials that issue returns, and has the first one issued.
func NewIssued(ctx context.Context, issue func(context.Context) (source.Credential, error)) (*Issued, error) {
	i := &Issued{issue: issue, turn: make(chan struct{}, 1)}
	_, err := i.Get(ctx, nil)
	return i, err
}

// Get returns the credential to use: another one than refused, which may be nil.
// Errors are those of issuing and of ctx, and a *[source.StepError] when what was
// issued cannot be sent.
func (i *Issued) Get(ctx context.Context, refused *source.Credential) (*source.Credential, error) {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if i.held != nil && i.held != refused && (i.until.IsZero() || time.Now().Before(i.until)) {
		return i.held, nil
	}
	if i.held != nil && i.held == refused && i.held.Refused != nil {
		i.held.Refused()
	}
	i.held = nil
	c, err := i.issue(ctx)
	if err != nil {
		return nil, err
	}
	unsendable := func(r rune) bool { return r <= ' ' || r > '~' }
	if c.Username+c.Token == "" || c.Username != "" && c.Password == "" || strings.ContainsFunc(c.Username+c.Token, unsendable) {
		return nil, stepError("AuthenticationFailed", errors.New("log in: the answer holds no token that can be sent"))
	}
	i.held, i.until = &c, time.Time{}
	if left := time.Until(c.Expires); left >= minLife {
		i.until = time.Now().Add(left / 5 * 4)
	}
	return i.held, nil
}

// A Bearer is a round tripper that sends a token with each request, and with
// another one, once a request, when the server answers 401.
type Bearer struct {
	Next   http.RoundTripper // must be set before the first request
	Tokens *Issued
}

// RoundTrip implements [http.RoundTripper].
func (b *Bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	var refused *source.Credential
	for {
		c, err := b.Tokens.Get(req.Context(), refused)
		if err != nil {
			return nil, err
		}
		out := req.Clone(req.Context())
		out.Header.Set("Authorization", "Bearer "+c.Token)
		resp, err := b.Next.RoundTrip(out)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || refused != nil {
			return resp, err
		}
		resp.Body.Close()
		refused = c
	}
}
