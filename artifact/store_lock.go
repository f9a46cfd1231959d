package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Lock takes the lock of the object dir (KIND/NAMESPACE/NAME), which orders
// writers, of one process and of several. It waits until it has the lock or
// ctx ends. The lock ends with unlock, which may be called more than once, or
// with the process.
func (s *Store) Lock(ctx context.Context, dir string) (unlock func(), err error) {
	if err = checkDir(dir); err == nil {
		unlock, err = s.locks.take(ctx, dir, func() (*os.File, error) { return s.tryObject(dir) })
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return unlock, nil
}

// tryObject takes the lock of an object; nil when somebody else has it.
func (s *Store) tryObject(dir string) (*os.File, error) {
	private := objectDir + "/" + dir
	f, err := openLocked(s.root, private+"/"+lockName, os.O_CREATE)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := s.makeDir(private); err != nil {
		return nil, err
	}
	f, err = openLocked(s.root, private+"/"+lockName, os.O_CREATE)
	return f, ignore(err, fs.ErrNotExist) // a sweep removed the directory: nobody has the lock, nor do we
}
