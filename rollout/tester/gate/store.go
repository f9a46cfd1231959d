// Package gate stores the gates and rollback switches of canaries, so that they
// survive the end of the process, even by a crash.
//
// A [Store] holds all of them in memory and, when it has a directory, in the
// file gates.db there, which one process at a time may have open.
//
// # Changes
//
// A change is on disk when its method returns: an opening, a closing, a rejection,
// the use of a one-shot opening or of a link. A check does not see a change before
// it is on disk, so no check passes by an opening that a crash would undo. If a write
// fails, its change is refused and the state stays as it was. The next write, within a
// second, restores that state in the file, whatever the failed write left there.
//
// # Checks
//
// A check that changes nothing does not write, but it waits for a write that is
// under way. Waits are written within two seconds, and when the store is closed: a crash
// loses the waits of the last two seconds.
//
//	mode       check with the checksum   with another   without one
//	sticky     passes                    passes         passes
//	checksum   passes                    refused        refused
//	one-shot   the first check that passes binds the opening to its checksum; after that
//	           passes                    closes it      refused
//	           a first check without a checksum passes and closes it
//
// A rejection ends the wait of the canary, and its next refused check begins a new one.
// A wait is stale if no check came within two intervals, where the interval is the longest
// time between two of its checks, and at least a second: its caller has stopped asking.
//
// An opening with a time to live closes when that time is over, even while the
// process is down.
//
// # Bounds
//
// If [Config].MaxKeys gates are known, waits at other gates are not recorded. If twice as
// many are known, opening another gate is an error, and closing another gate is recorded
// in the audit trail only. A closed gate at which nothing waits is forgotten after a week.
// Unknown gates are closed, so that changes no verdict.
//
// The parts of a key have at most 253 bytes of UTF-8 without control characters.
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
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/internal/store"
)

// ErrInvalid reports a change that is not possible as requested, ErrLink a link that
// does not work or no longer works, ErrClosed a store that was closed, and ErrInUse a
// directory that another test runner uses.
var (
	ErrInvalid = errors.New("invalid")
	ErrLink    = errors.New("this link is not valid any more")
	ErrClosed  = errors.New("the gates are closed for good: the test runner is shutting down")
	ErrInUse   = store.ErrInUse
)

// A Config says where a Store keeps its gates, and how many.
type Config struct {
	Dir     string        // holds the file gates.db; created if missing; "" keeps everything in memory
	Idle    time.Duration // a wait ends this long after its last check; default 10 minutes
	MaxKeys int           // number of known gates from which on waits at others are not recorded; default 20000
	Audit   int           // number of entries kept in the audit trail; default 10000
}

const (
	file       = "gates.db"
	format     = "1"
	keepClosed = 7 * 24 * time.Hour // how long a closed gate without a wait is kept; no link lasts longer
	tickEvery  = time.Second        // interval at which waits are written and openings expire
	secretSize = 32
)

// The buckets of the file, and the keys of the first.
const (
	bucketMeta  = "meta"
	bucketGates = "gates" // key → record
	bucketAudit = "audit" // number → api.Entry

	keyFormat = "format"
	keySecret = "link-key"
)

// A Store holds the gates of one test runner. Its methods may be called concurrently.
type Store struct {
	config     Config
	file       *store.File // nil: in memory
	secret     []byte      // key that signs links
	feed       store.Feed[api.Gate]
	stop       context.CancelFunc
	background sync.WaitGroup

	mu        sync.Mutex // guards the fields below; held while a change is written
	closed    bool
	writeErr  error // error of the last write, or nil
	gates     map[api.Key]record
	dirty     map[api.Key]bool // gates that may differ in the file
	trail     []api.Entry
	next      uint64 // number of the next entry
	failedEnd uint64 // number after the last entry of a failed write; 0 for none
}

