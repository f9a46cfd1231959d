// Package bolt opens files of bbolt for one process, and none that would take
// it down: a file is checked as a whole before the library maps it into memory,
// because what the library does with a damaged one is to panic, to run in
// circles, or to fault.
package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/internal/durable"
)

// ErrInUse is a file that another process has open, ErrCorrupt one that is no
// file of bbolt, or a damaged one.
var (
	ErrInUse   = errors.New("another process uses it")
	ErrCorrupt = errors.New("damaged")
)

const (
	patience = time.Second // how long another process may take to end
	interval = 20 * time.Millisecond
)

// Open opens the file for this process alone, and makes it, of mode 0600, when
// there is none, or one that a crash kept from being made completely. One that is
// mostly free pages is written anew without them. Errors name the file.
func Open(path string) (db *bbolt.DB, err error) {
	db, free, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, cause(err))
	}
	db, err = shrink(db, path, free)
	if err == nil { // who made the file may have been killed before this
		err = durable.SyncPath(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), db.Close())
	}
	return db, nil
}

// open opens a file and says how much of it is free.
func open(path string) (db *bbolt.DB, free space, err error) {
	var file *os.File
	err = Guard(func() error {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			NoStatistics: true,
			FreelistType: bbolt.FreelistMapType,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				file, free, err = openLocked(name, flag, mode)
				return file, err
			},
		})
		return err
	})
	if err != nil && file != nil {
		file.Close()
	}
	return db, free, err
}

// Guard runs do, and makes an error that wraps [ErrCorrupt] of a panic and of a
// fault of memory.
func Guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, r)
		}
	}()
	return do()
}

// openLocked opens a file, takes its lock, and checks what is in it.
func openLocked(name string, flag int, mode os.FileMode) (*os.File, space, error) {
	f, err := openAlone(name, flag, mode)
	if err != nil {
		return nil, space{}, err
	}
	free, err := check(f)
	if errors.Is(err, ErrCorrupt) && unmade(f) {
		free, err = space{}, f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, space{}, err
	}
	return f, free, nil
}

// openAlone opens a file and takes its lock.
func openAlone(name string, flag int, mode os.FileMode) (*os.File, error) {
	for range replaced {
		f, err := os.OpenFile(name, flag, mode)
		if err != nil {
			return nil, err
		}
		err = lock(f)
		if err == nil && stands(f, name) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, ErrInUse
}

// replaced is how often another process may put another file into the place of
// the one whose lock is waited for.
const replaced = 3

// stands reports whether f still has its name.
func stands(f *os.File, name string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(name)
	return err == nil && os.SameFile(held, named)
}

func lock(f *os.File) error {
	for start := time.Now(); ; time.Sleep(interval) {
		ok, err := durable.TryLock(f)
		switch {
		case err != nil || ok:
			return err
		case time.Since(start) > patience:
			return ErrInUse
		}
	}
}

// cause returns err without the path that package os puts into it.
func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Op, p.Err)
	}
	return err
}
