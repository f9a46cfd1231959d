package artifact

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
)

// A scratch is a directory of files being written, shared by processes. The
// writer of a file holds a lock on it: a file that is not locked was left
// by a process that died.
type scratch struct {
	root *os.Root
	dir  string
}

// A scratchFile is a file being written. It ends with rename or discard.
type scratchFile struct {
	*os.File
	root *os.Root
	name string
}

// create opens a new file.
func (s scratch) create() (*scratchFile, error) {
	for tried := false; ; tried = true {
		name := s.dir + "/" + rand.Text()
		f, err := openLocked(s.root, name, os.O_CREATE|os.O_EXCL)
		if errors.Is(err, fs.ErrNotExist) && !tried {
			err = s.root.MkdirAll(s.dir, 0o700)
		}
		switch {
		case err != nil:
			return nil, err
		case f != nil:
			return &scratchFile{File: f, root: s.root, name: name}, nil
		}
	}
}

// anonymous opens a new file that has no name.
func (s scratch) anonymous() (*os.File, error) {
	f, err := s.create()
	if err != nil {
		return nil, err
	}
	if err := s.root.Remove(f.name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.File, nil
}

// become gives the file its final name.
func (f *scratchFile) become(name string) error {
	err := f.root.Rename(f.name, name)
	if err == nil {
		f.name = ""
	}
	return err
}

// rename gives the file its final name and closes it.
func (f *scratchFile) rename(name string) error {
	if err := f.become(name); err != nil {
		return err
	}
	return f.Close()
}

// discard removes the file, unless it was renamed.
func (f *scratchFile) discard() {
	if f.name != "" {
		f.root.Remove(f.name) // what fails here is left to sweep
		f.Close()
	}
}

// sweep removes the files whose writers are gone.
func (s scratch) sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	list, err := readDir(s.root, s.dir)
	for _, entry := range list {
		if err := ctx.Err(); err != nil {
			return swept, err
		}
		n, gone, err1 := s.sweepFile(s.dir + "/" + entry.Name())
		if gone {
			swept.Files++
			swept.Bytes += n
		}
		err = errors.Join(err, err1)
	}
	return swept, err
}

func (s scratch) sweepFile(name string) (size int64, gone bool, err error) {
	f, err := openLocked(s.root, name, 0)
	if f == nil || err != nil {
		return 0, false, ignore(err, fs.ErrNotExist)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, false, err
	}
	err = s.root.Remove(name)
	return info.Size(), err == nil, ignore(err, fs.ErrNotExist)
}

// openLocked opens name and locks it. The file is nil when it is locked
// elsewhere, or was removed meanwhile.
func openLocked(root *os.Root, name string, flag int) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := durable.TryLock(f)
	if err == nil && locked && sameFile(root, name, f) {
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// sameFile reports whether name still leads to f.
func sameFile(root *os.Root, name string, f *os.File) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(filepath.Join(root.Name(), filepath.FromSlash(name))) // quicker; it is only compared
	if err != nil || !os.SameFile(a, b) {
		b, err = root.Lstat(name) // the directory may have been moved
	}
	return err == nil && os.SameFile(a, b)
}

// readDir lists a directory; one that does not exist is empty.
func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(root.FS(), name)
	return list, ignore(err, fs.ErrNotExist)
}

// ignore returns err, or nil when it is target.
func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// locks are named locks that order goroutines and processes. The zero value is
// ready to use.
type locks struct {
	turns sync.Map // name → chan struct{}, which holds an element while a goroutine has the lock
}

// take waits for the turn among the goroutines of this process, then for the
// lock of the file, which a file system cannot tell us about. try locks the
// file, and returns nil if it is locked elsewhere.
func (l *locks) take(ctx context.Context, name string, try func() (*os.File, error)) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	value, _ := l.turns.LoadOrStore(name, make(chan struct{}, 1))
	turn := value.(chan struct{})
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("held by another goroutine: %w", context.Cause(ctx))
	}
	f, err := await(ctx, try)
	if err != nil {
		<-turn
		return nil, err
	}
	return sync.OnceFunc(func() {
		f.Close()
		<-turn
	}), nil
}

// await tries until it gets a file.
func await(ctx context.Context, try func() (*os.File, error)) (*os.File, error) {
	const longest = 50 * time.Millisecond
	for wait := time.Millisecond; ; wait = min(2*wait, longest) {
		f, err := try()
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("held by another process: %w", context.Cause(ctx))
		}
	}
}
