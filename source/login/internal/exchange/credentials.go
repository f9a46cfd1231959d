package exchange

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
)

const (
	// MaxCredentials is how many keys [Credentials] hold.
	MaxCredentials = 1000
	// Patience is how long a caller waits for the request of another.
	Patience = 10 * time.Second

	maxLife = time.Hour // of what is kept
)

// Credentials keeps what token services issue, by key, until shortly before it
// expires. The zero value is empty and safe for concurrent use.
//
//   - A credential is used for 80 % of the life it had when it was issued, an hour
//     at most, so that it does not expire during the work it is for. One without a
//     known end is not kept.
//   - For one key, one request is under way at a time. A caller that waits for the
//     request of another gives up when its own context ends. It sends its own
//     request when the other failed or got no answer for [Patience]: the other may
//     go through a proxy that never answers.
//   - At most [MaxCredentials] keys are kept: beyond that, all that were are dropped.
//   - A credential that cannot be sent in a header is an error.
type Credentials struct {
	Now func() time.Time // default time.Now

	mu    sync.Mutex
	slots map[string]*slot
}

// A slot holds what is known of one key.
type slot struct {
	turn  chan struct{}      // full while a caller asks for a new credential
	held  *source.Credential // nil when there is none
	until time.Time
}

// Get returns the credential that is kept for key, or else a new one of issue.
// Its Refused drops it, if it is still kept, and calls Refused of what issue
// returned. Errors are those of issue, and of ctx.
func (k *Credentials) Get(ctx context.Context, key string, issue func(context.Context) (source.Credential, error)) (source.Credential, error) {
	s, held := k.find(key)
	if held == nil {
		impatient := time.NewTimer(Patience)
		defer impatient.Stop()
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-impatient.C:
		case <-ctx.Done():
			return source.Credential{}, context.Cause(ctx)
		}
		_, held = k.find(key)
	}
	if held == nil {
		c, err := issue(ctx)
		if err != nil {
			return source.Credential{}, err
		}
		if c.Password+c.Token == "" || strings.ContainsFunc(c.Username+c.Password+c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return source.Credential{}, errors.New("the answer holds no token that can be sent")
		}
		held = &c
		k.mu.Lock()
		s.held, s.until = held, time.Time{}
		if now := k.now(); !c.Expires.IsZero() {
			s.until = now.Add(min(c.Expires.Sub(now)/5*4, maxLife))
		}
		k.mu.Unlock()
	}
	c := *held
	c.Refused = func() {
		k.mu.Lock()
		if s.held == held {
			s.held = nil
		}
		k.mu.Unlock()
		if held.Refused != nil {
			held.Refused()
		}
	}
	return c, nil
}

func (k *Credentials) now() time.Time {
	if k.Now == nil {
		return time.Now()
	}
	return k.Now()
}

// find returns the slot of a key, and what it holds that is still good.
func (k *Credentials) find(key string) (*slot, *source.Credential) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.slots == nil || k.slots[key] == nil && len(k.slots) == MaxCredentials {
		k.slots = map[string]*slot{} // callers that use one go on with it
	}
	s := k.slots[key]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		k.slots[key] = s
	}
	if !k.now().Before(s.until) {
		return s, nil
	}
	return s, s.held
}
