package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A record is the state of a gate, as the file has it: the last decision and, in Waiting,
// the last refused check. What Waiting points to is never modified. The zero record is that
// of an unknown gate, which is closed.
type record struct {
	api.Gate
	Decision  uint64        `json:"decision"`           // number of the last decision in the audit trail
	Interval  time.Duration `json:"interval,omitempty"` // longest time between two checks of the wait; 0 after the first check
	staleSent bool          // watchers know that the wait is stale
}

// known reports whether there was a decision about the gate, or a wait at it.
func (r record) known() bool { return !r.Changed.IsZero() || r.Waiting != nil }

// stale reports whether the last check of the wait is more than two intervals ago.
func (r record) stale(w *api.Waiting, now time.Time) bool {
	return r.Interval > 0 && now.Sub(w.Last) > 2*max(r.Interval, minInterval)
}

// asClosed returns r with the gate closed at a time by an actor. The wait is kept.
func (r record) asClosed(at time.Time, actor, reason string, decision uint64) record {
	r.Gate, r.Decision = api.Gate{Changed: at, Actor: actor, Reason: reason, Waiting: r.Waiting}, decision
	return r
}

// expired reports whether the opening has expired.
func (r record) expired(now time.Time) bool {
	return r.Open && !r.Expires.IsZero() && !now.Before(r.Expires)
}

// stateAt returns the record at a time: closed if the opening has expired.
func (r record) stateAt(now time.Time) record {
	if !r.expired(now) {
		return r
	}
	return r.asClosed(r.Expires, "", "its time was over", r.Decision)
}

// check reports whether a check with a checksum passes. If the check changes the opening, next
// is the new record, and e the entry for the audit trail; otherwise e has no action.
func (r record) check(now time.Time, checksum string) (passes bool, next record, e api.Entry) {
	switch {
	case !r.Open || r.expired(now):
	case r.Mode == api.Sticky, r.Checksum != "" && r.Checksum == checksum:
		passes = true
	case r.Mode == api.Bound:
	case r.Checksum == "" && checksum == "":
		const reason = "a check without checksum passed"
		return true, r.asClosed(now, "", reason, r.Decision), api.Entry{Action: "consume", Mode: r.Mode, Reason: reason}
	case r.Checksum == "":
		r.Checksum = checksum
		return true, r, api.Entry{Action: "consume", Mode: r.Mode, Checksum: checksum, Reason: "the first check passed"}
	case checksum != "":
		reason := "another revision came: " + checksum
		return false, r.asClosed(now, "", reason, r.Decision), api.Entry{Action: "close", Mode: r.Mode, Checksum: r.Checksum, Reason: reason}
	}
	return passes, r, e
}

// refuses reports whether a check by the canary that waits would be refused.
func (r record) refuses(w *api.Waiting, now time.Time) bool {
	passes, _, _ := r.check(now, w.Checksum)
	return !passes
}

// A stagedChange collects what one decision changes, before that is written and visible. Its
// methods are called with the lock of the store held.
type stagedChange struct {
	*Store
	now     time.Time
	records map[api.Key]record
	entries []api.Entry
}

// nextID returns the number of the next entry.
func (c *stagedChange) nextID() uint64 { return c.next + uint64(len(c.entries)) }

// set makes r the record of a gate, and e the entry about it.
func (c *stagedChange) set(k api.Key, r record, e api.Entry) {
	c.records[k] = r
	c.addEntry(k, e)
}

// addEntry adds an entry to the audit trail.
func (c *stagedChange) addEntry(k api.Key, e api.Entry) {
	e.ID, e.Time, e.Key = c.nextID(), c.now, k
	c.entries = append(c.entries, e)
}

// Change carries out an action: open opens a gate, close closes it, and reject closes it
// and opens the default rollback switch of its canary for by.Checksum, by default for the
// checksum that waits. Mode checksum without a checksum opens for the checksum that waits.
// The change is on disk when Change returns. An error wraps [ErrInvalid] or [ErrClosed], or
// comes from the write.
func (s *Store) Change(action string, k api.Key, by api.Change) (api.Gate, error) {
	return s.decide(action, k, by, nil)
}

// decide carries out an action. If t is not nil, its link is used for that, and must still be
// good.
func (s *Store) decide(action string, k api.Key, by api.Change, t *Ticket) (g api.Gate, err error) {
	k.Gate = cmp.Or(k.Gate, api.DefaultGate)
	if err := cmp.Or(checkKey(k), checkChange(action, by)); err != nil {
		return g, err
	}
	err = s.update(func(c *stagedChange) error {
		if t != nil {
			if err := c.checkLink(*t); err != nil {
				return err
			}
		}
		switch action {
		case "open":
			return c.open(k, by)
		case "reject":
			return c.reject(k, by)
		}
		c.close(k, by, action, c.gates[k].Waiting)
		return nil
	})
	if err == nil {
		g = s.Gate(k)
	}
	return g, err
}

