// Package reload keeps values that are made of files: tokens, certificates.
//
// Files are looked at once a second at most, when somebody asks for the value,
// and by what they hold, so that it does not matter how they are replaced: a
// link that a mounted Secret changes counts as much as an editor that writes in
// place. What cannot be read, or is wrong, leaves the value as it was.
package reload

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lookAgain = time.Second // how often files are read, at most
	maxFile   = 3 << 20     // bytes of a file
)

// A Reading makes a value of the contents of files. Warnings are about what
// looks like a mistake.
type Reading[T any] func(names []string, contents [][]byte) (value T, warnings []error, err error)

// A Value is made of files, and again when what they hold has changed.
type Value[T any] struct {
	names []string
	read  Reading[T]
	warn  func(error)
	now   func() time.Time

	current atomic.Pointer[T]
	next    atomic.Int64 // when to look again, in nanoseconds since 1970

	mu     sync.Mutex
	sum    [sha256.Size]byte // of what was read last, whether it was right or not
	absent string            // why files could not be read
}

// Open reads the files of a value. Warn is told what is wrong with files that were
// changed, and what of them looks like a mistake; nil for nobody. A nil now is time.Now.
func Open[T any](now func() time.Time, warn func(error), read Reading[T], names ...string) (*Value[T], error) {
	if now == nil {
		now = time.Now
	}
	if warn == nil {
		warn = func(error) {}
	}
	w := &Value[T]{names: names, read: read, warn: warn, now: now}
	contents, err := readFiles(names)
	if err != nil {
		return nil, err
	}
	if err := w.take(contents); err != nil {
		return nil, err
	}
	w.next.Store(now().Add(lookAgain).UnixNano())
	return w, nil
}

// Value returns the value, of what the files hold now if it is time to look.
func (w *Value[T]) Value() T {
	if now := w.now(); now.UnixNano() >= w.next.Load() && w.mu.TryLock() {
		defer w.mu.Unlock()
		w.look()
		w.next.Store(now.Add(lookAgain).UnixNano())
	}
	return *w.current.Load()
}

// look reads the files and tells once what is wrong with them.
func (w *Value[T]) look() {
	contents, err := readFiles(w.names)
	if err != nil {
		if w.absent != err.Error() {
			w.absent = err.Error()
			w.warn(fmt.Errorf("%w; what it held before counts on", err))
		}
		return
	}
	w.absent = ""
	if sumOf(contents) == w.sum {
		return
	}
	if err := w.take(contents); err != nil {
		w.warn(fmt.Errorf("%w; what it held before counts on", err))
	}
}

// take makes the value of contents.
func (w *Value[T]) take(contents [][]byte) error {
	w.sum = sumOf(contents)
	value, warnings, err := w.read(w.names, contents)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		w.warn(warning)
	}
	w.current.Store(&value)
	return nil
}

func sumOf(contents [][]byte) [sha256.Size]byte {
	var all []byte
	for _, c := range contents {
		sum := sha256.Sum256(c)
		all = append(all, sum[:]...)
	}
	return sha256.Sum256(all)
}

func readFiles(names []string) ([][]byte, error) {
	var out [][]byte
	for _, name := range names {
		content, err := readFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, content)
	}
	return out, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s: larger than %d MiB", name, maxFile>>20)
	}
	return content, err
}
