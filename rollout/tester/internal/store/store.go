// Package store has what the stores of a test runner share: a file of bbolt that
// one process has open, and values that go to whoever watches.
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
	path := filepath.Join(dir, name)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // bbolt maps the file, and follows what it says
	defer func() {
		if p := recover(); p != nil { // db is not closed: that may wait for its transaction
			db, err = nil, fmt.Errorf("%w: %v", ErrDamaged, p)
		}
		if err != nil && db != nil {
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			db, err = nil, fmt.Errorf("%s: %w", path, err)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Nanosecond}) // one try
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, ErrInUse
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return nil, err
	}
	whole := func(tx *bbolt.Tx) error {
		info, err := os.Stat(path)
		if err == nil && info.Size() < tx.Size() {
			err = fmt.Errorf("%w: it was cut off", ErrDamaged)
		}
		return err
	}
	if err = db.View(whole); err == nil {
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

// maxPending is how many values a watcher may lag behind.
const maxPending = 1024

// A Feed sends values to whoever watches. Its zero value has no watchers.
type Feed[T any] struct {
	mu       sync.Mutex
	watchers map[chan *T]bool
	closed   bool
}

// Send sends a value, and waits for nobody: a watcher that is 1024 values behind is
// given up, its channel is closed.
func (f *Feed[T]) Send(value T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		select {
		case w <- &value:
		default:
			close(w)
			delete(f.watchers, w)
		}
	}
}

// Watch returns the values that are sent from now on, until ctx ends or the feed is
// closed; then the channel is closed. The values are not to be changed.
func (f *Feed[T]) Watch(ctx context.Context) <-chan *T {
	w := make(chan *T, maxPending)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		close(w)
		return w
	}
	if f.watchers == nil {
		f.watchers = map[chan *T]bool{}
	}
	f.watchers[w] = true
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.watchers[w] {
			close(w)
			delete(f.watchers, w)
		}
	})
	return w
}

// Close ends all watches.
func (f *Feed[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for w := range f.watchers {
		close(w)
	}
	f.watchers = nil
}
