package gcs

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
)

// tokens holds the token that requests go out with. It is safe for concurrent use.
type tokens struct {
	issue issuer
	now   func() time.Time
	turn  chan struct{} // held by whoever asks for a token

	mu   sync.Mutex
	held *lease // nil when there is none
}

// A lease is a token until it is to be used no more.
type lease struct {
	source.Credential
	until time.Time // zero: until it is refused
}

func newTokens(issue issuer) *tokens {
	return &tokens{issue: issue, now: time.Now, turn: make(chan struct{}, 1)}
}

// get returns the token that is held, or asks for one. Errors are those of the
// issuer and of ctx.
func (t *tokens) get(ctx context.Context) (*lease, error) {
	if l := t.good(); l != nil {
		return l, nil
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l := t.good(); l != nil {
		return l, nil
	}
	c, err := t.issue(ctx)
	if err != nil {
		return nil, err
	}
	l := &lease{Credential: c}
	if !c.Expires.IsZero() {
		now := t.now()
		l.until = now.Add(c.Expires.Sub(now) / 5 * 4)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = l
	return l, nil
}

// good returns what is held and may be used, nil when there is nothing.
func (t *tokens) good() *lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held != nil && (t.held.until.IsZero() || t.now().Before(t.held.until)) {
		return t.held
	}
	return nil
}

// refused forgets a token that the store does not take.
func (t *tokens) refused(l *lease) {
	if l.Refused != nil {
		l.Refused()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held == l {
		t.held = nil
	}
}
