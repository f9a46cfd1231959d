package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A workplace is the directory .NAME.headgate beside a directory NAME that
// Extract writes, held by a lock.
type workplace struct {
	dir  string // NAME
	lock *os.File
}

// Entries of a workplace.
const (
	lockFile   = "lock"
	newTree    = "new"         // the new content, after the exchange the old
	oldTree    = "old"         // the old content, where directories cannot be exchanged
	lastRecord = "record"      // what NAME holds
	nextRecord = "record.next" // what NAME holds once it is replaced
)

func besideOf(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".headgate")
}

func (w *workplace) path(name string) string { return filepath.Join(besideOf(w.dir), name) }

// openWorkplace makes the workplace of dir and waits for its lock.
func openWorkplace(ctx context.Context, dir string) (*workplace, error) {
	lock, err := await(ctx, func() (*os.File, error) {
		beside := besideOf(dir)
		if err := ignore(os.Mkdir(beside, 0o700), fs.ErrExist); err != nil {
			return nil, err
		}
		info, err := os.Lstat(beside)
		if err == nil && !info.IsDir() {
			return nil, fmt.Errorf("%s is not a directory: remove it", beside)
		}
		root, err := os.OpenRoot(beside)
		if err != nil {
			return nil, ignore(err, fs.ErrNotExist) // another process removed it
		}
		defer root.Close()
		f, err := openLocked(root, lockFile, os.O_CREATE)
		return f, ignore(err, fs.ErrNotExist)
	})
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return &workplace{dir, lock}, nil
}

// settle ends what a killed Extract began, and removes what it left.
func (w *workplace) settle(ctx context.Context) error {
	if _, err := os.Lstat(w.dir); errors.Is(err, fs.ErrNotExist) {
		if err := ignore(os.Rename(w.path(oldTree), w.dir), fs.ErrNotExist); err != nil {
			return err
		}
	}
	if next, err := readRecord(w.path(nextRecord)); err == nil {
		why, err := differs(ctx, next, w.dir)
		if err == nil && why == "" {
			err = os.Rename(w.path(nextRecord), w.path(lastRecord))
		}
		if ignore(err, fs.ErrNotExist) != nil {
			return err
		}
	}
	if _, err := os.Lstat(w.path(oldTree)); err == nil {
		// Content that could not be moved back stays: then dir was not written here.
		if why, err := changed(ctx, w.dir); err == nil && why == "" {
			if err := os.RemoveAll(w.path(oldTree)); err != nil {
				return err
			}
		}
	}
	return errors.Join(os.RemoveAll(w.path(nextRecord)), os.RemoveAll(w.path(newTree)), w.sweep())
}

// sweep removes the directories .NAME.tmp-N that earlier versions left.
func (w *workplace) sweep() error {
	parent, base := filepath.Split(w.dir)
	list, err := os.ReadDir(parent)
	for _, entry := range list {
		digits, found := strings.CutPrefix(entry.Name(), "."+base+".tmp-")
		if !found || strings.Trim(digits, "0123456789") != "" || !entry.IsDir() {
			continue
		}
		left := filepath.Join(parent, entry.Name())
		err1 := os.RemoveAll(filepath.Join(left, newTree))
		if err1 == nil {
			os.Remove(left) // fails when it holds content that could not be moved back
		}
		err = errors.Join(err, err1)
	}
	return err
}

// close removes the content that is left, and all of the workplace unless it
// says what dir holds.
func (w *workplace) close() error {
	err := errors.Join(os.RemoveAll(w.path(nextRecord)), os.RemoveAll(w.path(newTree)))
	if _, err := os.Lstat(w.path(lastRecord)); errors.Is(err, fs.ErrNotExist) {
		os.Remove(w.path(lockFile)) // while no other process can have it
		defer os.Remove(besideOf(w.dir))
	}
	return errors.Join(err, w.lock.Close())
}
