package gate

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A state is what was decided about a gate, as it is in the file. It is never changed.
type state struct {
	api.Gate
	Decision uint64 `json:"decision"` // the last decision about it, by its number in the audit trail
}

// closed returns the state of a gate that was closed.
func closed(at time.Time, actor, reason string, decision uint64) *state {
	return &state{api.Gate{Changed: at, Actor: actor, Reason: reason}, decision}
}

func (s *state) decision() uint64 {
	if s == nil {
		return 0
	}
	return s.Decision
}

// check returns what is wrong with a state of the file.
func (s *state) check() error {
	switch {
	case s == nil:
		return errors.New("it is null")
	case s.Open && s.Mode != api.Sticky && s.Mode != api.OneShot && (s.Mode != api.Bound || s.Checksum == ""):
		return fmt.Errorf("mode %q", s.Mode)
	}
	return nil
}

// A verdict is what a check comes to.
type verdict int

const (
	refuse verdict = iota
	pass
	bind  // pass, and bind the opening to the checksum
	spend // pass, and close
	shut  // refuse, and close
)

// judge returns the verdict on a check with a checksum. A nil state is closed.
func (s *state) judge(now time.Time, checksum string) verdict {
	switch {
	case s == nil || !s.Open || s.over(now):
		return refuse
	case s.Mode == api.Sticky, s.Checksum != "" && s.Checksum == checksum:
		return pass
	case s.Mode == api.Bound:
		return refuse
	case s.Checksum == "" && checksum == "":
		return spend
	case s.Checksum == "":
		return bind
	case checksum == "":
		return refuse
	}
	return shut
}

// passes reports whether a check with the checksum would pass.
func (s *state) passes(now time.Time, checksum string) bool {
	v := s.judge(now, checksum)
	return v == pass || v == bind || v == spend
}

// over reports whether the time of the opening is.
func (s *state) over(now time.Time) bool {
	return s.Open && !s.Expires.IsZero() && !now.Before(s.Expires)
}

// at returns the state at a time: closed when its time is over.
func (s *state) at(now time.Time) *state {
	if s == nil || !s.over(now) {
		return s
	}
	return closed(s.Expires, "", "its time was over", s.Decision)
}

// A change is what one decision does, before it can be seen. Its methods are called
// with the lock of the store held.
type change struct {
	store   *Store
	now     time.Time
	states  map[api.Key]*state // nil: forgotten
	entries []api.Entry
}

// begin returns a change that does nothing yet.
func (s *Store) begin() *change { return &change{store: s, now: s.now(), states: map[api.Key]*state{}} }

// decide makes a decision, which apply makes of the gates as they are, and returns
// a gate as it is then. When apply fails it has changed nothing.
func (s *Store) decide(k api.Key, apply func(*change) error) (api.Gate, error) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	c := s.begin()
	s.mu.Lock()
	err := ErrClosed
	if !s.closed {
		err = apply(c)
	}
	s.mu.Unlock()
	if err == nil && len(c.states)+len(c.entries) > 0 {
		err = s.commit(c)
	}
	if err != nil {
		return api.Gate{}, err
	}
	return s.Gate(k), nil
}

// state returns what was decided about a gate, changes included.
func (c *change) state(k api.Key) *state {
	if changed, found := c.states[k]; found {
		return changed
	}
	return c.store.state(k)
}

// id returns the number of the next entry.
func (c *change) id() uint64 { return c.store.next + uint64(len(c.entries)) }

// set makes at the state of a gate, and e the entry about it.
func (c *change) set(k api.Key, at *state, e api.Entry) {
	c.states[k] = at
	c.note(k, e)
}

// note adds an entry to the audit trail.
func (c *change) note(k api.Key, e api.Entry) {
	e.ID, e.Time, e.Key = c.id(), c.now, k
	c.entries = append(c.entries, e)
}

// decision returns the number of the last decision about a gate.
func (c *change) decision(k api.Key) uint64 {
	if at := c.state(k); at != nil {
		return at.Decision
	}
	return c.store.floor
}

// Open opens a gate: that is durable when it returns. Mode checksum without a
// checksum opens for the one that waits. An error wraps [ErrInvalid] or
// [ErrClosed], or is one of the write.
func (s *Store) Open(k api.Key, by api.Change) (api.Gate, error) {
	return s.change(k, by, func(c *change, k api.Key) error { return c.open(k, by) })
}

// Shut closes a gate, durably and with errors as [Store.Open].
func (s *Store) Shut(k api.Key, by api.Change) (api.Gate, error) {
	for field, text := range map[string]string{"mode": string(by.Mode), "checksum": by.Checksum, "ttl": by.TTL} {
		if text != "" {
			return api.Gate{}, fmt.Errorf("%w: %s: it is of an opening", ErrInvalid, field)
		}
	}
	return s.change(k, by, func(c *change, k api.Key) error { c.shut(k, by, "close"); return nil })
}

