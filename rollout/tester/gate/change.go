package gate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A change is what one write does: some decisions, in order.
type change struct {
	book    *Book
	now     time.Time
	states  map[api.Key]*state // nil: forgotten
	gone    map[api.Key]string // checksums that are not waited with any more: they were rejected
	entries []api.Entry
	next    uint64 // number of the next entry
	floor   uint64
	added   int // gates with a state, beyond those of the book
}

// state returns what was decided about a gate, changes included.
func (c *change) state(k api.Key) *state {
	if changed, found := c.states[k]; found {
		return changed
	}
	return c.book.slot(k).decided()
}

// set makes s the state of a gate, and e the entry about it.
func (c *change) set(k api.Key, s *state, e api.Entry) {
	if c.state(k) == nil {
		c.added++
	}
	c.states[k] = s
	c.note(k, e)
}

// note adds an entry to the audit trail.
func (c *change) note(k api.Key, e api.Entry) {
	e.ID, e.Time, e.Key = c.next, c.now, k
	c.entries = append(c.entries, e)
	c.next++
}

// decision returns the number of the last decision about a gate.
func (c *change) decision(k api.Key) uint64 {
	if s := c.state(k); s != nil {
		return s.Decision
	}
	return c.floor
}

// room reports whether n more gates may have a state, after forgetting closed
// ones that nobody waits for if need be.
func (c *change) room(n int) bool {
	most := c.book.config.MaxKeys
	if c.book.decided+c.added+n <= most {
		return true
	}
	c.forget(most/10+n, func(*state) bool { return true })
	return c.book.decided+c.added+n <= most
}

// forget forgets at most n closed gates that nobody waits for and that may go,
// the oldest first.
func (c *change) forget(n int, may func(*state) bool) {
	type closed struct {
		key api.Key
		*state
	}
	var all []closed
	b := c.book
	b.mu.RLock()
	for k, s := range b.slots {
		if _, changed := c.states[k]; changed {
			continue
		}
		if at := s.state.Load(); at != nil && !at.Open && s.visit.Load() == nil && may(at) {
			all = append(all, closed{k, at})
		}
	}
	b.mu.RUnlock()
	slices.SortFunc(all, func(x, y closed) int { return cmp.Or(x.Changed.Compare(y.Changed), compare(x.key, y.key)) })
	for _, x := range all[:min(n, len(all))] {
		c.states[x.key] = nil
		c.floor = max(c.floor, x.Decision)
		c.added--
	}
}

// Open opens a gate: that is durable when it returns. Mode checksum without a
// checksum opens for the one that waits. An error wraps [ErrInvalid] or
// [ErrClosed], or is one of the write.
func (b *Book) Open(k api.Key, c api.Change) (api.Gate, error) {
	return b.decide(k, c, func(ch *change, k api.Key) error { return ch.open(k, c, "open") })
}

// Shut closes a gate, durably and with errors as [Book.Open].
func (b *Book) Shut(k api.Key, c api.Change) (api.Gate, error) {
	for field, text := range map[string]string{"mode": string(c.Mode), "checksum": c.Checksum, "ttl": c.TTL} {
		if text != "" {
			return api.Gate{}, fmt.Errorf("%w: %s: it is of an opening", ErrInvalid, field)
		}
	}
	return b.decide(k, c, func(ch *change, k api.Key) error { return ch.shut(k, c, "close") })
}

// Reject closes a gate and opens the default rollback switch of its canary for the
// checksum that waits, or that c has; durably and with errors as [Book.Open].
func (b *Book) Reject(k api.Key, c api.Change) (api.Gate, error) {
	if c.Mode != "" {
		return api.Gate{}, fmt.Errorf("%w: mode: it is of an opening", ErrInvalid)
	}
	return b.decide(k, c, func(ch *change, k api.Key) error { return ch.reject(k, c) })
}

// decide makes a decision about a gate.
func (b *Book) decide(k api.Key, c api.Change, apply func(*change, api.Key) error) (api.Gate, error) {
	k = clone(named(k))
	if err := checkKey(k); err != nil {
		return api.Gate{}, err
	}
	if err := checkChange(c); err != nil {
		return api.Gate{}, err
	}
	var gate api.Gate
	err := b.do(func(ch *change) error {
		if err := apply(ch, k); err != nil {
			return err
		}
		made := new(slot)
		made.state.Store(ch.state(k))
		if v := ch.waits(k); v != nil && !ch.rejected(k, v) {
			made.visit.Store(v)
		}
		gate = b.view(k, made, ch.now)
		return nil
	})
	if err != nil {
		return api.Gate{}, err
	}
	return gate, nil
}

