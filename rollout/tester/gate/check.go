package gate

import (
	"fmt"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A Visitor is what a check says of its canary.
type Visitor struct {
	Phase, Checksum string
	About           api.About // for people; texts that are harmless to show
	Trial           bool      // nothing waits for the answer: it begins no wait
}

// Check reports whether the gate is open for the visitor, and remembers who
// waits. What it changes in the opening (one-shot) is durable before it
// returns. The error is one of the key or the visitor, which wraps
// [ErrInvalid], or of the write: then the gate is not open.
func (b *Book) Check(k api.Key, v Visitor) (bool, error) {
	k = named(k)
	s := b.slot(k)
	if s == nil {
		if err := checkKey(k); err != nil {
			return false, err
		}
	}
	now := b.now()
	switch at := s.decided(); at.judge(now, v.Checksum) {
	case pass:
		b.leave(k, s, v, at.Mode == api.Sticky)
		return true, nil
	case refuse:
		if k.Name == "" { // a wait without a name would tell nothing
			return false, v.check()
		}
		return false, b.arrive(k, s, v, now)
	}
	if err := v.check(); err != nil {
		return false, err
	}
	return b.consume(clone(k), v)
}

// decided returns the state of a slot, which may be nil.
func (s *slot) decided() *state {
	if s == nil {
		return nil
	}
	return s.state.Load()
}

func (v Visitor) check() error {
	if err := checkText("phase", v.Phase, maxPart); err != nil {
		return err
	}
	return checkText("checksum", v.Checksum, maxPart)
}

// consume does what a check changes in an opening, as it is when its turn comes.
func (b *Book) consume(k api.Key, v Visitor) (bool, error) {
	var passed, sticky bool
	err := b.do(func(c *change) error {
		old := c.state(k).at(c.now)
		verdict := old.judge(c.now, v.Checksum)
		passed = verdict == pass || verdict == bind || verdict == spend
		sticky = passed && old.Mode == api.Sticky
		switch verdict {
		case bind:
			bound := *old
			bound.Checksum = v.Checksum
			c.set(k, &bound, api.Entry{Action: "consume", Mode: api.OneShot, Checksum: v.Checksum, Reason: "the first check passed"})
		case spend:
			c.set(k, c.closed(old, "", "a check without checksum passed"), api.Entry{Action: "consume", Mode: api.OneShot, Reason: "a check without checksum passed"})
		case shut:
			reason := fmt.Sprintf("another revision came: %s", v.Checksum)
			c.set(k, c.closed(old, "", reason), api.Entry{Action: "close", Mode: api.OneShot, Checksum: old.Checksum, Reason: reason})
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if s := b.slot(k); passed {
		b.leave(k, s, v, sticky)
	} else {
		err = b.arrive(k, s, v, b.now())
	}
	return passed, err
}

// closed is the state of a gate that is closed now.
func (c *change) closed(old *state, actor, reason string) *state {
	s := &state{Changed: c.now, Actor: actor, Reason: reason}
	if old != nil {
		s.Decision = old.Decision
	}
	return s
}

// expire closes the openings whose time is over.
func (b *Book) expire(c *change) error {
	over := map[api.Key]*state{}
	b.mu.RLock()
	for k, s := range b.slots {
		if at := s.state.Load(); at != nil && at.over(c.now) {
			over[k] = at
		}
	}
	b.mu.RUnlock()
	for k, at := range over {
		c.set(k, at.at(c.now), api.Entry{Action: "expire", Mode: at.Mode, Checksum: at.Checksum, Reason: "its time was over at " + at.Expires.Format(time.RFC3339)})
	}
	return nil
}
