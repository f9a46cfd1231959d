// Package keep keeps what token services issue until shortly before it expires.
//
//   - What is kept is used for 80 % of the life it had when it was issued, an
//     hour at most, so that it does not expire during the work it is for. What
//     has no known end is not kept.
//   - For one key, one request is under way at a time. A caller that waits for the
//     request of another gives up when its own context ends. It sends its own
//     request when the other failed or got no answer for [Patience]: the other may
//     go through a proxy that never answers.
//   - At most [Max] keys are kept; the one that would expire first makes room.
package keep

import (
	"context"
	"sync"
	"time"
)

// Max is how many keys a [Keep] holds.
const Max = 1000

// Patience is how long a caller waits for the request of another.
const Patience = 10 * time.Second

// longest is how long anything is kept.
const longest = time.Hour

// A Keep holds values by key; the zero value is empty. It is safe for concurrent use.
type Keep[T any] struct {
	Now func() time.Time // default time.Now

	mu    sync.Mutex
	slots map[string]*slot[T]
}

// A slot holds what is known of one key.
type slot[T any] struct {
	turn  chan struct{} // full while a caller asks for a new value
	users int           // calls that use the slot
	lease *lease[T]     // nil when there is none
}

type lease[T any] struct {
	value T
	until time.Time
}

// Get returns the value that is kept for key, or else a new one of issue, which
// returns when its value expires. forget drops that value, if it is still kept.
// Errors are those of issue, and of ctx.
func (k *Keep[T]) Get(ctx context.Context, key string, issue func(context.Context) (T, time.Time, error)) (value T, forget func(), err error) {
	s := k.enter(key)
	defer k.leave(s)
	l := k.kept(s)
	if l == nil {
		impatient := time.NewTimer(Patience)
		defer impatient.Stop()
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-impatient.C:
		case <-ctx.Done():
			return value, nil, context.Cause(ctx)
		}
		l = k.kept(s)
	}
	if l == nil {
		var expires time.Time
		if value, expires, err = issue(ctx); err != nil {
			return value, nil, err
		}
		l = &lease[T]{value, k.until(expires)}
		k.put(s, l)
	}
	return l.value, func() { k.forget(s, l) }, nil
}

// kept returns what may still be used, nil when there is nothing.
func (k *Keep[T]) kept(s *slot[T]) *lease[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.lease == nil || !k.now().Before(s.lease.until) {
		return nil
	}
	return s.lease
}

func (k *Keep[T]) put(s *slot[T], l *lease[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.lease = l
}

func (k *Keep[T]) now() time.Time {
	if k.Now == nil {
		return time.Now()
	}
	return k.Now()
}

// until returns how long something may be used that is issued now.
func (k *Keep[T]) until(expires time.Time) time.Time {
	if expires.IsZero() {
		return time.Time{}
	}
	now := k.now()
	return now.Add(min(expires.Sub(now)/5*4, longest))
}

func (k *Keep[T]) enter(key string) *slot[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.slots[key]
	if s == nil {
		s = &slot[T]{turn: make(chan struct{}, 1)}
		if k.slots == nil {
			k.slots = map[string]*slot[T]{}
		}
		k.slots[key] = s
	}
	s.users++
	return s
}

func (k *Keep[T]) forget(s *slot[T], l *lease[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.lease == l {
		s.lease = nil
	}
}

// leave drops what has expired, and what expires next while there is too much.
func (k *Keep[T]) leave(s *slot[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.users--
	now := k.now()
	for key, s := range k.slots {
		if s.users == 0 && (s.lease == nil || !now.Before(s.lease.until)) {
			delete(k.slots, key)
		}
	}
	for len(k.slots) > Max {
		first, found := "", false
		for key, s := range k.slots {
			if s.users == 0 && (!found || s.lease.until.Before(k.slots[first].lease.until)) {
				first, found = key, true
			}
		}
		if !found {
			return // all are in use, and leave on their own
		}
		delete(k.slots, first)
	}
}
