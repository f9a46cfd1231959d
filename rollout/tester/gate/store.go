// Package gate keeps the gates and rollback switches of canaries, so that they
// survive whatever ends the process.
//
// A [Store] holds all of them in memory and, when it has a directory, in the
// file gates.db there, which one process at a time may have open.
//
// Changes. What a method acknowledges is on disk: an opening, a closing, a
// rejection, the use of a one-shot opening, a link that was used. A check sees
// a change once it is on disk and not before, so that nothing passes on what a
// crash takes back. When a write fails, its change is refused and nothing has
// changed; the next write, within a second, also writes what holds over whatever the
// failed one left in the file.
//
// Checks. A check that changes nothing touches no disk. Waits are written within two
// seconds, and when the store is closed: a crash loses those seconds.
//
//	mode       check with the checksum   with another   without one
//	sticky     passes                    passes         passes
//	checksum   passes                    refused        refused
//	one-shot   the first that passes binds the opening to its checksum:
//	           passes                    closes it      refused
//	           a first one without checksum passes and closes it
//
// A canary that is rejected waits no more, until its next check is refused. A wait
// is stale when no check came within two intervals, the longest time between two of
// its checks or a second: its caller does not ask any more.
//
// An opening with a time to live closes by the clock, also while the process
// is down.
//
// Bounds. Of gates that were only ever checked [Config].MaxKeys are known, the
// longest idle are forgotten first. As many may have a decision: of those, closed
// ones that nothing waits for are forgotten after a week, and earlier, the oldest
// first, when there are too many; since closed is what an unknown gate is, that
// changes no verdict. When too many are open, one more is an error.
//
// Parts of a key have at most 253 bytes of UTF-8 without control characters.
// Namespace and name may be empty, as a payload may leave them out.
package gate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/internal/store"
)

// ErrInvalid is a change that cannot be made as asked; ErrLink a link that does
// not work (any more); ErrClosed a store that was closed; ErrInUse a directory
// that another test runner uses.
var (
	ErrInvalid = errors.New("invalid")
	ErrLink    = errors.New("this link is not valid any more")
	ErrClosed  = errors.New("the gates are closed for good: the test runner is shutting down")
	ErrInUse   = store.ErrInUse
)

// A Config says where a Store keeps its gates, and how many.
type Config struct {
	Dir     string           // holds the file gates.db; made when it is missing; "" keeps everything in memory
	Idle    time.Duration    // a wait ends that long after its last check; default 10 minutes
	MaxKeys int              // gates that were only ever checked; the longest idle are forgotten; default 10000
	Audit   int              // entries of the audit trail that are kept; default 10000
	Now     func() time.Time // nil for time.Now
}

const (
	file       = "gates.db"
	format     = "1"
	keepClosed = 7 * 24 * time.Hour // a decision to close that nothing waits for
	tickEvery  = time.Second        // waits are written, and what the clock changes is done
	secretSize = 32
)

// The buckets of the file, and the keys of the first.
var (
	bucketMeta   = []byte("meta")
	bucketGates  = []byte("gates")  // key → state
	bucketVisits = []byte("visits") // key → visit
	bucketAudit  = []byte("audit")  // number → api.Entry

	keyFormat = []byte("format")
	keySecret = []byte("link-key")
	keyFloor  = []byte("floor")
)

// A Store is the gates of one test runner. Its methods may be called at the same time.
type Store struct {
	config Config
	path   string
	db     *bbolt.DB // nil: in memory
	update func(func(*bbolt.Tx) error) error
	secret []byte // that links are signed with
	hub    *store.Hub[api.Key]
	stop   chan struct{} // closed by Close
	ended  chan struct{} // closed when the clock's goroutine has returned

	deciding sync.Mutex // held by one decision at a time, from its making until it can be seen

	mu      sync.Mutex // guards what follows
	closed  bool
	trouble error // of the last write: what is in the file is not known; nil when it succeeded
	gates   map[api.Key]*entry
	decided int              // of gates: those with a state
	touched map[api.Key]bool // their visits are to be written
	trail   []api.Entry
	next    uint64 // number of the next entry
	floor   uint64 // the last decision about a gate that was forgotten
}

