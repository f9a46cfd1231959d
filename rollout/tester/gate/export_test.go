package gate

import (
	"errors"
	"runtime"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// Fill makes the disk full for the file of b: it cannot grow.
func (b *Book) Fill() { b.db.MaxSize = 1; b.db.AllocSize = 1 }

// Doubt has the file take the next n writes and say that it did not, as when
// the disk does not confirm the last of it.
func (b *Book) Doubt(n int) {
	b.do(func(*change) error {
		real := b.update
		b.update = func(do func(*bbolt.Tx) error) error {
			err := real(do)
			if n--; err == nil && n >= 0 {
				err = errors.New("input/output error")
			}
			return err
		}
		return nil
	})
}

// Known returns how many gates b holds in memory.
func (b *Book) Known() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.slots)
}

// Stored reads what may stand in the file.
func Stored(key, value []byte) {
	parseStored(key)
	parseState(value)
	parseVisit(value)
	parseEntry(key, value)
	if t, ok := parseTicket(value); ok && checkKey(t.Key) != nil {
		panic("a ticket for a key that is none")
	}
}

// StoredKey returns the key as it stands in the file.
func StoredKey(k api.Key) []byte { return stored(k) }

// Visit returns the checksum of who asked at a gate and was refused, if that is
// not over.
func (b *Book) Visit(k api.Key) (checksum string, waits bool) {
	s := b.slot(k)
	if s == nil || s.visit.Load() == nil {
		return "", false
	}
	return s.visit.Load().checksum, true
}

// FlushDuring writes who waits, and calls do after what is written was chosen
// and before it is.
func (b *Book) FlushDuring(do func()) error {
	return b.do(func(*change) error {
		tx, err := b.db.Begin(true) // which holds up the write
		if err != nil {
			return err
		}
		flushed := make(chan error)
		go func() { flushed <- b.flush(false) }()
		for b.visits.any() {
			runtime.Gosched()
		}
		do()
		tx.Rollback()
		return <-flushed
	})
}

// Flush writes who waits.
func (b *Book) Flush() error { return b.do(func(*change) error { return b.flush(false) }) }

// SavedVisits returns how many visits stand in the file.
func (b *Book) SavedVisits() (n int) {
	b.db.View(func(tx *bbolt.Tx) error {
		n = tx.Bucket(bucketVisits).Stats().KeyN
		return nil
	})
	return n
}
