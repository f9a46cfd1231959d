package access

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

// A reading makes a value of the contents of files. Warnings are about what
// looks like a mistake.
type reading[T any] func(names []string, contents [][]byte) (value T, warnings []error, err error)

// A watched value is made of files, and again when what they hold has changed.
// It compares contents, so that it does not matter how a file is replaced.
type watched[T any] struct {
	names []string
	read  reading[T]
	warn  func(error)
	now   func() time.Time

	current atomic.Pointer[T]
	next    atomic.Int64 // when to look again, in nanoseconds since 1970

	mu     sync.Mutex
	sum    [sha256.Size]byte // of what was read last, whether it was right or not
	absent string            // why files could not be read
}

func watch[T any](now func() time.Time, warn func(error), read reading[T], names ...string) (*watched[T], error) {
	if now == nil {
		now = time.Now
	}
	if warn == nil {
		warn = func(error) {}
	}
	w := &watched[T]{names: names, read: read, warn: warn, now: now}
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

// value returns the value, of what the files hold now if it is time to look.
func (w *watched[T]) value() T {
	if now := w.now(); now.UnixNano() >= w.next.Load() && w.mu.TryLock() {
		defer w.mu.Unlock()
		w.look()
		w.next.Store(now.Add(lookAgain).UnixNano())
	}
	return *w.current.Load()
}

// look reads the files and tells once what is wrong with them.
func (w *watched[T]) look() {
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
func (w *watched[T]) take(contents [][]byte) error {
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
