// Package store has what the stores of a test runner share: a file of bbolt that
// one process has open, and changes that are sent to watchers.
package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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

// A File is a database that one process has open: buckets of values by key. A nil
// File keeps nothing.
type File struct {
	DB     *bbolt.DB
	Commit func(func(*bbolt.Tx) error) error // DB.Update
}

// Open opens a file of a directory, which is made if it is missing, and calls read
// with each value. Whatever bbolt makes of a damaged file, also a panic, and an error of
// read are an error that wraps [ErrDamaged]. bbolt does not check a whole file: a
// damaged page may be found later.
func Open(dir, name string, buckets []string, read func(bucket string, key, value []byte) error) (f *File, err error) {
	path := filepath.Join(dir, name)
	var db *bbolt.DB
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // bbolt maps the file, and follows what it says
	defer func() {
		if p := recover(); p != nil { // db is not closed: that may wait for its transaction
			db, err = nil, fmt.Errorf("%w: %v", ErrDamaged, p)
		}
		if err != nil && db != nil {
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			f, err = nil, fmt.Errorf("%s: %w", path, err)
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
	err = db.Update(func(tx *bbolt.Tx) error {
		if info, err := os.Stat(path); err != nil || info.Size() < tx.Size() {
			return cmp.Or(err, fmt.Errorf("%w: it was cut off", ErrDamaged))
		}
		for _, bucket := range buckets {
			b, err := tx.CreateBucketIfNotExists([]byte(bucket))
			if err != nil {
				return err
			}
			err = b.ForEach(func(key, value []byte) error {
				if err := read(bucket, key, value); err != nil {
					return fmt.Errorf("%w: %s: %q: %w", ErrDamaged, bucket, key, err)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = durable.SyncPath(dir)
	}
	return &File{db, db.Update}, err
}

// A Write is one value that is stored: bytes as they are, others, of texts, numbers and
// times, as JSON; nil removes it.
type Write struct {
	Bucket string
	Key    []byte
	Value  any
}

// Write stores values in one transaction: they are on disk when it returns.
func (f *File) Write(writes []Write) error {
	if f == nil {
		return nil
	}
	return f.Commit(func(tx *bbolt.Tx) error {
		for _, w := range writes {
			b := tx.Bucket([]byte(w.Bucket))
			var err error
			switch value := w.Value.(type) {
			case nil:
				err = b.Delete(w.Key)
			case []byte:
				err = b.Put(w.Key, value)
			default:
				text, _ := json.Marshal(value)
				err = b.Put(w.Key, text)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Get returns a value, nil if there is none, or after the end.
func (f *File) Get(bucket, key string) (value []byte) {
	if f != nil {
		_ = f.DB.View(func(tx *bbolt.Tx) error {
			value = bytes.Clone(tx.Bucket([]byte(bucket)).Get([]byte(key)))
			return nil
		})
	}
	return value
}

// Close ends the use of the file.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	return f.DB.Close()
}

// maxPending is how many values a watcher may lag behind.
const maxPending = 1024

// A Feed sends values to its watchers. Its zero value has no watchers.
type Feed[T any] struct {
	mu       sync.Mutex
	watchers map[chan *T]bool
	closed   bool
}

// Send sends the value that now returns, which is not called without watchers. It never
// blocks: a watcher that is 1024 values behind is given up, its channel is closed.
func (f *Feed[T]) Send(now func() T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watchers) == 0 {
		return
	}
	value := now()
	for w := range f.watchers {
		select {
		case w <- &value:
		default:
			f.end(w)
		}
	}
}

// end ends the watch of w, unless it has ended.
func (f *Feed[T]) end(w chan *T) {
	if f.watchers[w] {
		close(w)
		delete(f.watchers, w)
	}
}

// Watch returns the values that are sent from now on, until ctx ends or the feed is
// closed; then the channel is closed. The values are not to be changed.
func (f *Feed[T]) Watch(ctx context.Context) <-chan *T {
	w := make(chan *T, maxPending)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers == nil {
		f.watchers = map[chan *T]bool{}
	}
	f.watchers[w] = true
	if f.closed {
		f.end(w)
	}
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.end(w)
	})
	return w
}

// Close ends all watches.
func (f *Feed[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for w := range f.watchers {
		f.end(w)
	}
}
