// Package store has what the stores of a test runner share: a bbolt file that one
// process at a time has open, and a feed that sends changes to watchers.
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

// ErrInUse reports a file that another process has open, ErrDamaged a file that is not a
// database or whose content cannot be read.
var (
	ErrInUse   = errors.New("in use")
	ErrDamaged = errors.New("damaged")
)

// A File is an open database: buckets of values by key. A nil File stores nothing.
type File struct {
	DB     *bbolt.DB
	Commit func(func(*bbolt.Tx) error) error // DB.Update
}

// Open opens a file in a directory, and calls read with each value. It creates what is
// missing of directory, file and buckets. The error wraps [ErrInUse] if another process has
// the file open, and [ErrDamaged] if the file is damaged, even if bbolt panics, or if read
// fails. bbolt does not check a whole file: a damaged page may be found later.
func Open(dir, name string, buckets []string, read func(bucket string, key, value []byte) error) (f *File, err error) {
	path := filepath.Join(dir, name)
	var db *bbolt.DB
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // bbolt maps the file, and follows offsets in it that may be damaged
	defer func() {
		if p := recover(); p != nil { // db stays open: Close may wait for its transaction
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

// A Write is one value to store: bytes unchanged, and any other value as JSON, so it must
// be made of texts, numbers and times. A nil value deletes the key.
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

// Get returns a value, or nil if there is none or the file is closed.
func (f *File) Get(bucket, key string) (value []byte) {
	if f != nil {
		_ = f.DB.View(func(tx *bbolt.Tx) error {
			value = bytes.Clone(tx.Bucket([]byte(bucket)).Get([]byte(key)))
			return nil
		})
	}
	return value
}

// Close closes the file.
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

// Send sends the value that now returns; it does not call now if there are no watchers. Send
// never blocks: it ends the watch of a watcher that is 1024 values behind.
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

// end closes the channel w, unless it was closed before.
func (f *Feed[T]) end(w chan *T) {
	if f.watchers[w] {
		close(w)
		delete(f.watchers, w)
	}
}

// Watch returns a channel of the values that are sent from now on. The channel is closed when
// ctx ends, when the feed is closed, or when its receiver is 1024 values behind. The values
// must not be modified.
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

// Close ends all watches, and every later one at once.
func (f *Feed[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for w := range f.watchers {
		f.end(w)
	}
}
