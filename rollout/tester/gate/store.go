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
// Bounds. [Config].MaxKeys gates are known. When there are too many, those that
// nobody decided about are forgotten first, and then closed ones, the longest idle
// first; a closed one that nothing waits for is forgotten after a week. Since closed is
// what an unknown gate is, that changes no verdict. When all are open, one more is an
// error.
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
	MaxKeys int              // gates that are known; default 20000
	Audit   int              // entries of the audit trail that are kept; default 10000
	Now     func() time.Time // nil for time.Now
}

const (
	file       = "gates.db"
	format     = "1"
	keepClosed = 7 * 24 * time.Hour // a decision to close that nothing waits for; no link lasts longer
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
	db     *bbolt.DB                         // nil: in memory
	update func(func(*bbolt.Tx) error) error // of db
	secret []byte                            // that links are signed with
	feed   store.Feed[api.Gate]
	stop   chan struct{} // closed by Close
	ended  chan struct{} // closed when the clock's goroutine has returned

	deciding sync.Mutex // held by one decision at a time, from its making until it can be seen

	mu      sync.Mutex // guards what follows
	closed  bool
	trouble error // of the last write; nil when it succeeded
	gates   map[api.Key]*entry
	dirty   map[api.Key]bool // gates that the file may have otherwise
	trail   []api.Entry
	next    uint64 // number of the next entry
	floor   uint64 // the last decision about a gate that was forgotten
}

// An entry is what is known of one gate.
type entry struct {
	state *state // nil: nobody ever decided
	visit *visit // nil: nothing waits
	told  bool   // watchers know that the visit is stale
}

// Open opens the store of a directory, which no other process may have open.
func Open(c Config) (*Store, error) {
	c.Idle = cmp.Or(c.Idle, 10*time.Minute)
	c.MaxKeys = cmp.Or(c.MaxKeys, 20000)
	c.Audit = cmp.Or(c.Audit, 10000)
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{
		config: c, stop: make(chan struct{}), ended: make(chan struct{}),
		gates: map[api.Key]*entry{}, dirty: map[api.Key]bool{}, next: 1, secret: make([]byte, secretSize),
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
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	close(s.stop)
	<-s.ended
	s.deciding.Lock()
	defer s.deciding.Unlock()
	err := s.commit(s.begin())
	s.feed.Close()
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view(named(k), s.now())
}

// List returns those that f selects, by kind, namespace, name and gate.
func (s *Store) List(f api.Filter) []api.Gate {
	now := s.now()
	gates := []api.Gate{}
	s.mu.Lock()
	for k, e := range s.gates {
		if !f.Selects(k) {
			continue
		}
		g := s.view(k, now)
		if f.Waiting && g.Waiting != nil && (f.Stale || !g.Waiting.Stale) || !f.Waiting && (g.Waiting != nil || e.state != nil) {
			gates = append(gates, g)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(gates, func(x, y api.Gate) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Gate, y.Gate))
	})
	if f.Limit > 0 && len(gates) > f.Limit {
		gates = gates[:f.Limit]
	}
	return gates
}