// Reject closes a gate and opens the default rollback switch of its canary for the
// checksum that waits, or that by has; durably and with errors as [Store.Open].
func (s *Store) Reject(k api.Key, by api.Change) (api.Gate, error) {
	if by.Mode != "" {
		return api.Gate{}, fmt.Errorf("%w: mode: it is of an opening", ErrInvalid)
	}
	return s.change(k, by, func(c *change, k api.Key) error { return c.reject(k, by) })
}

// change decides as a caller asks.
func (s *Store) change(k api.Key, by api.Change, apply func(*change, api.Key) error) (api.Gate, error) {
	k = named(k)
	if err := cmp.Or(checkKey(k), checkChange(by)); err != nil {
		return api.Gate{}, err
	}
	return s.decide(k, func(c *change) error { return apply(c, k) })
}

func checkChange(by api.Change) error {
	switch by.Mode {
	case "", api.Sticky, api.OneShot, api.Bound:
	default:
		return fmt.Errorf("%w: mode: %q: want %s, %s or %s", ErrInvalid, by.Mode, api.Sticky, api.OneShot, api.Bound)
	}
	if by.Checksum != "" && (by.Mode == api.Sticky || by.Mode == api.OneShot) {
		return fmt.Errorf("%w: checksum: it goes with mode %s", ErrInvalid, api.Bound)
	}
	if _, err := api.ParseInterval(by.TTL, 0); err != nil {
		return fmt.Errorf("%w: ttl: %w", ErrInvalid, err)
	}
	return cmp.Or(checkText("checksum", by.Checksum, maxPart), checkText("actor", by.Actor, maxPart), checkText("reason", by.Reason, maxReason))
}

// open opens a gate as a valid change says.
func (c *change) open(k api.Key, by api.Change) error {
	at := &state{api.Gate{Open: true, Mode: by.Mode, Checksum: by.Checksum, Changed: c.now, Actor: by.Actor, Reason: by.Reason}, c.id()}
	switch {
	case at.Mode == "" && at.Checksum == "":
		at.Mode = api.Sticky
	case at.Mode == "":
		at.Mode = api.Bound
	case at.Mode == api.Bound && at.Checksum == "":
		v := c.store.waits(k, c.now)
		if v == nil || v.Checksum == "" {
			return fmt.Errorf("%w: checksum: no revision waits at %s: name the one that it is to be open for", ErrInvalid, k)
		}
		at.Checksum = v.Checksum
	}
	if ttl, _ := api.ParseInterval(by.TTL, 0); ttl > 0 {
		at.Expires = c.now.Add(ttl)
	}
	if c.store.gates[k] == nil && !c.store.room() {
		return fmt.Errorf("%w: %d gates are open, which is the most: close some", ErrInvalid, c.store.config.MaxKeys)
	}
	c.set(k, at, api.Entry{Action: "open", Mode: at.Mode, Checksum: at.Checksum, Actor: at.Actor, Reason: at.Reason})
	return nil
}

// shut closes a gate. Where there is no room to keep who did, it is closed anyway.
func (c *change) shut(k api.Key, by api.Change, action string) {
	at := closed(c.now, by.Actor, by.Reason, c.id())
	if c.note(k, api.Entry{Action: action, Checksum: by.Checksum, Actor: by.Actor, Reason: by.Reason}); c.store.gates[k] == nil && !c.store.room() {
		c.store.floor = at.Decision // which ends its links
		return
	}
	c.states[k] = at
}

// reject closes a gate, and opens the rollback switch for the revision that is
// rejected: for a checksum, or for the next check when the canary sends none.
func (c *change) reject(k api.Key, by api.Change) error {
	if k.Kind != api.KindGate {
		return fmt.Errorf("%w: kind: a %s switch is not rejected: close it", ErrInvalid, k.Kind)
	}
	opening := by
	if opening.Mode = api.Bound; by.Checksum == "" {
		v := c.store.waits(k, c.now)
		if v == nil {
			return fmt.Errorf("%w: checksum: nobody waits at %s: close it, or name the checksum of the revision that is rejected", ErrInvalid, k)
		}
		by.Checksum, opening.Checksum = v.Checksum, v.Checksum
		if v.Checksum == "" {
			opening.Mode = api.OneShot
		}
	}
	opening.Reason = cmp.Or(by.Reason, "rejected at gate "+k.Gate)
	if err := c.open(api.Key{Kind: api.KindRollback, Namespace: k.Namespace, Name: k.Name, Gate: api.DefaultGate}, opening); err != nil {
		return err
	}
	c.shut(k, by, "reject")
	return nil
}

const (
	minInterval = time.Second // several callers may ask at nearly the same time

	maxPart   = 253 // bytes of a part of a key, and of checksums, phases and actors
	maxReason = 1000
)

// A Visitor is what a check says of its canary.
type Visitor struct {
	Phase, Checksum string
	About           api.About // for people; texts that are harmless to show
	Trial           bool      // nothing waits for the answer: it begins no wait
}

// An Answer is what a check comes to.
type Answer struct {
	Open          bool
	Actor, Reason string // of the opening that it passed by
}

// A visit is a canary that waits, or one that asked a rollback switch. It is never
// changed. It is in the file as JSON.
type visit struct {
	api.Waiting
	Interval time.Duration `json:"interval,omitempty"` // the longest time between two checks; 0 after the first
}

