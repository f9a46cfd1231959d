package gate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// An operation is one thing that is done to the gates of a canary.
type operation struct {
	what     string // open, shut, reject, check, approve (by a link), refuse (by a link)
	key      api.Key
	mode     api.Mode
	checksum string
	reason   string // of its own
}

// random returns the operation number i of a canary: always the same one.
func random(canary string, i int) operation {
	r := rand.New(rand.NewPCG(uint64(len(canary))<<32+uint64(canary[len(canary)-1]), uint64(i)))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	op := operation{
		what:   pick("open", "open", "open", "shut", "reject", "check", "check", "check", "check", "approve", "refuse"),
		key:    api.Key{Kind: api.Kind(pick("gate", "gate", "rollback")), Namespace: "prod", Name: canary, Gate: pick("default", "promotion")},
		reason: fmt.Sprint(canary, " ", i),
	}
	switch op.what {
	case "open":
		if op.mode = api.Mode(pick("sticky", "one-shot", "checksum")); op.mode == api.Bound {
			op.checksum = pick("a", "b")
		}
	case "check":
		op.checksum = pick("a", "a", "b", "")
	case "reject", "approve", "refuse":
		op.key.Kind = api.KindGate
	}
	return op
}

// do does it to the book, and says what came of it.
func (op operation) do(b *gate.Store) string {
	by := api.Change{Mode: op.mode, Checksum: op.checksum, Reason: op.reason, TTL: "1h"}
	var err error
	switch op.what {
	case "check":
		return check(b, op.key, op.checksum)
	case "open":
		_, err = b.Change("open", op.key, by)
	case "shut":
		_, err = b.Change("close", op.key, api.Change{Reason: op.reason})
	case "reject":
		_, err = b.Change("reject", op.key, api.Change{Reason: op.reason})
	default:
		approve, refuse, _, issued := b.Issue(op.key, 0, "")
		if op.what == "refuse" {
			approve = refuse
		}
		if err = issued; err == nil {
			_, err = b.Redeem(approve, "", op.reason)
		}
	}
	switch {
	case errors.Is(err, gate.ErrInvalid):
		return "invalid"
	case err != nil:
		return err.Error()
	}
	return "ok"
}

// A model is the gates of canaries as the documentation has them, without all
// that makes a book fast and durable.
type model map[api.Key]simple

type simple struct {
	open             bool
	mode             api.Mode
	checksum, reason string // reason of the last decision
	waiting          bool
	waits            string
}

// passes is the documented table of modes: whether a check passes, and the gate afterwards.
func (s simple) passes(checksum string) (bool, simple) {
	used := s
	used.checksum = checksum
	closed := simple{waiting: s.waiting, waits: s.waits}
	switch {
	case !s.open:
		return false, s
	case s.mode == "sticky":
		return true, s
	case s.mode == "checksum":
		return checksum == s.checksum, s
	case s.checksum == "" && checksum == "": // one-shot from here on
		closed.reason = "a check without checksum passed"
		return true, closed
	case s.checksum == "":
		return true, used
	case checksum == s.checksum:
		return true, s
	case checksum == "":
		return false, s
	}
	closed.reason = "another revision came: " + checksum
	return false, closed
}

// do does to the model what op does to a book.
func (m model) do(op operation) string {
	s := m[op.key]
	passed, after := s.passes(op.checksum)
	decided := simple{reason: op.reason, waiting: s.waiting, waits: s.waits}
	waits := s.waiting
	if p, _ := s.passes(s.waits); p && op.what != "reject" {
		waits = false // it may go on
	}
	switch op.what {
	case "check":
		if !passed {
			after.waiting, after.waits = true, op.checksum
		} else if s.mode == "sticky" || s.waits == op.checksum {
			after.waiting = false
		}
		m[op.key] = after
		return map[bool]string{true: "pass", false: "no"}[passed]
	case "open":
		decided.open, decided.mode, decided.checksum = true, op.mode, op.checksum
	case "shut":
	case "approve", "reject", "refuse":
		if !waits {
			return "invalid"
		}
		mode := api.Bound
		if s.waits == "" {
			mode = api.OneShot
		}
		if op.what == "approve" {
			decided.open, decided.mode, decided.checksum = true, mode, s.waits
			break
		}
		decided.waiting = false
		rollback := api.Key{Kind: api.KindRollback, Namespace: op.key.Namespace, Name: op.key.Name, Gate: "default"}
		other := m[rollback]
		m[rollback] = simple{open: true, mode: mode, checksum: s.waits, reason: op.reason, waiting: other.waiting, waits: other.waits}
	}
	m[op.key] = decided
	return "ok"
}

// differs says how the book differs from the model.
func (m model) differs(b *gate.Store, waiting bool) string {
	for k, s := range m {
		g := b.Gate(k)
		got, want := fmt.Sprint(g.Open, g.Mode, g.Checksum, "|", g.Reason), fmt.Sprint(s.open, s.mode, s.checksum, "|", s.reason)
		if waiting && k.Kind == api.KindGate {
			if p, _ := s.passes(s.waits); s.waiting && !p {
				want += "|" + s.waits
			}
			if g.Waiting != nil {
				got += "|" + g.Waiting.Checksum
			}
		}
		if got != want {
			return fmt.Sprintf("%v: got %s, want %s", k, got, want)
		}
	}
	return ""
}

// TestModel does random things to a book and to the model, with restarts in between.
func TestModel(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		c := gate.Config{Dir: dir}
		b := open(t, c)
		m := model{}
		volume := 4000
		if dir != "" {
			volume /= 8 // each is a write
		}
		for i := range volume {
			op := random("web", i)
			got, want := op.do(b), m.do(op)
			if dir != "" && i%200 == 199 {
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				b = open(t, c)
			}
			if diff := m.differs(b, true); got != want || diff != "" {
				t.Fatalf("%d %+v: %s, want %s; %s", i, op, got, want, diff)
			}
		}
	}
}
