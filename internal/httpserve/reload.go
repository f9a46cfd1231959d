package httpserve

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	reloadInterval = time.Second // least time between two reads of the files
	maxFile        = 3 << 20     // bytes of a file
)

// A reloaded value is decoded from files, such as tokens or certificates, and decoded again when their
// content has changed. The files are read when the value is requested, at most once a second. Changes
// are detected by content, so that it does not matter how files are replaced. If a file
// cannot be read or is invalid, the value stays unchanged.
type reloaded[T any] struct {
	names []string
	read  func(contents [][]byte) (value T, warnings []error, err error)
	warn  func(error)
	now   func() time.Time

	mu      sync.Mutex
	current T
	next    time.Time         // when to read the files again
	sum     [sha256.Size]byte // of the content that was read last, valid or not
	problem string            // last reported error
}

// newReloaded decodes a value from files. It fails if they cannot be read or are invalid. Later errors are passed to
// warn, and so are the warnings of read; warn may be nil.
func newReloaded[T any](now func() time.Time, warn func(error), read func([][]byte) (T, []error, error), names ...string) (*reloaded[T], error) {
	if warn == nil {
		warn = func(error) {}
	}
	v := &reloaded[T]{names: names, read: read, warn: warn, now: now, next: now().Add(reloadInterval)}
	return v, v.load()
}

// Value returns the value. It reads the files first if the last time was at least a second ago.
func (v *reloaded[T]) Value() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.now(); !now.Before(v.next) {
		v.next = now.Add(reloadInterval)
		problem := ""
		if err := v.load(); err != nil {
			problem = err.Error()
			if problem != v.problem {
				v.warn(fmt.Errorf("%w; its previous content stays in effect", err))
			}
		}
		v.problem = problem
	}
	return v.current
}

// load reads the files, and decodes the value if their content has changed.
func (v *reloaded[T]) load() error {
	h := sha256.New()
	var contents [][]byte
	for _, name := range v.names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
		f.Close()
		if err == nil && len(content) > maxFile {
			err = fmt.Errorf("%s: larger than %d MiB", name, maxFile>>20)
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(h, len(content))
		h.Write(content)
		contents = append(contents, content)
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	if sum == v.sum {
		return nil
	}
	v.sum = sum
	value, warnings, err := v.read(contents)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		v.warn(warning)
	}
	v.current = value
	return nil
}