func (v *visit) last() time.Time {
	if v == nil {
		return time.Time{}
	}
	return v.Last
}

// stale reports whether there was no check within two intervals.
func (v *visit) stale(now time.Time) bool {
	return v.Interval > 0 && now.Sub(v.Last) > 2*max(v.Interval, minInterval)
}

// Check reports whether the gate is open for the visitor, and remembers that it
// waits if not. What it changes in the opening (one-shot) is durable before it
// returns. The error is one of the key or the visitor, which wraps
// [ErrInvalid], or of the write: then the gate is not open.
func (s *Store) Check(k api.Key, v Visitor) (Answer, error) {
	k = named(k)
	if err := cmp.Or(checkKey(k), checkText("phase", v.Phase, maxPart), checkText("checksum", v.Checksum, maxPart)); err != nil {
		return Answer{}, err
	}
	now := s.now()
	s.mu.Lock()
	at := s.state(k)
	verdict := at.judge(now, v.Checksum)
	if verdict != refuse && verdict != pass {
		s.mu.Unlock()
		_, err := s.decide(k, func(c *change) error { at, verdict = c.consume(k, v.Checksum); return nil })
		if err != nil {
			return Answer{}, err
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if verdict == refuse || verdict == shut {
		s.wait(k, v, now)
		return Answer{}, nil
	}
	if e := s.gates[k]; e != nil && e.visit != nil && (at.Mode == api.Sticky || e.visit.Checksum == v.Checksum) {
		s.endVisit(k, now)
	}
	return Answer{Open: true, Actor: at.Actor, Reason: at.Reason}, nil
}

// consume does what a check changes in an opening, and returns that as it was when the
// turn of the check came, and the verdict.
func (c *change) consume(k api.Key, checksum string) (*state, verdict) {
	at := c.state(k)
	verdict := at.judge(c.now, checksum)
	switch verdict {
	case bind:
		bound := *at
		bound.Checksum = checksum
		c.set(k, &bound, api.Entry{Action: "consume", Mode: api.OneShot, Checksum: checksum, Reason: "the first check passed"})
	case spend:
		const reason = "a check without checksum passed"
		c.set(k, closed(c.now, "", reason, at.Decision), api.Entry{Action: "consume", Mode: api.OneShot, Reason: reason})
	case shut:
		reason := fmt.Sprintf("another revision came: %s", checksum)
		c.set(k, closed(c.now, "", reason, at.Decision), api.Entry{Action: "close", Mode: api.OneShot, Checksum: at.Checksum, Reason: reason})
	}
	return at, verdict
}

// wait begins or renews a wait. It is called with the lock held.
func (s *Store) wait(k api.Key, v Visitor, now time.Time) {
	if v.Trial || k.Name == "" { // a wait without a name would tell nothing
		return
	}
	old := s.waits(k, now)
	next := &visit{Waiting: api.Waiting{Since: now, Last: now, Phase: v.Phase, Checksum: v.Checksum, About: v.About}}
	if old != nil {
		next.Interval = old.Interval
		if old.Checksum == v.Checksum {
			next.Since, next.Interval = old.Since, max(old.Interval, now.Sub(old.Last))
		}
	}
	e := s.gates[k]
	if e == nil {
		if !s.room() {
			return
		}
		e = new(entry)
		s.gates[k] = e
	}
	same := old != nil && old.Phase == v.Phase && old.Checksum == v.Checksum && old.About == v.About && !e.told
	e.visit, e.told = next, false
	if s.dirty[k] = true; !same {
		s.feed.Send(s.view(k, now))
	}
}

// EndWaits ends the waits of a canary whose rollout is over, except that at the
// gate of a key: its caller asks about the next rollout.
func (s *Store) EndWaits(namespace, name string, except api.Key) {
	except = named(except)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.gates {
		if k.Kind == api.KindGate && k.Namespace == namespace && k.Name == name && k != except && e.visit != nil {
			s.endVisit(k, s.now())
		}
	}
}

// named returns the key with the gate that a key without one means.
func named(k api.Key) api.Key {
	k.Gate = cmp.Or(k.Gate, api.DefaultGate)
	return k
}

// checkKey returns an error that wraps [ErrInvalid] unless k can be a key.
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

func checkText(field, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%w: %s: %d bytes are too many, want at most %d", ErrInvalid, field, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s: it is no UTF-8", ErrInvalid, field)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: %s: it has control characters", ErrInvalid, field)
	}
	return nil
}

// stored is the key in the file: its parts, which have no control characters,
// with zero bytes between them.
func stored(k api.Key) []byte {
	return []byte(string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name + "\x00" + k.Gate)
}

func parseStored(text []byte) (api.Key, error) {
	parts := strings.Split(string(text), "\x00")
	if len(parts) != 4 || parts[3] == "" {
		return api.Key{}, fmt.Errorf("%w: key", ErrInvalid)
	}
	k := api.Key{Kind: api.Kind(parts[0]), Namespace: parts[1], Name: parts[2], Gate: parts[3]}
	return k, checkKey(k)
}
