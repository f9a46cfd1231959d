// Package store has what the stores of a test runner share: a file of bbolt that
// one process has open, and a list of watchers.
package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/headgate-io/headgate/internal/durable"
)

// ErrInUse is a file that another process has open. ErrDamaged is one that is no
// database, or whose content cannot be read.
var (
	ErrInUse   = errors.New("in use")
	ErrDamaged = errors.New("damaged")
)

// Open opens a file of a directory, which is made when it is missing, and calls
// prepare and then read. Whatever these or bbolt make of a damaged file is an error
// that wraps [ErrDamaged], also a panic. bbolt does not check a whole file: a
// damaged page may be found later.
func Open(dir, name string, prepare, read func(*bbolt.Tx) error) (db *bbolt.DB, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // bbolt maps the file, and follows what it says
	defer func() {
		if p := recover(); p != nil { // db is not closed: that may wait for its transaction
			db, err = nil, fmt.Errorf("%w: %v", ErrDamaged, p)
		}
		if err != nil && db != nil {
			err = errors.Join(err, db.Close())
			db = nil
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Nanosecond}) // one try
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, ErrInUse
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return nil, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		info, err := os.Stat(path)
		if err == nil && info.Size() < tx.Size() {
			err = fmt.Errorf("%w: it was cut off", ErrDamaged)
		}
		return err
	})
	if err == nil {
		err = db.Update(prepare)
	}
	if err == nil {
		err = db.View(read)
	}
	if err == nil {
		err = durable.SyncPath(dir)
	}
	return db, err
}

// maxPending is how many keys a slow watcher may lag behind.
const maxPending = 4096

// A Hub tells watchers which keys changed.
type Hub[K comparable] struct {
	ended   chan struct{} // closed by Close
	running sync.WaitGroup

	mu       sync.Mutex
	watchers map[*watcher[K]]bool
}

// A watcher has the keys that it was not told of yet, in the order of their first
// change. The lock of the hub guards it.
type watcher[K comparable] struct {
	keys    []K
	pending map[K]bool
	behind  bool          // it had too many
	wake    chan struct{} // capacity 1
}

// NewHub returns a hub without watchers.
func NewHub[K comparable]() *Hub[K] {
	return &Hub[K]{ended: make(chan struct{}), watchers: map[*watcher[K]]bool{}}
}

// Notify tells watchers of a change. It does not wait for them.
func (h *Hub[K]) Notify(k K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		switch {
		case w.pending[k]:
			continue
		case len(w.keys) == maxPending:
			w.behind = true
		default:
			w.keys, w.pending[k] = append(w.keys, k), true
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Close ends all watches, those that are slow at once, and waits for them.
func (h *Hub[K]) Close() {
	h.mu.Lock()
	close(h.ended)
	h.mu.Unlock()
	h.running.Wait()
}

// Watch sends the value of each key that changes, as look returns it when its turn
// comes, until ctx ends, the hub is closed or the watcher is 4096 keys behind; then
// it closes the channel. A slow watcher gets the latest value of a key once.
func Watch[K comparable, V any](ctx context.Context, h *Hub[K], look func(K) (V, bool)) <-chan V {
	out := make(chan V, 1)
	w := &watcher[K]{pending: map[K]bool{}, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.ended:
		close(out)
		return out
	default:
	}
	h.watchers[w] = true
	h.running.Go(func() {
		defer close(out)
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.watchers, w)
		}()
		for {
			k, more, behind := h.next(w)
			if behind {
				return
			}
			if !more {
				select {
				case <-w.wake:
					continue
				case <-ctx.Done():
					return
				case <-h.ended:
				}
				if k, more, _ = h.next(w); !more {
					return
				}
			}
			if v, known := look(k); known && !send(ctx, h.ended, out, v) {
				return
			}
		}
	})
	return out
}

// send reports whether a value was sent. After the end nothing waits.
func send[V any](ctx context.Context, ended <-chan struct{}, out chan<- V, v V) bool {
	select {
	case out <- v:
		return true
	default:
	}
	select {
	case out <- v:
		return true
	case <-ctx.Done():
	case <-ended:
	}
	return false
}

// next takes the key that changed first.
func (h *Hub[K]) next(w *watcher[K]) (k K, more, behind bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(w.keys) == 0 || w.behind {
		return k, false, w.behind
	}
	k, w.keys = w.keys[0], w.keys[1:]
	delete(w.pending, k)
	return k, true, false
}