// Open opens a store, which the caller must close. The error wraps [ErrInUse] if another
// process has the directory open.
func Open(c Config) (*Store, error) {
	c.Idle = cmp.Or(c.Idle, 10*time.Minute)
	c.MaxKeys = cmp.Or(c.MaxKeys, 20000)
	c.Audit = cmp.Or(c.Audit, 10000)
	s := &Store{config: c, gates: map[api.Key]record{}, dirty: map[api.Key]bool{}, next: 1, secret: make([]byte, secretSize)}
	rand.Read(s.secret)
	if c.Dir != "" {
		if err := s.openFile(); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.background.Go(func() {
		ticker := time.NewTicker(tickEvery)
		defer ticker.Stop()
		for ctx.Err() == nil {
			_ = s.update(s.tick) // Ready returns the error, and the next tick tries again
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	return s, nil
}

// Close writes the waits, ends all watches and closes the file. Changes are on disk
// already.
func (s *Store) Close() error {
	s.stop()
	s.background.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.write(&stagedChange{})
	s.feed.Close()
	return errors.Join(err, s.file.Close())
}

// Ready returns nil, or why the store cannot take changes: [ErrClosed], or the error
// of the last write, which is retried every second.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return s.writeErr
}

// Gate returns one gate. An unknown or invalid key is a closed gate.
func (s *Store) Gate(k api.Key) api.Gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.Gate = cmp.Or(k.Gate, api.DefaultGate)
	return s.view(k, time.Now())
}

// List returns the known gates that f selects by kind, namespace, name, gate, Waiting and
// Stale, sorted by key.
func (s *Store) List(f api.Filter) []api.Gate {
	now := time.Now()
	gates := []api.Gate{}
	s.mu.Lock()
	for k := range s.gates {
		if !f.Selects(k) {
			continue
		}
		g := s.view(k, now)
		waits := g.Waiting != nil && (f.Stale || !f.Waiting || !g.Waiting.Stale)
		if waits || !f.Waiting && !g.Changed.IsZero() {
			gates = append(gates, g)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(gates, func(x, y api.Gate) int { return strings.Compare(encodeKey(x.Key), encodeKey(y.Key)) })
	return gates
}

// Audit returns the newest entries of the audit trail that f selects, the newest
// first: at most f.Limit (default 100, at most 1000), and only entries before the entry
// f.Before if that is set. If see is not nil, it leaves out entries of gates for which see
// returns false. See must not call methods of the store.
func (s *Store) Audit(f api.Filter, see func(api.Key) bool) []api.Entry {
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
		if e.ID < before && f.Selects(e.Key) && (see == nil || see(e.Key)) {
			found = append(found, e)
		}
	}
	return found
}

// Watch returns a channel of gates that change, or at which a wait begins, changes or ends.
// The channel is closed when ctx ends, when the store is closed, or when its receiver is
// 1024 changes behind. The gates must not be modified.
func (s *Store) Watch(ctx context.Context) <-chan *api.Gate { return s.feed.Watch(ctx) }

// The methods from here to write, except update, are called with the lock held.

// view returns the state of a gate at a time.
func (s *Store) view(k api.Key, now time.Time) api.Gate {
	r := s.gates[k].stateAt(now)
	r.Key = k
	w := s.currentWait(r, now)
	if r.Waiting = nil; w != nil && k.Kind == api.KindGate && r.refuses(w, now) {
		waiting := *w
		waiting.Stale = r.stale(w, now)
		r.Waiting = &waiting
	}
	return r.Gate
}

// currentWait returns the last refused check of a gate or a rollback switch, or nil if there was
// none within the idle time.
func (s *Store) currentWait(r record, now time.Time) *api.Waiting {
	if r.Waiting != nil && now.Sub(r.Waiting.Last) > s.config.Idle {
		return nil
	}
	return r.Waiting
}

// put makes r the record of a gate in memory, and marks it to be written.
func (s *Store) put(k api.Key, r record) {
	if s.dirty[k] = true; r.known() {
		s.gates[k] = r
	} else {
		delete(s.gates, k)
	}
}

// endWait ends the wait at a gate.
func (s *Store) endWait(k api.Key, now time.Time) {
	r := s.gates[k]
	r.Waiting = nil
	s.put(k, r)
	s.feed.Send(func() api.Gate { return s.view(k, now) })
}

// canRecord reports whether a gate is known, or fewer than limit gates are.
func (s *Store) canRecord(k api.Key, limit int) bool {
	return s.gates[k].known() || len(s.gates) < limit
}

// tick closes expired openings, ends idle waits, tells watchers of stale waits, and
// forgets gates that were closed long ago.
func (s *Store) tick(c *stagedChange) error {
	for k, r := range s.gates {
		switch w := r.Waiting; {
		case w == nil:
		case s.currentWait(r, c.now) == nil:
			s.endWait(k, c.now)
			r.Waiting = nil
		case !r.staleSent && r.stale(w, c.now):
			r.staleSent = true
			s.gates[k] = r
			s.feed.Send(func() api.Gate { return s.view(k, c.now) })
		}
		if r.expired(c.now) {
			c.set(k, r.stateAt(c.now), api.Entry{Action: "expire", Mode: r.Mode, Checksum: r.Checksum, Reason: "its time was over at " + r.Expires.Format(time.RFC3339)})
		} else if !r.Open && r.Waiting == nil && c.now.Sub(r.Changed) > keepClosed {
			c.records[k] = record{}
		}
	}
	return nil
}

// update calls decide and writes the staged change that it makes. The change becomes visible when
// it is on disk. If it cannot be written, nothing has changed.
func (s *Store) update(decide func(*stagedChange) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	c := &stagedChange{Store: s, now: time.Now().UTC().Round(0), records: map[api.Key]record{}}
	if err := decide(c); err != nil {
		return err
	}
	return s.write(c)
}

// write writes a staged change and all dirty gates in one transaction, and then makes the
// change visible.
func (s *Store) write(c *stagedChange) error {
	if len(c.records)+len(c.entries)+len(s.dirty) == 0 && s.writeErr == nil {
		return nil
	}
	for k := range c.records {
		s.dirty[k] = true
	}
	trail := append(s.trail, c.entries...)
	old := max(0, len(trail)-s.config.Audit)
	end := s.next + uint64(len(c.entries))
	var writes []store.Write
	for k := range s.dirty {
		r, changed := c.records[k]
		if !changed {
			r = s.gates[k]
		}
		w := store.Write{Bucket: bucketGates, Key: []byte(encodeKey(k))}
		if r.known() {
			w.Value = r
		}
		writes = append(writes, w)
	}
	for _, e := range c.entries {
		writes = append(writes, store.Write{Bucket: bucketAudit, Key: encodeID(e.ID), Value: e})
	}
	for id := end; id < s.failedEnd; id++ {
		writes = append(writes, store.Write{Bucket: bucketAudit, Key: encodeID(id)})
	}
	for _, e := range trail[:old] {
		writes = append(writes, store.Write{Bucket: bucketAudit, Key: encodeID(e.ID)})
	}
	err := s.file.Write(writes)
	if err != nil {
		s.writeErr = fmt.Errorf("gates in %s: %w", filepath.Join(s.config.Dir, file), err)
		s.failedEnd = max(s.failedEnd, end)
		return s.writeErr
	}
	s.writeErr, s.failedEnd, s.next = nil, 0, end
	s.trail = slices.Delete(trail, 0, old)
	for k, r := range c.records {
		s.put(k, r)
		s.feed.Send(func() api.Gate { return s.view(k, c.now) })
	}
	clear(s.dirty)
	return nil
}

func encodeID(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

// encodeKey returns the key in the file: its parts, which have no control characters,
// with zero bytes between them. It sorts as the parts do.
func encodeKey(k api.Key) string {
	return string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name + "\x00" + k.Gate
}

// openFile opens the file and fills the store from it.
func (s *Store) openFile() (err error) {
	path := filepath.Join(s.config.Dir, file)
	meta := map[string]string{}
	s.file, err = store.Open(s.config.Dir, file, []string{bucketMeta, bucketGates, bucketAudit}, func(bucket string, key, value []byte) error {
		return s.load(meta, bucket, string(key), value)
	})
	switch {
	case err != nil:
	case meta[keyFormat] == "":
		err = s.file.Write([]store.Write{{Bucket: bucketMeta, Key: []byte(keyFormat), Value: []byte(format)}, {Bucket: bucketMeta, Key: []byte(keySecret), Value: s.secret}})
	case meta[keyFormat] != format:
		err = fmt.Errorf("%s has format %q, and this version knows %s: use the version that wrote it", path, meta[keyFormat], format)
	case len(meta[keySecret]) != secretSize:
		err = fmt.Errorf("%s: %w: %s", path, store.ErrDamaged, keySecret)
	default:
		s.secret = []byte(meta[keySecret])
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

// load reads a value of the file.
func (s *Store) load(meta map[string]string, bucket, key string, value []byte) error {
	switch bucket {
	case bucketMeta:
		meta[key] = string(value)
		return nil
	case bucketAudit:
		var e api.Entry
		err := json.Unmarshal(value, &e)
		if err == nil && key != string(encodeID(e.ID)) {
			err = errors.New("its number is another")
		}
		s.trail, s.next = append(s.trail, e), e.ID+1
		return err
	}
	parts := strings.Split(key, "\x00")
	if len(parts) != 4 || parts[3] == "" {
		return fmt.Errorf("%w: key", ErrInvalid)
	}
	k := api.Key{Kind: api.Kind(parts[0]), Namespace: parts[1], Name: parts[2], Gate: parts[3]}
	var r *record
	if err := cmp.Or(checkKey(k), json.Unmarshal(value, &r)); err != nil {
		return err
	}
	if r == nil || r.Open && r.Mode != api.Sticky && r.Mode != api.OneShot && (r.Mode != api.Bound || r.Checksum == "") {
		return errors.New("it is no gate")
	}
	s.gates[k] = *r
	return nil
}