// An entry is what is known of one gate.
type entry struct {
	state *state // nil: nobody ever decided
	visit *visit // nil: nothing waits
}

// Open opens the store of a directory, which no other process may have open.
func Open(c Config) (*Store, error) {
	c.Idle = cmp.Or(c.Idle, 10*time.Minute)
	c.MaxKeys = cmp.Or(c.MaxKeys, 10000)
	c.Audit = cmp.Or(c.Audit, 10000)
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{
		config: c, path: filepath.Join(c.Dir, file), hub: store.NewHub[api.Key](), stop: make(chan struct{}), ended: make(chan struct{}),
		gates: map[api.Key]*entry{}, touched: map[api.Key]bool{}, next: 1, secret: make([]byte, secretSize),
	}
	rand.Read(s.secret)
	if c.Dir != "" {
		db, err := store.Open(c.Dir, file, s.prepare, s.read)
		switch {
		case errors.Is(err, ErrInUse):
			return nil, fmt.Errorf("%w: another test runner uses %s: stop it, or give this one a directory of its own", ErrInUse, c.Dir)
		case errors.Is(err, store.ErrDamaged):
			return nil, fmt.Errorf("gates in %w: restore a copy of the file, or move it away: then every gate is closed", err)
		case err != nil:
			return nil, fmt.Errorf("gates in %w", err)
		}
		s.db, s.update = db, db.Update
	}
	go s.serve()
	return s, nil
}

// Close writes the waits, and ends the store. What was acknowledged is on disk
// long before.
func (s *Store) Close() error {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	s.mu.Lock()
	was := s.closed
	s.closed = true
	for k, e := range s.gates {
		if e.visit != nil && e.visit.saved != e.visit.Last {
			s.touched[k] = true
		}
	}
	s.mu.Unlock()
	if was {
		return nil
	}
	close(s.stop)
	<-s.ended
	s.hub.Close()
	err := s.write(nil)
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

// Ready returns why the store takes no changes: that it is closed, or what went
// wrong with the last write. That is tried again every second.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return s.trouble
}

func (s *Store) now() time.Time { return s.config.Now().Round(0).UTC() }

