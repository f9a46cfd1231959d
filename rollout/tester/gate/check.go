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

const (
	renewWithin = 10 * time.Second // what is on disk of the last check is not older
	minInterval = time.Second      // several callers may ask at nearly the same time

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

// A visit is a canary that waits, or one that asked a rollback switch. Its fields
// with names in JSON are in the file.
type visit struct {
	Since    time.Time     `json:"since"`
	Last     time.Time     `json:"last"`
	Interval time.Duration `json:"interval,omitempty"` // the longest time between two checks; 0 after the first
	Phase    string        `json:"phase,omitempty"`
	Checksum string        `json:"checksum,omitempty"`
	api.About

	saved time.Time // Last, as it is on disk
	told  bool      // watchers were told that it is stale
}

func (v *visit) copied() *visit {
	if v == nil {
		return nil
	}
	c := *v
	return &c
}

// idle reports whether there was no check for too long.
func (v *visit) idle(now time.Time, limit time.Duration) bool { return now.Sub(v.Last) > limit }

// stale reports whether there was none within two intervals.
func (v *visit) stale(now time.Time) bool {
	return v.Interval > 0 && now.Sub(v.Last) > 2*max(v.Interval, minInterval)
}

// waits returns the visit of a gate that is not over, nil when there is none. It is
// called with the lock held.
func (s *Store) waits(k api.Key, now time.Time) *visit {
	if e := s.gates[k]; e != nil && e.visit != nil && !e.visit.idle(now, s.config.Idle) {
		return e.visit
	}
	return nil
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
	var at *state
	if e := s.gates[k]; e != nil {
		at = e.state
	}
	verdict := at.judge(now, v.Checksum)
	if verdict == bind || verdict == spend || verdict == shut {
		s.mu.Unlock()
		return s.consume(k, v)
	}
	changed := s.visited(k, at, v, verdict == pass, now)
	s.mu.Unlock()
	return s.answer(k, at, verdict == pass, changed), nil
}

func (s *Store) answer(k api.Key, at *state, open, changed bool) Answer {
	if changed {
		s.hub.Notify(k)
	}
	if !open {
		return Answer{}
	}
	return Answer{Open: true, Actor: at.Actor, Reason: at.Reason}
}

// consume does what a check changes in an opening, as it is when its turn comes.
func (s *Store) consume(k api.Key, v Visitor) (Answer, error) {
	var at *state
	open := false
	_, err := s.decide(k, func(c *change) error {
		at = c.state(k).at(c.now)
		verdict := at.judge(c.now, v.Checksum)
		open = verdict == pass || verdict == bind || verdict == spend
		switch verdict {
		case bind:
			bound := *at
			bound.Checksum = v.Checksum
			c.set(k, &bound, api.Entry{Action: "consume", Mode: api.OneShot, Checksum: v.Checksum, Reason: "the first check passed"})
		case spend:
			const reason = "a check without checksum passed"
			c.set(k, &state{Changed: c.now, Reason: reason, Decision: at.Decision}, api.Entry{Action: "consume", Mode: api.OneShot, Reason: reason})
		case shut:
			reason := fmt.Sprintf("another revision came: %s", v.Checksum)
			c.set(k, &state{Changed: c.now, Reason: reason, Decision: at.Decision}, api.Entry{Action: "close", Mode: api.OneShot, Checksum: at.Checksum, Reason: reason})
		}
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	s.mu.Lock()
	changed := s.visited(k, at, v, open, s.now())
	s.mu.Unlock()
	return s.answer(k, at, open, changed), nil
}

// visited notes a check: one that passed ends the wait of its checksum, at a sticky
// opening any; one that was refused begins or renews a wait. It reports whether
// watchers are to be told. It is called with the lock held.
func (s *Store) visited(k api.Key, at *state, v Visitor, passed bool, now time.Time) bool {
	e := s.gates[k]
	if passed {
		if e == nil || e.visit == nil || at.Mode != api.Sticky && e.visit.Checksum != v.Checksum {
			return false
		}
		e.visit = nil
		s.touched[k] = true
		return true
	}
	if v.Trial || k.Name == "" { // a wait without a name would tell nothing
		return false
	}
	old := s.waits(k, now)
	next := &visit{Since: now, Last: now, Phase: v.Phase, Checksum: v.Checksum, About: v.About}
	if old != nil {
		next.Interval, next.saved = old.Interval, old.saved
		if old.Checksum == v.Checksum {
			next.Since, next.Interval = old.Since, max(old.Interval, now.Sub(old.Last))
		}
	}
	same := old != nil && old.Phase == v.Phase && old.Checksum == v.Checksum && old.About == v.About && !old.told
	if e == nil {
		if len(s.gates)-s.decided >= s.config.MaxKeys {
			s.evict()
		}
		e = new(entry)
		s.gates[k] = e
	}
	e.visit = next
	if !same || now.Sub(next.saved) > renewWithin {
		s.touched[k] = true
	}
	return !same
}

// evict forgets a tenth of the gates that nobody decided about, the longest idle.
func (s *Store) evict() {
	var all []api.Key
	for k, e := range s.gates {
		if e.state == nil && e.visit != nil {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(x, y api.Key) int { return s.gates[x].visit.Last.Compare(s.gates[y].visit.Last) })
	for _, k := range all[:min(len(all), s.config.MaxKeys/10+1)] {
		delete(s.gates, k)
		s.touched[k] = true
	}
}

// EndWaits ends the waits of a canary whose rollout is over, except that at the
// gate of a key: its caller asks about the next rollout.
func (s *Store) EndWaits(namespace, name string, except api.Key) {
	except = named(except)
	var ended []api.Key
	s.mu.Lock()
	for k, e := range s.gates {
		if k.Kind == api.KindGate && k.Namespace == namespace && k.Name == name && k != except && e.visit != nil {
			e.visit = nil
			s.touched[k] = true
			ended = append(ended, k)
		}
	}
	s.mu.Unlock()
	for _, k := range ended {
		s.hub.Notify(k)
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