// Audit returns the newest entries of the audit trail that f selects, the newest
// first: at most f.Limit (default 100, at most 1000), and those before the entry f.Before.
func (s *Store) Audit(f api.Filter) []api.Entry {
	before := ^uint64(0)
	if f.Before != "" {
		before, _ = strconv.ParseUint(f.Before, 10, 64) // 0 is before all
	}
	found := []api.Entry{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(s.trail) {
		if len(found) == min(cmp.Or(f.Limit, 100), 1000) {
			break
		}
		if e.ID < before && f.Selects(e.Key) {
			found = append(found, e)
		}
	}
	return found
}

// Watch sends gates that change, or at which a wait begins or ends, until ctx ends
// or the store is closed; then the channel is closed. That of a watcher that is 1024
// changes behind is closed too.
func (s *Store) Watch(ctx context.Context) <-chan *api.Gate { return s.feed.Watch(ctx) }

// The methods from here to commit are called with the lock held.

// view returns what a gate is at a time.
func (s *Store) view(k api.Key, now time.Time) api.Gate {
	g := api.Gate{Key: k}
	at := s.state(k).at(now)
	if at != nil {
		g.Open, g.Mode, g.Checksum, g.Expires = at.Open, at.Mode, at.Checksum, at.Expires
		g.Changed, g.Actor, g.Reason = at.Changed, at.Actor, at.Reason
	}
	if v := s.waits(k, now); v != nil && k.Kind == api.KindGate && !at.passes(now, v.Checksum) {
		g.Waiting = &api.Waiting{Since: v.Since, Last: v.Last, Stale: v.stale(now), Phase: v.Phase, Checksum: v.Checksum, About: v.About}
	}
	return g
}

// state returns what was decided about a gate, nil for nothing.
func (s *Store) state(k api.Key) *state {
	if e := s.gates[k]; e != nil {
		return e.state
	}
	return nil
}

// waits returns the visit of a gate that is not over, nil when there is none.
func (s *Store) waits(k api.Key, now time.Time) *visit {
	if e := s.gates[k]; e != nil && e.visit != nil && now.Sub(e.visit.Last) <= s.config.Idle {
		return e.visit
	}
	return nil
}

// endVisit ends the wait at a gate.
func (s *Store) endVisit(k api.Key, now time.Time) {
	s.gates[k].visit = nil
	s.dirty[k] = true
	s.feed.Send(s.view(k, now))
}

// known returns the entry of a gate, a new one if there is room, else nil.
func (s *Store) known(k api.Key) *entry {
	if s.gates[k] == nil && s.room() {
		s.gates[k] = new(entry)
	}
	return s.gates[k]
}

// room reports whether one more gate can be known, after forgetting a tenth of those
// that are not open if need be.
func (s *Store) room() bool {
	if len(s.gates) < s.config.MaxKeys {
		return true
	}
	type candidate struct {
		key     api.Key
		decided uint64
		last    time.Time
	}
	var all []candidate
	for k, e := range s.gates {
		switch {
		case e.state == nil && e.visit == nil:
			all = append(all, candidate{key: k})
		case e.state == nil:
			all = append(all, candidate{k, 0, e.visit.Last})
		case !e.state.Open && e.visit == nil:
			all = append(all, candidate{k, e.state.Decision, e.state.Changed})
		}
	}
	slices.SortFunc(all, func(x, y candidate) int { return cmp.Or(cmp.Compare(x.decided, y.decided), x.last.Compare(y.last)) })
	for _, c := range all[:min(len(all), s.config.MaxKeys/10+1)] {
		s.floor = max(s.floor, c.decided)
		s.dirty[c.key] = true
		delete(s.gates, c.key)
	}
	return len(s.gates) < s.config.MaxKeys
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
func (s *Store) tick() {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	c := s.begin()
	s.mu.Lock()
	for k, e := range s.gates {
		switch v := e.visit; {
		case v == nil:
		case s.waits(k, c.now) == nil:
			s.endVisit(k, c.now)
		case !e.told && v.stale(c.now):
			e.told = true
			s.feed.Send(s.view(k, c.now))
		}
		switch at := e.state; {
		case at == nil && e.visit == nil:
			delete(s.gates, k)
		case at == nil:
		case at.over(c.now):
			c.set(k, at.at(c.now), api.Entry{Action: "expire", Mode: at.Mode, Checksum: at.Checksum, Reason: "its time was over at " + at.Expires.Format(time.RFC3339)})
		case !at.Open && e.visit == nil && c.now.Sub(at.Changed) > keepClosed:
			c.states[k] = nil
		}
	}
	changed := len(s.dirty)+len(c.states) > 0
	s.mu.Unlock()
	if changed {
		_ = s.commit(c) // Ready returns the error, and the next tick tries again
	}
}

// commit writes a change, and the gates that the file may have otherwise, in one
// transaction, and makes the change visible. It is called with the lock of decisions held.
func (s *Store) commit(c *change) error {
	s.mu.Lock()
	writes := map[api.Key]entry{}
	for k := range s.dirty {
		writes[k] = entry{}
	}
	for k := range c.states {
		writes[k] = entry{}
	}
	for k := range writes {
		e := entry{state: c.state(k)}
		if known := s.gates[k]; known != nil {
			e.visit = known.visit
		}
		writes[k] = e
	}
	floor := s.floor
	clear(s.dirty)
	s.mu.Unlock()
	var err error
	if s.db != nil {
		if err = s.update(func(tx *bbolt.Tx) error { return s.save(tx, writes, floor, c.entries) }); err != nil {
			err = fmt.Errorf("gates in %s: %w", filepath.Join(s.config.Dir, file), err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble = err; err != nil {
		for k := range writes {
			s.dirty[k] = true
		}
		return err
	}
	s.next += uint64(len(c.entries))
	s.trail = append(s.trail, c.entries...)
	s.trail = slices.Delete(s.trail, 0, max(0, len(s.trail)-s.config.Audit))
	for k, at := range c.states {
		if s.gates[k] == nil {
			s.gates[k] = new(entry)
		}
		s.gates[k].state = at
	}
	for _, e := range c.entries {
		if at := s.gates[e.Key]; e.Action == "reject" && at != nil && at.visit != nil && at.visit.Checksum == e.Checksum {
			at.visit = nil
			s.dirty[e.Key] = true
		}
	}
	for k := range c.states {
		s.feed.Send(s.view(k, c.now))
	}
	return nil
}

// save writes gates, and new entries over whatever has their numbers, and removes
// entries that are too old.
func (s *Store) save(tx *bbolt.Tx, writes map[api.Key]entry, floor uint64, entries []api.Entry) error {
	gates, visits, audit := tx.Bucket(bucketGates), tx.Bucket(bucketVisits), tx.Bucket(bucketAudit)
	for k, e := range writes {
		if err := errors.Join(put(gates, stored(k), e.state), put(visits, stored(k), e.visit)); err != nil {
			return err
		}
	}
	if err := tx.Bucket(bucketMeta).Put(keyFloor, number(floor)); err != nil {
		return err
	}
	first := number(s.next) // decisions alone change it
	cursor := audit.Cursor()
	for key, _ := cursor.Seek(first); key != nil; key, _ = cursor.Seek(first) {
		if err := cursor.Delete(); err != nil { // of a write that failed
			return err
		}
	}
	for _, e := range entries {
		if err := put(audit, number(e.ID), &e); err != nil {
			return err
		}
	}
	next := s.next + uint64(len(entries))
	for key, _ := cursor.First(); len(key) == 8 && next-binary.BigEndian.Uint64(key) > uint64(s.config.Audit); key, _ = cursor.First() {
		if err := cursor.Delete(); err != nil {
			return err
		}
	}
	return nil
}

// put stores a value as JSON; nil removes what is stored.
func put[T any](bucket *bbolt.Bucket, key []byte, value *T) error {
	if value == nil {
		return bucket.Delete(key)
	}
	text, _ := json.Marshal(value) // of texts, numbers and times
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
	each := func(bucket []byte, read func(key, value []byte) error) error {
		return tx.Bucket(bucket).ForEach(func(key, value []byte) error {
			if err := read(key, value); err != nil {
				return fmt.Errorf("%w: %s: %q: %w", store.ErrDamaged, bucket, key, err)
			}
			return nil
		})
	}
	known := func(key []byte) (*entry, error) {
		k, err := parseStored(key)
		if s.gates[k] == nil && err == nil {
			s.gates[k] = new(entry)
		}
		return s.gates[k], err
	}
	return cmp.Or(each(bucketGates, func(key, value []byte) error {
		e, err := known(key)
		if err == nil {
			err = json.Unmarshal(value, &e.state)
		}
		if err == nil {
			err = e.state.check()
		}
		return err
	}), each(bucketVisits, func(key, value []byte) error {
		e, err := known(key)
		if err == nil {
			err = json.Unmarshal(value, &e.visit)
		}
		return err
	}), each(bucketAudit, func(key, value []byte) error {
		var e api.Entry
		err := json.Unmarshal(value, &e)
		if err == nil && (len(key) != 8 || binary.BigEndian.Uint64(key) != e.ID) {
			err = errors.New("its number is another")
		}
		s.trail, s.next = append(s.trail, e), e.ID+1
		return err
	}))
}
