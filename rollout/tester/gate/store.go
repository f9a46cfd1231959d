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
// have no decision are forgotten first, and then closed ones, the longest idle
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
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

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
const (
	bucketMeta   = "meta"
	bucketGates  = "gates"  // key → state
	bucketVisits = "visits" // key → visit
	bucketAudit  = "audit"  // number → api.Entry

	keyFormat = "format"
	keySecret = "link-key"
	keyFloor  = "floor"
)

// A Store is the gates of one test runner. Its methods may be called at the same time.
type Store struct {
	config Config
	file   *store.File // nil: in memory
	secret []byte      // that links are signed with
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
	tried   uint64 // number after the last one of a write that failed; 0 for none
	floor   uint64 // the last decision about a gate that was forgotten
}

// An entry is what is known of one gate.
type entry struct {
	state *state // nil: there was no decision yet
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
		if err := s.open(); err != nil {
			return nil, err
		}
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
	err = errors.Join(err, s.file.Close())
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
	g := api.Gate{}
	at := s.state(k).at(now)
	if at != nil {
		g = at.Gate
	}
	g.Key = k
	if v := s.waits(k, now); v != nil && k.Kind == api.KindGate && !at.passes(now, v.Checksum) {
		waiting := v.Waiting
		waiting.Stale = v.stale(now)
		g.Waiting = &waiting
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

// room reports whether one more gate can be known, after forgetting a tenth of those
// that are not open if need be.
func (s *Store) room() bool {
	if len(s.gates) < s.config.MaxKeys {
		return true
	}
	var all []api.Key
	for k, e := range s.gates {
		if e.state == nil || !e.state.Open && e.visit == nil {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(x, y api.Key) int {
		a, b := s.gates[x], s.gates[y]
		return cmp.Or(cmp.Compare(a.state.decision(), b.state.decision()), a.visit.last().Compare(b.visit.last()))
	})
	for _, k := range all[:min(len(all), s.config.MaxKeys/10+1)] {
		s.floor = max(s.floor, s.gates[k].state.decision())
		s.dirty[k] = true
		delete(s.gates, k)
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
	changed := len(s.dirty)+len(c.states) > 0 || s.trouble != nil
	s.mu.Unlock()
	if changed {
		_ = s.commit(c) // Ready returns the error, and the next tick tries again
	}
}

// commit writes a change, and the gates that the file may have otherwise, in one
// transaction, and makes the change visible. It is called with the lock of decisions held.
func (s *Store) commit(c *change) error {
	s.mu.Lock()
	writes := []store.Write{{Bucket: bucketMeta, Key: []byte(keyFloor), Value: number(s.floor)}}
	for k := range c.states {
		s.dirty[k] = true
	}
	for k := range s.dirty {
		var v *visit
		if e := s.gates[k]; e != nil {
			v = e.visit
		}
		writes = append(writes, store.Put(bucketGates, stored(k), c.state(k)), store.Put(bucketVisits, stored(k), v))
	}
	for _, e := range c.entries {
		writes = append(writes, store.Put(bucketAudit, number(e.ID), &e))
	}
	for id := c.id(); id < s.tried; id++ {
		writes = append(writes, store.Write{Bucket: bucketAudit, Key: number(id)})
	}
	trail := append(s.trail, c.entries...)
	old := max(0, len(trail)-s.config.Audit)
	for _, e := range trail[:old] {
		writes = append(writes, store.Write{Bucket: bucketAudit, Key: number(e.ID)})
	}
	written := maps.Clone(s.dirty)
	clear(s.dirty)
	s.mu.Unlock()
	err := s.file.Write(writes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.trouble = fmt.Errorf("gates in %s: %w", filepath.Join(s.config.Dir, file), err)
		s.tried = max(s.tried, c.id())
		maps.Copy(s.dirty, written)
		return s.trouble
	}
	s.trouble, s.tried = nil, 0
	s.next = c.id()
	s.trail = slices.Delete(trail, 0, old)
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

func number(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

// open fills the store from its file.
func (s *Store) open() (err error) {
	held := map[string]string{}
	s.file, err = store.Open(s.config.Dir, file, []string{bucketMeta, bucketGates, bucketVisits, bucketAudit}, func(bucket string, key, value []byte) error {
		switch bucket {
		case bucketMeta:
			held[string(key)] = string(value)
			return nil
		case bucketAudit:
			var e api.Entry
			err := json.Unmarshal(value, &e)
			if err == nil && string(key) != string(number(e.ID)) {
				err = errors.New("its number is another")
			}
			s.trail, s.next = append(s.trail, e), e.ID+1
			return err
		}
		k, err := parseStored(key)
		if err != nil {
			return err
		}
		if s.gates[k] == nil {
			s.gates[k] = new(entry)
		}
		e := s.gates[k]
		if bucket == bucketVisits {
			return json.Unmarshal(value, &e.visit)
		}
		return cmp.Or(json.Unmarshal(value, &e.state), e.state.check())
	})
	path := filepath.Join(s.config.Dir, file)
	switch {
	case err != nil:
	case held[keyFormat] == "":
		err = s.file.Write([]store.Write{{Bucket: bucketMeta, Key: []byte(keyFormat), Value: []byte(format)}, {Bucket: bucketMeta, Key: []byte(keySecret), Value: s.secret}})
	case held[keyFormat] != format:
		err = fmt.Errorf("%s has format %q, and this version knows %s: use the version that wrote it", path, held[keyFormat], format)
	case len(held[keySecret]) != secretSize:
		err = fmt.Errorf("%s: %w: %s", path, store.ErrDamaged, keySecret)
	default:
		s.secret = []byte(held[keySecret])
		if floor := held[keyFloor]; len(floor) == 8 {
			s.floor = binary.BigEndian.Uint64([]byte(floor))
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrInUse):
		err = fmt.Errorf("%w: another test runner uses %s: stop it, or give this one a directory of its own", ErrInUse, s.config.Dir)
	case errors.Is(err, store.ErrDamaged):
		err = fmt.Errorf("gates in %w: restore a copy of the file, or move it away: then every gate is closed", err)
	default:
		err = fmt.Errorf("gates in %w", err)
	}
	return errors.Join(err, s.file.Close())
}
