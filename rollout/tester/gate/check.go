package gate

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

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
	e := s.known(k)
	if e == nil {
		return
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
