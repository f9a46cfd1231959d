package artifact

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Lock takes the lock of the object dir (KIND/NAMESPACE/NAME), which orders
// writers, of one process and of several. It waits until it has the lock or
// ctx ends. The lock ends with unlock, which may be called more than once, or
// with the process.
func (s *Store) Lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := s.lock(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	turn := s.turn(dir)
	return sync.OnceFunc(func() {
		f.Close()
		<-turn
	}), nil
}

// lock waits for the turn among the goroutines of this process, then for the
// lock of the file, which a file system cannot tell us about.
func (s *Store) lock(ctx context.Context, dir string) (*os.File, error) {
	if err := cmp.Or(checkDir(dir), ctx.Err()); err != nil {
		return nil, err
	}
	turn := s.turn(dir)
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("held by another writer: %w", context.Cause(ctx))
	}
	const longest = 50 * time.Millisecond
	for wait := time.Millisecond; ; wait = min(2*wait, longest) {
		f, err := s.tryObject(dir)
		if f != nil {
			return f, nil
		}
		if err == nil {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				err = fmt.Errorf("held by another process: %w", context.Cause(ctx))
			}
		}
		<-turn
		return nil, err
	}
}

// turn returns the channel that holds an element while a goroutine has the
// lock of dir.
func (s *Store) turn(dir string) chan struct{} {
	turn, _ := s.turns.LoadOrStore(dir, make(chan struct{}, 1))
	return turn.(chan struct{})
}

// tryObject takes the lock of an object; nil when somebody else has it.
func (s *Store) tryObject(dir string) (*os.File, error) {
	private := objectDir + "/" + dir
	if err := s.makeDir(private); err != nil {
		return nil, err
	}
	f, err := openLocked(s.root, private+"/"+lockName, os.O_CREATE)
	return f, ignore(err, fs.ErrNotExist) // a sweep removed the directory: nobody has the lock, nor do we
}