// Gate returns one gate; a key that can be none is a closed gate.
func (s *Store) Gate(k api.Key) api.Gate {
	k = named(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view(k, s.now())
}

// List returns those that f selects, by kind, namespace, name and gate.
func (s *Store) List(f api.Filter) []api.Gate {
	now := s.now()
	gates := []api.Gate{}
	s.mu.Lock()
	for k, e := range s.gates {
		if !selects(f, k) {
			continue
		}
		g := s.view(k, now)
		if f.Waiting && g.Waiting != nil && (f.Stale || !g.Waiting.Stale) || !f.Waiting && (g.Waiting != nil || e.state != nil) {
			gates = append(gates, g)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(gates, func(x, y api.Gate) int { return compare(x.Key, y.Key) })
	if f.Limit > 0 && len(gates) > f.Limit {
		gates = gates[:f.Limit]
	}
	return gates
}

// Audit returns the newest entries of the audit trail that f selects, the newest
// first: at most f.Limit (default 100, at most 1000), and those before the entry f.Before.
func (s *Store) Audit(f api.Filter) []api.Entry {
	found := []api.Entry{}
	before := ^uint64(0)
	if f.Before != "" {
		var err error
		if before, err = strconv.ParseUint(f.Before, 10, 64); err != nil {
			return found
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(s.trail) {
		if len(found) == min(cmp.Or(f.Limit, 100), 1000) {
			break
		}
		if e.ID < before && selects(f, e.Key) {
			found = append(found, e)
		}
	}
	return found
}

// Watch sends gates that change, or at which a wait begins or ends, until ctx ends
// or the store is closed; then the channel is closed. A slow watcher gets the latest
// state of a gate once. The channel of one that is more than 4096 gates behind is
// closed too.
func (s *Store) Watch(ctx context.Context) <-chan api.Gate {
	return store.Watch(ctx, s.hub, func(k api.Key) (api.Gate, bool) { return s.Gate(k), true })
}

func selects(f api.Filter, k api.Key) bool {
	return (f.Kind == "" || f.Kind == k.Kind) && (f.Namespace == "" || f.Namespace == k.Namespace) &&
		(f.Name == "" || f.Name == k.Name) && (f.Gate == "" || f.Gate == k.Gate)
}

func compare(x, y api.Key) int {
	return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Gate, y.Gate))
}

// view returns what a gate is at a time. It is called with the lock held.
func (s *Store) view(k api.Key, now time.Time) api.Gate {
	g := api.Gate{Key: k}
	e := s.gates[k]
	if e == nil {
		return g
	}
	at := e.state.at(now)
	if at != nil {
		g.Open, g.Mode, g.Checksum, g.Expires = at.Open, at.Mode, at.Checksum, at.Expires
		g.Changed, g.Actor, g.Reason = at.Changed, at.Actor, at.Reason
	}
	if v := s.waits(k, now); v != nil && k.Kind == api.KindGate && !at.passes(now, v.Checksum) {
		g.Waiting = &api.Waiting{Since: v.Since, Last: v.Last, Stale: v.stale(now), Phase: v.Phase, Checksum: v.Checksum, About: v.About}
	}
	return g
}

// serve does what the clock asks for until the store is closed.
func (s *Store) serve() {
	defer close(s.ended)
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		s.tick()
		select {
		case <-ticker.C:
		case <-s.stop:
			return
		}
	}
}

// tick closes openings whose time is over, ends waits that are idle, tells watchers
// of those that are stale, forgets gates that were closed long ago, and writes waits.
// It leaves all that to the next tick when a decision is under way.
func (s *Store) tick() {
	if !s.deciding.TryLock() {
		return
	}
	defer s.deciding.Unlock()
	c := s.begin()
	s.mu.Lock()
	var changed []api.Key
	for k, e := range s.gates {
		if v := e.visit; v != nil {
			switch {
			case v.idle(c.now, s.config.Idle):
				e.visit = nil
				s.touched[k] = true
				changed = append(changed, k)
			case !v.told && v.stale(c.now):
				v.told = true
				changed = append(changed, k)
			}
		}
		switch at := e.state; {
		case at == nil && e.visit == nil:
			delete(s.gates, k)
		case at == nil:
		case at.over(c.now):
			c.set(k, at.at(c.now), api.Entry{Action: "expire", Mode: at.Mode, Checksum: at.Checksum, Reason: "its time was over at " + at.Expires.Format(time.RFC3339)})
		case !at.Open && e.visit == nil && c.now.Sub(at.Changed) > keepClosed:
			c.forget(k, at)
		}
	}
	idle := len(s.touched)+len(c.states) == 0 && s.trouble == nil
	s.mu.Unlock()
	if !idle && s.write(c) == nil {
		s.publish(c)
	}
	for _, k := range changed {
		s.hub.Notify(k)
	}
}

// write stores a change, nil for none, and the visits that were touched, in one
// transaction. It is called with the lock of decisions held.
func (s *Store) write(c *change) error {
	if c == nil {
		c = s.begin()
	}
	s.mu.Lock()
	all := s.trouble != nil
	gates, visits := map[api.Key]*state{}, map[api.Key]*visit{} // nil: to be removed
	if all {
		for k, e := range s.gates {
			gates[k], s.touched[k] = e.state, true
		}
	}
	for k := range s.touched {
		visits[k] = nil
		if e := s.gates[k]; e != nil {
			visits[k] = e.visit.copied()
		}
	}
	for k, at := range c.states {
		gates[k] = at
	}
	clear(s.touched)
	s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	err := s.update(func(tx *bbolt.Tx) error {
		if all {
			for _, name := range [][]byte{bucketGates, bucketVisits} {
				if err := tx.DeleteBucket(name); err != nil {
					return err
				}
				if _, err := tx.CreateBucket(name); err != nil {
					return err
				}
			}
		}
		for k, at := range gates {
			if err := put(tx.Bucket(bucketGates), stored(k), at, at != nil); err != nil {
				return err
			}
		}
		for k, v := range visits {
			if err := put(tx.Bucket(bucketVisits), stored(k), v, v != nil); err != nil {
				return err
			}
		}
		if err := tx.Bucket(bucketMeta).Put(keyFloor, number(c.floor)); err != nil {
			return err
		}
		return s.writeTrail(tx.Bucket(bucketAudit), c)
	})
	if err != nil {
		err = fmt.Errorf("gates in %s: %w", s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
	for k, v := range visits {
		if e := s.gates[k]; err == nil && v != nil && e != nil && e.visit != nil {
			e.visit.saved = v.Last
		}
	}
	return err
}

// writeTrail stores the entries of a change over whatever has their numbers, and
// removes those that are too old.
func (s *Store) writeTrail(bucket *bbolt.Bucket, c *change) error {
	first := c.next - uint64(len(c.entries))
	cursor := bucket.Cursor()
	for key, _ := cursor.Seek(number(first)); key != nil; key, _ = cursor.Seek(number(first)) {
		if err := cursor.Delete(); err != nil { // of a write that failed
			return err
		}
	}
	for _, e := range c.entries {
		if err := put(bucket, number(e.ID), e, true); err != nil {
			return err
		}
	}
	for key, _ := cursor.First(); len(key) == 8 && c.next-binary.BigEndian.Uint64(key) > uint64(s.config.Audit); key, _ = cursor.First() {
		if err := cursor.Delete(); err != nil {
			return err
		}
	}
	return nil
}

// put stores a value as JSON, or removes what is stored.
func put(bucket *bbolt.Bucket, key []byte, value any, keep bool) error {
	if !keep {
		return bucket.Delete(key)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return bucket.Put(key, text)
}

func number(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

// prepare makes what a new file lacks.
func (s *Store) prepare(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketGates, bucketVisits, bucketAudit} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	switch held := string(meta.Get(keyFormat)); held {
	case format:
		return nil
	case "":
		return errors.Join(meta.Put(keyFormat, []byte(format)), meta.Put(keySecret, s.secret))
	default:
		return fmt.Errorf("it has format %q, and this version knows %s: use the version that wrote it", held, format)
	}
}

// read fills the store.
func (s *Store) read(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	if n := copy(s.secret, meta.Get(keySecret)); n != secretSize {
		return fmt.Errorf("%w: %s", store.ErrDamaged, keySecret)
	}
	if floor := meta.Get(keyFloor); len(floor) == 8 {
		s.floor = binary.BigEndian.Uint64(floor)
	}
	known := func(key []byte) (*entry, error) {
		k, err := parseStored(key)
		if s.gates[k] == nil && err == nil {
			s.gates[k] = new(entry)
		}
		return s.gates[k], err
	}
	for bucket, read := range map[string]func(key, value []byte) error{
		string(bucketGates): func(key, value []byte) error {
			e, err := known(key)
			if err != nil {
				return err
			}
			s.decided++
			if err := json.Unmarshal(value, &e.state); err != nil {
				return err
			}
			return e.state.check()
		},
		string(bucketVisits): func(key, value []byte) error {
			e, err := known(key)
			if err == nil {
				err = json.Unmarshal(value, &e.visit)
			}
			if err == nil {
				e.visit.saved = e.visit.Last
			}
			return err
		},
		string(bucketAudit): func(key, value []byte) error {
			var e api.Entry
			err := json.Unmarshal(value, &e)
			if err == nil && (len(key) != 8 || binary.BigEndian.Uint64(key) != e.ID) {
				err = errors.New("its number is another")
			}
			s.trail, s.next = append(s.trail, e), e.ID+1
			return err
		},
	} {
		err := tx.Bucket([]byte(bucket)).ForEach(func(key, value []byte) error {
			if err := read(key, value); err != nil {
				return fmt.Errorf("%w: %s: %q: %w", store.ErrDamaged, bucket, key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