// checkChange returns an error that wraps [ErrInvalid] unless by is possible for the action.
func checkChange(action string, by api.Change) error {
	switch {
	case action != "open" && action != "close" && action != "reject":
		return fmt.Errorf("%w: action %q: want open, close or reject", ErrInvalid, action)
	case action == "close" && cmp.Or(string(by.Mode), by.Checksum, by.TTL) != "":
		return fmt.Errorf("%w: mode, checksum and ttl are of an opening", ErrInvalid)
	case action == "reject" && by.Mode != "":
		return fmt.Errorf("%w: mode: it is of an opening", ErrInvalid)
	case !slices.Contains([]api.Mode{"", api.Sticky, api.OneShot, api.Bound}, by.Mode):
		return fmt.Errorf("%w: mode: %q: want %s, %s or %s", ErrInvalid, by.Mode, api.Sticky, api.OneShot, api.Bound)
	case by.Checksum != "" && (by.Mode == api.Sticky || by.Mode == api.OneShot):
		return fmt.Errorf("%w: checksum: it requires mode %s", ErrInvalid, api.Bound)
	}
	if _, err := api.ParseInterval(by.TTL, 0); err != nil {
		return fmt.Errorf("%w: ttl: %w", ErrInvalid, err)
	}
	return cmp.Or(checkText("checksum", by.Checksum, maxPart), checkText("actor", by.Actor, maxPart), checkText("reason", by.Reason, maxReason))
}

// open opens a gate as a valid change says.
func (c *stagedChange) open(k api.Key, by api.Change) error {
	r := c.gates[k]
	waits := c.currentWait(r, c.now)
	switch {
	case by.Mode == "" && by.Checksum == "":
		by.Mode = api.Sticky
	case by.Mode == "":
		by.Mode = api.Bound
	case by.Mode != api.Bound || by.Checksum != "":
	case waits == nil || waits.Checksum == "":
		return fmt.Errorf("%w: checksum: no revision waits at %s: name the one that it is to be open for", ErrInvalid, k)
	default:
		by.Checksum = waits.Checksum
	}
	if !c.canRecord(k, 2*c.config.MaxKeys) {
		return fmt.Errorf("%w: %d gates are known, the maximum: closed gates are removed after a week", ErrInvalid, len(c.gates))
	}
	r.Decision = c.nextID()
	r.Gate = api.Gate{Open: true, Mode: by.Mode, Checksum: by.Checksum, Changed: c.now, Actor: by.Actor, Reason: by.Reason, Waiting: r.Waiting}
	if ttl, _ := api.ParseInterval(by.TTL, 0); ttl > 0 {
		r.Expires = c.now.Add(ttl)
	}
	c.set(k, r, api.Entry{Action: "open", Mode: by.Mode, Checksum: by.Checksum, Actor: by.Actor, Reason: by.Reason})
	return nil
}

// shut closes a gate and sets its wait. If there is no room for the record, the gate is closed all
// the same, since unknown gates are.
func (c *stagedChange) close(k api.Key, by api.Change, action string, waits *api.Waiting) {
	r := c.gates[k].asClosed(c.now, by.Actor, by.Reason, c.nextID())
	r.Waiting = waits
	if c.addEntry(k, api.Entry{Action: action, Checksum: by.Checksum, Actor: by.Actor, Reason: by.Reason}); c.canRecord(k, 2*c.config.MaxKeys) {
		c.records[k] = r
	}
}

// reject closes a gate, and opens the rollback switch for the revision that is
// rejected: for its checksum, or for the next check if the canary sends none.
func (c *stagedChange) reject(k api.Key, by api.Change) error {
	if k.Kind != api.KindGate {
		return fmt.Errorf("%w: kind: a %s switch is not rejected: close it", ErrInvalid, k.Kind)
	}
	waits := c.currentWait(c.gates[k], c.now)
	opening := by
	if opening.Mode = api.Bound; by.Checksum == "" {
		if waits == nil {
			return fmt.Errorf("%w: checksum: no revision is waiting at %s: close it, or name the checksum of the revision that is rejected", ErrInvalid, k)
		}
		by.Checksum, opening.Checksum = waits.Checksum, waits.Checksum
		if waits.Checksum == "" {
			opening.Mode = api.OneShot
		}
	}
	opening.Reason = cmp.Or(by.Reason, "rejected at gate "+k.Gate)
	if err := c.open(api.Key{Kind: api.KindRollback, Namespace: k.Namespace, Name: k.Name, Gate: api.DefaultGate}, opening); err != nil {
		return err
	}
	if waits != nil && waits.Checksum == by.Checksum {
		waits = nil
	}
	c.close(k, by, "reject", waits)
	return nil
}