func checkChange(c api.Change) error {
	switch c.Mode {
	case "", api.Sticky, api.OneShot, api.Bound:
	default:
		return fmt.Errorf("%w: mode: %q: want %s, %s or %s", ErrInvalid, c.Mode, api.Sticky, api.OneShot, api.Bound)
	}
	if c.Checksum != "" && (c.Mode == api.Sticky || c.Mode == api.OneShot) {
		return fmt.Errorf("%w: checksum: it goes with mode %s", ErrInvalid, api.Bound)
	}
	if _, err := api.ParseInterval(c.TTL, 0); err != nil {
		return fmt.Errorf("%w: ttl: %w", ErrInvalid, err)
	}
	for _, text := range []struct {
		field, text string
		most        int
	}{{"checksum", c.Checksum, maxPart}, {"actor", c.Actor, maxPart}, {"reason", c.Reason, maxReason}} {
		if err := checkText(text.field, text.text, text.most); err != nil {
			return err
		}
	}
	return nil
}

// open opens a gate as a valid change says.
func (c *change) open(k api.Key, by api.Change, action string) error {
	s := &state{Open: true, Mode: by.Mode, Checksum: by.Checksum, Changed: c.now, Actor: by.Actor, Reason: by.Reason}
	switch {
	case s.Mode == "" && s.Checksum == "":
		s.Mode = api.Sticky
	case s.Mode == "":
		s.Mode = api.Bound
	case s.Mode == api.Bound && s.Checksum == "":
		v := c.waits(k)
		if v == nil || v.checksum == "" {
			return fmt.Errorf("%w: checksum: no revision waits at %s: name the one that it is to be open for", ErrInvalid, k)
		}
		s.Checksum = v.checksum
	}
	if ttl, _ := api.ParseInterval(by.TTL, 0); ttl > 0 {
		s.Expires = c.now.Add(ttl)
	}
	if c.state(k) == nil && !c.room(1) {
		return fmt.Errorf("%w: %d gates are open, which is the most: close some", ErrInvalid, c.book.config.MaxKeys)
	}
	s.Decision = c.next
	c.set(k, s, api.Entry{Action: action, Mode: s.Mode, Checksum: s.Checksum, Actor: s.Actor, Reason: s.Reason})
	return nil
}

// shut closes a gate. Where there is no room to keep who did, it is closed anyway.
func (c *change) shut(k api.Key, by api.Change, action string) error {
	entry := api.Entry{Action: action, Checksum: by.Checksum, Actor: by.Actor, Reason: by.Reason}
	s := c.closed(nil, by.Actor, by.Reason)
	if c.state(k) == nil && !c.room(1) {
		c.floor = c.next
		c.note(k, entry)
		return nil
	}
	s.Decision = c.next
	c.set(k, s, entry)
	return nil
}

// reject closes a gate, and opens the rollback switch for the revision that is
// rejected: for a checksum, or for the next check when the canary sends none.
func (c *change) reject(k api.Key, by api.Change) error {
	if k.Kind != api.KindGate {
		return fmt.Errorf("%w: kind: a %s switch is not rejected: close it", ErrInvalid, k.Kind)
	}
	mode := api.Bound
	if by.Checksum == "" {
		v := c.waits(k)
		if v == nil {
			return fmt.Errorf("%w: checksum: nobody waits at %s: close it, or name the checksum of the revision that is rejected", ErrInvalid, k)
		}
		if by.Checksum = v.checksum; by.Checksum == "" {
			mode = api.OneShot
		}
	}
	rollback := api.Key{Kind: api.KindRollback, Namespace: k.Namespace, Name: k.Name, Gate: api.DefaultGate}
	reason := by.Reason
	by.Mode = mode
	if by.Reason == "" {
		by.Reason = "rejected at gate " + k.Gate
	}
	if err := c.open(rollback, by, "open"); err != nil {
		return err
	}
	by.Reason = reason
	c.gone[k] = by.Checksum
	return c.shut(k, by, "reject")
}

// rejected reports whether the change rejects what waits.
func (c *change) rejected(k api.Key, v *visit) bool {
	checksum, found := c.gone[k]
	return found && checksum == v.checksum
}

// waits returns who waits at a gate, or asked a rollback switch lately; nil for nobody.
func (c *change) waits(k api.Key) *visit {
	s := c.book.slot(k)
	if s == nil {
		return nil
	}
	v := s.visit.Load()
	if v == nil || v.idle(c.now, c.book.config.Idle) {
		return nil
	}
	return v
}
