package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// ErrInvalid is a change that cannot be made as asked; ErrLink a link that does
// not work (any more); ErrClosed a book that was closed; ErrInUse a directory
// that another test runner uses.
var (
	ErrInvalid = errors.New("invalid")
	ErrLink    = errors.New("this link is not valid any more")
	ErrClosed  = errors.New("the gates are closed for good: the test runner is shutting down")
	ErrInUse   = errors.New("in use")
)

// A Config says where a Book is kept and how.
type Config struct {
	Dir     string           // holds the file gates.db; made when it is missing; "" keeps everything in memory
	Idle    time.Duration    // after the last check that was refused nobody waits any more; default 10 minutes
	MaxKeys int              // gates that were only ever checked; the longest idle are forgotten; default 10000
	Audit   int              // entries of the audit trail that are kept; default 10000
	Now     func() time.Time // nil for time.Now
}

const (
	defaultIdle    = 10 * time.Minute
	defaultMaxKeys = 10000
	defaultAudit   = 10000
	keepClosed     = 7 * 24 * time.Hour // a decision to close that nobody waits for
)

// A Book is the gates of one test runner. Its methods may be called at the same time.
type Book struct {
	config Config
	path   string
	db     *bbolt.DB // nil: in memory
	update func(func(*bbolt.Tx) error) error
	secret []byte // that links are signed with

	mu      sync.RWMutex
	slots   map[api.Key]*slot
	decided int // of slots: those with a state

	queue   queue
	trouble atomic.Pointer[trouble] // of the last change; nil when it was written
	visits  visits
	trail   trail
	floor   uint64    // the last decision about a gate that was forgotten; of the committer
	next    time.Time // when the next opening ends; of the committer
	doubt   *change   // that was refused and may be in the file; of the committer
	unsure  error     // why it may still be when the book is closed; of the committer
	watched watched
	ended   chan struct{}  // closed when the committer has ended
	running sync.WaitGroup // watchers
}

// A slot is what is known of one gate.
type slot struct {
	state atomic.Pointer[state] // nil: nobody ever decided
	visit atomic.Pointer[visit] // nil: nobody waits
}

// Open opens the book of a directory, which no other process may have open.
func Open(c Config) (*Book, error) {
	c.Idle = cmp.Or(c.Idle, defaultIdle)
	c.MaxKeys = cmp.Or(c.MaxKeys, defaultMaxKeys)
	c.Audit = cmp.Or(c.Audit, defaultAudit)
	if c.Now == nil {
		c.Now = time.Now
	}
	b := &Book{config: c, slots: map[api.Key]*slot{}, ended: make(chan struct{})}
	b.queue.wake = make(chan struct{}, 1)
	b.visits.touched = map[api.Key]*slot{}
	b.trail.most = c.Audit
	if err := b.load(); err != nil {
		return nil, err
	}
	go b.serve()
	return b, nil
}

// Close writes who waits, and ends the book. What was acknowledged is on disk
// long before.
func (b *Book) Close() error {
	if !b.queue.close() {
		<-b.ended
		return nil
	}
	<-b.ended
	b.running.Wait()
	if b.db == nil {
		return nil
	}
	return errors.Join(b.unsure, b.visits.failed, b.db.Close())
}

func (b *Book) now() time.Time { return b.config.Now().Round(0).UTC() }

// slot returns that of a key, nil when nothing is known of it.
func (b *Book) slot(k api.Key) *slot {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.slots[k]
}

// Gate returns one gate; a key that can be none is a closed gate.
func (b *Book) Gate(k api.Key) api.Gate {
	k = named(k)
	return b.view(k, b.slot(k), b.now())
}

// List returns those that f selects, by kind, namespace, name and gate.
func (b *Book) List(f api.Filter) []api.Gate {
	now := b.now()
	gates := []api.Gate{}
	b.mu.RLock()
	for k, s := range b.slots {
		if !selects(f, k) {
			continue
		}
		g := b.view(k, s, now)
		if f.Waiting && g.Waiting != nil && (f.Stale || !g.Waiting.Stale) || !f.Waiting && (g.Waiting != nil || s.state.Load() != nil) {
			gates = append(gates, g)
		}
	}
	b.mu.RUnlock()
	slices.SortFunc(gates, func(x, y api.Gate) int { return compare(x.Key, y.Key) })
	if f.Limit > 0 && len(gates) > f.Limit {
		gates = gates[:f.Limit]
	}
	return gates
}

func selects(f api.Filter, k api.Key) bool {
	return (f.Kind == "" || f.Kind == k.Kind) && (f.Namespace == "" || f.Namespace == k.Namespace) &&
		(f.Name == "" || f.Name == k.Name) && (f.Gate == "" || f.Gate == k.Gate)
}

func compare(x, y api.Key) int {
	return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Gate, y.Gate))
}

// view returns what a slot, which may be nil, is at a time.
func (b *Book) view(k api.Key, s *slot, now time.Time) api.Gate {
	g := api.Gate{Key: k}
	if s == nil {
		return g
	}
	at := s.state.Load().at(now)
	if at != nil {
		g.Open, g.Mode, g.Checksum, g.Expires = at.Open, at.Mode, at.Checksum, at.Expires
		g.Changed, g.Actor, g.Reason = at.Changed, at.Actor, at.Reason
	}
	v := s.visit.Load()
	if k.Kind != api.KindGate || v == nil || v.idle(now, b.config.Idle) {
		return g
	}
	if verdict := at.judge(now, v.checksum); verdict == refuse || verdict == shut {
		g.Waiting = &api.Waiting{Since: v.since, Last: v.latest(), Stale: v.stale(now), Phase: v.phase, Checksum: v.checksum, About: v.about}
	}
	return g
}

// do has the committer apply a change, and returns when it is on disk.
func (b *Book) do(apply func(*change) error) error { return b.queue.do(apply) }

// over reports whether the book has ended, or ctx.
func (b *Book) over(ctx context.Context) bool {
	select {
	case <-b.ended:
		return true
	default:
		return ctx.Err() != nil
	}
}

// broken is an error about the file of the book.
func (b *Book) broken(err error) error { return fmt.Errorf("gates in %s: %w", b.path, err) }
