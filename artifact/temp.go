package artifact

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/internal/retry"
)

// openDir opens a directory, and creates it if it does not exist.
func openDir(dir string) (*os.Root, error) {
	if dir == "" {
		return nil, errors.New("no directory given")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// A tempDir is a directory of files being written, shared by processes. The writer of a file holds
// a lock on it: a file without a lock was left by a process that died.
type tempDir struct {
	root *os.Root
	dir  string
}

// A tempFile is a file being written; move gives it its final name.
type tempFile struct {
	*os.File
	root *os.Root
	name string // "" after move

	unsynced int        // bytes written since the last sync was started
	syncing  sync.Mutex // held during a sync; guards failed
	failed   error      // errors of earlier syncs, each of which reports it only once
}

// syncEach is the number of bytes after which a sync starts in the background, while more are
// written.
const syncEach = 16 << 20

// Write implements [io.Writer].
func (f *tempFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if f.unsynced += n; f.unsynced >= syncEach && f.syncing.TryLock() {
		f.unsynced = 0
		go func() {
			defer f.syncing.Unlock()
			f.failed = errors.Join(f.failed, f.File.Sync())
		}()
	}
	return n, err
}

// Sync returns when all written bytes are on the disk.
func (f *tempFile) Sync() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	return errors.Join(f.failed, f.File.Sync())
}

// Close waits for a running sync and closes the file.
func (f *tempFile) Close() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	return f.File.Close()
}

// create creates a new file with a random name and locks it.
func (d tempDir) create() (*tempFile, error) {
	for {
		name := d.dir + "/" + rand.Text()
		if f, err := createLocked(d.root, name, os.O_EXCL); f != nil || err != nil {
			return &tempFile{File: f, root: d.root, name: name}, err
		}
	}
}

// move renames the file to its final name, and creates the directory of that name.
func (f *tempFile) move(name string) error {
	err := durable.CreateIn(f.root, path.Dir(name), func() error { return f.root.Rename(f.name, name) })
	if err == nil {
		f.name = ""
	}
	return err
}

// discard removes the file unless it was moved. The file stays open.
func (f *tempFile) discard() {
	if f.name != "" {
		f.root.Remove(f.name) // sweep removes it if this fails
	}
}

// sweep removes the files of writers that have ended.
func (d tempDir) sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	list, err := readDir(d.root, d.dir)
	for _, entry := range list {
		if err := ctx.Err(); err != nil {
			return swept, err
		}
		name := d.dir + "/" + entry.Name()
		f, err1 := openLocked(d.root, name, 0)
		if f != nil {
			if err1 = d.root.Remove(name); err1 == nil {
				swept.Files++
				if info, err := f.Stat(); err == nil {
					swept.Bytes += info.Size()
				}
			}
			f.Close()
		}
		err = errors.Join(err, ignoreErr(err1, fs.ErrNotExist))
	}
	return swept, err
}

// createLocked is openLocked for a file that may not exist yet; it also creates its directory.
func createLocked(root *os.Root, name string, flag int) (f *os.File, err error) {
	err = durable.CreateIn(root, path.Dir(name), func() (err error) {
		f, err = openLocked(root, name, flag|os.O_CREATE)
		return err
	})
	return f, err
}

// openLocked opens name and locks it. The file is nil if another process holds the lock, or if the
// file was removed meanwhile.
func openLocked(root *os.Root, name string, flag int) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	ok, err := durable.TryLock(f)
	if ok && err == nil {
		ok, err = sameFile(root, name, f)
	}
	if !ok || err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sameFile reports whether name still refers to f.
func sameFile(root *os.Root, name string, f *os.File) (bool, error) {
	a, err := f.Stat()
	if err != nil {
		return false, err
	}
	b, err := root.Lstat(name)
	return err == nil && os.SameFile(a, b), ignoreErr(err, fs.ErrNotExist)
}

// readDir lists a directory; one that does not exist is empty.
func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(root.FS(), name)
	return list, ignoreErr(err, fs.ErrNotExist)
}

// ignoreErr returns err, or nil if err matches target.
func ignoreErr(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// wrap prefixes *err, if not nil, with a description of the operation; for deferred calls.
func wrap(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// locks serializes the goroutines of this process, so that they need not poll for the lock of a
// file. The zero value is ready to use.
type locks struct {
	mutexes sync.Map // name → chan struct{}, which has an element while a goroutine holds the lock
}

// acquire waits until no other goroutine of this process holds the lock, then acquires the lock of the
// file name.
func (l *locks) acquire(ctx context.Context, root *os.Root, name string) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	value, _ := l.mutexes.LoadOrStore(name, make(chan struct{}, 1))
	turn := value.(chan struct{})
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("held by another goroutine: %w", context.Cause(ctx))
	}
	f, err := poll(ctx, func() (*os.File, error) { return createLocked(root, name, 0) })
	if err != nil {
		<-turn
		return nil, err
	}
	return sync.OnceFunc(func() {
		f.Close()
		<-turn
	}), nil
}

// poll calls try until it returns a file. It has to poll, as file systems do not report free
// locks.
func poll(ctx context.Context, try func() (*os.File, error)) (*os.File, error) {
	const longest = 50 * time.Millisecond
	for wait := time.Millisecond; ; wait = min(2*wait, longest) {
		if f, err := try(); f != nil || err != nil {
			return f, err
		}
		if err := retry.Sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("held by another process: %w", err)
		}
	}
}
