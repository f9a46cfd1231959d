package gate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	defaultEntries = 100 // of an answer
	maxEntries     = 1000
)

// A trail is the newest entries of the audit trail, in order.
type trail struct {
	most int
	next uint64 // number of the next entry; of the committer

	mu      sync.RWMutex
	entries []api.Entry
}

// Audit returns the newest entries that f selects, the newest first: at most
// f.Limit, and those before the entry f.Before.
func (b *Book) Audit(f api.Filter) []api.Entry {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultEntries
	}
	limit = min(limit, maxEntries)
	before := ^uint64(0)
	found := []api.Entry{}
	if f.Before != "" {
		var err error
		if before, err = strconv.ParseUint(f.Before, 10, 64); err != nil {
			return found
		}
	}
	t := &b.trail
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i := len(t.entries) - 1; i >= 0 && len(found) < limit; i-- {
		if e := t.entries[i]; e.ID < before && selects(f, e.Key) {
			found = append(found, e)
		}
	}
	return found
}

// add appends entries.
func (t *trail) add(entries []api.Entry, next uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = next
	t.entries = append(t.entries, entries...)
	if more := len(t.entries) - t.most; more > t.most/4 {
		t.entries = append([]api.Entry(nil), t.entries[more:]...)
	}
}

// write stores entries, and removes those that are too old.
func (t *trail) write(bucket *bbolt.Bucket, entries []api.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if err := bucket.Put(number(e.ID), text); err != nil {
			return err
		}
	}
	last := entries[len(entries)-1].ID
	for c := bucket.Cursor(); ; {
		key, _ := c.First()
		if len(key) != 8 || last-binary.BigEndian.Uint64(key) < uint64(t.most) {
			return nil
		}
		if err := c.Delete(); err != nil {
			return err
		}
	}
}

// cut removes the entries from a number on.
func cut(bucket *bbolt.Bucket, from uint64) error {
	for c := bucket.Cursor(); ; {
		key, _ := c.Seek(number(from))
		if key == nil {
			return nil
		}
		if err := c.Delete(); err != nil {
			return err
		}
	}
}

// read fills the trail. Numbers go on after the last.
func (t *trail) read(bucket *bbolt.Bucket) error {
	t.next = 1
	return each(bucket, func(key, value []byte) error {
		e, err := parseEntry(key, value)
		if err != nil {
			return err
		}
		t.next = e.ID + 1
		t.entries = append(t.entries, e)
		if len(t.entries) > 2*t.most {
			t.entries = append([]api.Entry(nil), t.entries[t.most:]...)
		}
		return nil
	})
}

func parseEntry(key, value []byte) (api.Entry, error) {
	var e api.Entry
	if err := json.Unmarshal(value, &e); err != nil {
		return e, err
	}
	if len(key) != 8 || binary.BigEndian.Uint64(key) != e.ID {
		return e, fmt.Errorf("%w: number", ErrInvalid)
	}
	return e, nil
}

func number(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }
