package gate

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/internal/bolt"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	file   = "gates.db"
	format = "1"
)

// The buckets of the file, and the keys of the first.
var (
	bucketMeta   = []byte("meta")
	bucketGates  = []byte("gates")  // key → state
	bucketVisits = []byte("visits") // key → savedVisit
	bucketAudit  = []byte("audit")  // number → api.Entry

	keyFormat = []byte("format")
	keySecret = []byte("link-key")
	keyFloor  = []byte("floor")
)

const secretSize = 32

// load opens the file and reads it.
func (b *Book) load() error {
	if b.config.Dir == "" {
		b.secret = newSecret()
		b.trail.next = 1
		return nil
	}
	b.path = filepath.Join(b.config.Dir, file)
	if err := bolt.MkdirAll(b.config.Dir); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	db, err := bolt.Open(b.path)
	switch {
	case errors.Is(err, bolt.ErrInUse):
		return fmt.Errorf("%w: another test runner uses %s: stop it, or give this one a directory of its own", ErrInUse, b.config.Dir)
	case err == nil:
		b.db = db
		b.update = func(do func(*bbolt.Tx) error) error { return bolt.Guard(func() error { return db.Update(do) }) }
		if err = b.update(b.prepare); err == nil {
			err = bolt.Guard(func() error { return db.View(b.read) })
		}
		if err != nil {
			err = errors.Join(b.broken(err), db.Close())
		}
	}
	if errors.Is(err, bolt.ErrCorrupt) || errors.Is(err, errStored) {
		err = fmt.Errorf("%w: restore a copy of the file, or move it away: then every gate is closed", err)
	}
	return err
}

var errStored = errors.New("what is stored cannot be read")

func newSecret() []byte {
	secret := make([]byte, secretSize)
	rand.Read(secret)
	return secret
}

// prepare makes what a new file lacks.
func (b *Book) prepare(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketGates, bucketVisits, bucketAudit} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	switch held := string(meta.Get(keyFormat)); held {
	case format:
	case "":
		return errors.Join(meta.Put(keyFormat, []byte(format)), meta.Put(keySecret, newSecret()))
	default:
		return fmt.Errorf("it has format %q, and this version knows %s: use the version that wrote it", held, format)
	}
	return nil
}

// read fills the book.
func (b *Book) read(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	b.secret = append([]byte(nil), meta.Get(keySecret)...)
	if len(b.secret) != secretSize {
		return fmt.Errorf("%w: %s", errStored, keySecret)
	}
	if floor := meta.Get(keyFloor); len(floor) == 8 {
		b.floor = binary.BigEndian.Uint64(floor)
	}
	err := each(tx.Bucket(bucketGates), func(key, value []byte) error {
		k, err := parseStored(key)
		if err != nil {
			return err
		}
		s, err := parseState(value)
		if err == nil {
			b.held(k).state.Store(s)
			b.decided++
		}
		return err
	})
	if err != nil {
		return err
	}
	b.visits.saved = map[api.Key]bool{}
	err = each(tx.Bucket(bucketVisits), func(key, value []byte) error {
		k, err := parseStored(key)
		if err != nil {
			return err
		}
		v, err := parseVisit(value)
		if err == nil {
			b.held(k).visit.Store(v)
			b.visits.saved[k] = true
			b.visits.observed.Store(true)
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.trail.read(tx.Bucket(bucketAudit))
}

// held returns the slot of a key, while the book is read.
func (b *Book) held(k api.Key) *slot {
	s := b.slots[k]
	if s == nil {
		s = new(slot)
		b.slots[k] = s
	}
	return s
}

// each calls do with what a bucket holds.
func each(bucket *bbolt.Bucket, do func(key, value []byte) error) error {
	return bucket.ForEach(func(key, value []byte) error {
		if err := do(key, value); err != nil {
			return fmt.Errorf("%w: %q: %w", errStored, key, err)
		}
		return nil
	})
}

// write writes a change.
func (b *Book) write(c *change) error {
	if b.db == nil {
		return nil
	}
	err := b.update(func(tx *bbolt.Tx) error {
		gates := tx.Bucket(bucketGates)
		for k, s := range c.states {
			if err := put(gates, k, s, s != nil); err != nil {
				return err
			}
		}
		if c.floor != b.floor {
			if err := putFloor(tx, c.floor); err != nil {
				return err
			}
		}
		return b.trail.write(tx.Bucket(bucketAudit), c.entries)
	})
	if err != nil {
		b.doubt = c
		return b.broken(err)
	}
	return nil
}

// repair writes what holds over what a write that failed may have left in the
// file all the same: when the last of it, the sync, is what failed, it is there.
func (b *Book) repair() error {
	c := b.doubt
	if c == nil {
		return nil
	}
	err := b.update(func(tx *bbolt.Tx) error {
		gates := tx.Bucket(bucketGates)
		for k := range c.states {
			s := b.slot(k).decided()
			if err := put(gates, k, s, s != nil); err != nil {
				return err
			}
		}
		return errors.Join(putFloor(tx, b.floor), cut(tx.Bucket(bucketAudit), b.trail.next))
	})
	if err != nil {
		return b.broken(err)
	}
	b.doubt = nil
	return nil
}

func putFloor(tx *bbolt.Tx, floor uint64) error {
	return tx.Bucket(bucketMeta).Put(keyFloor, binary.BigEndian.AppendUint64(nil, floor))
}

// put stores a value as JSON, or removes what is stored.
func put(bucket *bbolt.Bucket, k api.Key, value any, keep bool) error {
	if !keep {
		return bucket.Delete(stored(k))
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return bucket.Put(stored(k), text)
}

func (v *visits) any() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.touched) > 0
}

// flush writes the visits that changed, or all.
func (b *Book) flush(all bool) error {
	v := &b.visits
	v.mu.Lock()
	touched := v.touched
	v.touched = map[api.Key]*slot{}
	v.mu.Unlock()
	if all {
		b.mu.RLock()
		for k, s := range b.slots {
			if s.visit.Load() != nil {
				touched[k] = s
			}
		}
		b.mu.RUnlock()
	}
	if b.db == nil || len(touched) == 0 {
		return nil
	}
	kept, err := b.save(touched)
	v.failed = err
	b.mu.RLock()
	defer b.mu.RUnlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	for k, s := range touched {
		if err == nil && kept[k] {
			v.saved[k] = true
		} else if err == nil {
			delete(v.saved, k)
		}
		again := err != nil || kept[k]
		switch {
		case !again || v.touched[k] != nil:
		case b.slots[k] != s && v.saved[k]: // forgotten meanwhile
			v.touched[k] = new(slot)
		case b.slots[k] == s && err != nil:
			v.touched[k] = s
		}
	}
	if len(v.touched) > 0 {
		b.queue.poke()
	}
	return err
}

// save writes the visits of slots, and returns of which there is one.
func (b *Book) save(touched map[api.Key]*slot) (kept map[api.Key]bool, err error) {
	kept = make(map[api.Key]bool, len(touched))
	err = b.update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketVisits)
		for k, s := range touched {
			var saved savedVisit
			at := s.visit.Load()
			if kept[k] = at != nil; at != nil {
				saved = savedVisit{at.since, at.latest(), time.Duration(at.interval.Load()), at.phase, at.checksum, at.about}
			}
			if err := put(bucket, k, saved, at != nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = b.broken(err)
	}
	return kept, err
}
