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
	lookAgain = time.Second // how often files are read, at most
	maxFile   = 3 << 20     // bytes of a file
)

// A reloaded value is made of files, tokens or certificates, and again when what they
// hold has changed. They are looked at once a second at most, when the value is asked
// for, and by what they hold, so that it does not matter how they are replaced. What
// cannot be read, or is wrong, leaves the value as it was.
type reloaded[T any] struct {
	names []string
	read  func(contents [][]byte) (value T, warnings []error, err error)
	warn  func(error)
	now   func() time.Time

	mu      sync.Mutex
	current T
	next    time.Time         // when to look again
	sum     [sha256.Size]byte // of what was read last, whether it was right or not
	problem string            // that was told last
}

// reload reads the files of a value. Warn is told what is wrong with files that were
// changed, and what of them looks like a mistake; nil for no reports.
func reload[T any](now func() time.Time, warn func(error), read func([][]byte) (T, []error, error), names ...string) (*reloaded[T], error) {
	if warn == nil {
		warn = func(error) {}
	}
	v := &reloaded[T]{names: names, read: read, warn: warn, now: now, next: now().Add(lookAgain)}
	return v, v.load()
}

// Value returns the value, of what the files hold now if it is time to look.
func (v *reloaded[T]) Value() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.now(); !now.Before(v.next) {
		v.next = now.Add(lookAgain)
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

// load makes the value of what the files hold, if that is another than before.
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