const (
	minInterval = time.Second // several callers may ask at nearly the same time

	maxPart   = 253 // bytes of a part of a key, and of checksums, phases and actors
	maxReason = 1000
)

// A CheckRequest is what a check tells about its canary.
type CheckRequest struct {
	Phase, Checksum string
	CanaryInfo      api.CanaryInfo // for people; texts that are harmless to show
	Trial           bool           // nothing waits for the answer: it begins no wait
}

// An Answer is the result of a check.
type Answer struct {
	Open          bool
	Actor, Reason string // of the opening, if it is open
}

// Check reports whether the gate is open for the canary (twice), and records that the visitor
// waits if it is not. A change of a one-shot opening is on disk before Check returns. With
// an error the gate is not open: it wraps [ErrInvalid] if key or request are not valid, or
// [ErrClosed], or comes from the write.
func (s *Store) Check(k api.Key, v CheckRequest) (Answer, error) {
	k.Gate = cmp.Or(k.Gate, api.DefaultGate)
	if err := cmp.Or(checkKey(k), checkText("phase", v.Phase, maxPart), checkText("checksum", v.Checksum, maxPart)); err != nil {
		return Answer{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := time.Now().UTC().Round(0), s.gates[k]
	passes, next, e := r.check(now, v.Checksum)
	if e.Action != "" {
		if s.closed {
			return Answer{}, ErrClosed
		}
		c := &stagedChange{Store: s, now: now, records: map[api.Key]record{}}
		c.set(k, next, e)
		if err := s.write(c); err != nil {
			return Answer{}, err
		}
	}
	if !passes {
		s.recordWait(k, v, now)
		return Answer{}, nil
	}
	if r.Waiting != nil && (r.Mode == api.Sticky || r.Waiting.Checksum == v.Checksum) {
		s.endWait(k, now)
	}
	return Answer{Open: true, Actor: r.Actor, Reason: r.Reason}, nil
}

// recordWait begins or renews a wait. It is called with the lock held.
func (s *Store) recordWait(k api.Key, v CheckRequest, now time.Time) {
	if v.Trial || k.Name == "" || !s.canRecord(k, s.config.MaxKeys) { // a wait without a name is of no use to people
		return
	}
	r := s.gates[k]
	old, unchanged := s.currentWait(r, now), false
	next := &api.Waiting{Since: now, Last: now, Phase: v.Phase, Checksum: v.Checksum, CanaryInfo: v.CanaryInfo}
	switch {
	case old == nil:
		r.Interval = 0
	case old.Checksum == v.Checksum:
		next.Since, r.Interval = old.Since, max(r.Interval, now.Sub(old.Last))
		unchanged = old.Phase == v.Phase && old.CanaryInfo == v.CanaryInfo && !r.staleSent
	}
	r.Waiting, r.staleSent = next, false
	if s.put(k, r); !unchanged {
		s.feed.Send(func() api.Gate { return s.view(k, now) })
	}
}

// EndWaits ends the waits of a canary whose rollout is over, except a wait at the gate
// except, whose caller asks about the next rollout.
func (s *Store) EndWaits(namespace, name string, except api.Key) {
	except.Gate = cmp.Or(except.Gate, api.DefaultGate)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.gates {
		if k.Kind == api.KindGate && k.Namespace == namespace && k.Name == name && k != except && r.Waiting != nil {
			s.endWait(k, time.Now())
		}
	}
}

// checkKey returns an error that wraps [ErrInvalid] unless k is a valid key.
func checkKey(k api.Key) error {
	if k.Kind != api.KindGate && k.Kind != api.KindRollback {
		return fmt.Errorf("%w: kind: want %s or %s", ErrInvalid, api.KindGate, api.KindRollback)
	}
	for _, part := range [...]struct{ field, text string }{{"namespace", k.Namespace}, {"name", k.Name}, {"gate", k.Gate}} {
		if part.text == "." || part.text == ".." {
			return fmt.Errorf("%w: %s: %q is no name", ErrInvalid, part.field, part.text)
		}
		if err := checkText(part.field, part.text, maxPart); err != nil {
			return err
		}
	}
	return nil
}

func checkText(field, text string, maxLen int) error {
	switch {
	case len(text) > maxLen:
		return fmt.Errorf("%w: %s: %d bytes are too many, want at most %d", ErrInvalid, field, len(text), maxLen)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s: it is no UTF-8", ErrInvalid, field)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: %s: it has control characters", ErrInvalid, field)
	}
	return nil
}
