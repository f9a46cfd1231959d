package exchange

import (
	"context"
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
//   - At most [MaxCredentials] keys are kept; the one that would expire first makes room.
type Credentials struct {
	Now func() time.Time // default time.Now

	mu    sync.Mutex
	slots map[string]*slot
}

// A slot holds what is known of one key.
type slot struct {
	turn  chan struct{} // full while a caller asks for a new credential
	users int           // calls that use the slot
	kept  *kept         // nil when there is none
}

type kept struct {
	source.Credential
	until time.Time
}

// Get returns the credential that is kept for key, or else a new one of issue.
// Its Refused drops it, if it is still kept, and calls Refused of what issue
// returned. Errors are those of issue, and of ctx.
func (k *Credentials) Get(ctx context.Context, key string, issue func(context.Context) (source.Credential, error)) (source.Credential, error) {
	s := k.enter(key)
	defer k.leave(s)
	found := k.usable(s)
	if found == nil {
		impatient := time.NewTimer(Patience)
		defer impatient.Stop()
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-impatient.C:
		case <-ctx.Done():
			return source.Credential{}, context.Cause(ctx)
		}
		found = k.usable(s)
	}
	if found == nil {
		c, err := issue(ctx)
		if err != nil {
			return source.Credential{}, err
		}
		found = k.put(s, c)
	}
	c := found.Credential
	c.Refused = func() {
		k.drop(s, found)
		if found.Refused != nil {
			found.Refused()
		}
	}
	return c, nil
}

// usable returns what may still be used, nil when there is nothing.
func (k *Credentials) usable(s *slot) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.kept == nil || !k.now().Before(s.kept.until) {
		return nil
	}
	return s.kept
}

func (k *Credentials) put(s *slot, c source.Credential) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.kept = &kept{Credential: c}
	if now := k.now(); !c.Expires.IsZero() {
		s.kept.until = now.Add(min(c.Expires.Sub(now)/5*4, maxLife))
	}
	return s.kept
}

func (k *Credentials) now() time.Time {
	if k.Now == nil {
		return time.Now()
	}
	return k.Now()
}

func (k *Credentials) enter(key string) *slot {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.slots[key]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		if k.slots == nil {
			k.slots = map[string]*slot{}
		}
		k.slots[key] = s
	}
	s.users++
	return s
}

func (k *Credentials) drop(s *slot, c *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.kept == c {
		s.kept = nil
	}
}

// leave drops what has expired, and what expires next while there is too much.
func (k *Credentials) leave(s *slot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.users--
	now := k.now()
	for key, s := range k.slots {
		if s.users == 0 && (s.kept == nil || !now.Before(s.kept.until)) {
			delete(k.slots, key)
		}
	}
	for len(k.slots) > MaxCredentials {
		first, found := "", false
		for key, s := range k.slots {
			if s.users == 0 && (!found || s.kept.until.Before(k.slots[first].kept.until)) {
				first, found = key, true
			}
		}
		if !found {
			return // all are in use, and leave on their own
		}
		delete(k.slots, first)
	}
}
