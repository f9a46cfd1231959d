package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/zeebo/blake3"
)

// writers is how many files are written at a time.
const writers = 8

// A treeWriter writes a tree to a directory: the walk makes directories,
// writers make files.
type treeWriter struct {
	ctx   context.Context
	tree  fs.FS
	root  *os.Root
	files chan *written
	list  []*written // what was or is being written, in the order of the walk
}

// writeTree writes tree to dir, which it makes, and returns what it wrote.
func writeTree(ctx context.Context, tree fs.FS, dir string) ([]*written, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &treeWriter{ctx: ctx, tree: tree, root: root, files: make(chan *written, writers)}
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			if err := w.writeFiles(); err != nil {
				stop(err)
			}
		})
	}
	if err := fs.WalkDir(tree, ".", w.visit); err != nil {
		stop(err)
	}
	close(w.files)
	running.Wait()
	return w.list, context.Cause(ctx)
}

// visit makes a directory or has a file written; it is an [fs.WalkDirFunc].
func (w *treeWriter) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		return fmt.Errorf("%w: the name %q cannot be written on this system", fs.ErrInvalid, name)
	}
	if !d.IsDir() && !d.Type().IsRegular() {
		return nil
	}
	entry := &written{Name: []byte(name), Dir: d.IsDir()}
	if name != "." {
		w.list = append(w.list, entry)
	}
	if d.IsDir() {
		return w.makeDir(local)
	}
	select {
	case w.files <- entry:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}

func (w *treeWriter) makeDir(local string) error {
	if local != "." {
		if err := w.root.Mkdir(local, 0o755); err != nil {
			return err
		}
	}
	return w.root.Chmod(local, 0o755)
}

// writeFiles writes files until there are no more, or one fails.
func (w *treeWriter) writeFiles() error {
	buf := make([]byte, 64<<10)
	for entry := range w.files {
		if err := w.writeFile(entry, buf); err != nil {
			return fmt.Errorf("%q: %w", entry.Name, err)
		}
	}
	return nil
}

// writeFile writes the file entry.Name and completes entry.
func (w *treeWriter) writeFile(entry *written, buf []byte) error {
	name := string(entry.Name)
	from, err := w.tree.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := w.root.OpenFile(filepath.FromSlash(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	perm := modes[kindFile]
	if isExec(info) {
		perm = modes[kindExec]
	}
	sum := blake3.New()
	_, err = io.CopyBuffer(io.MultiWriter(to, sum), struct{ io.Reader }{&contextReader{w.ctx, from}}, buf)
	err = errors.Join(err, to.Chmod(perm))
	if info, err1 := to.Stat(); err1 == nil {
		entry.Size, entry.Modified, entry.Exec = info.Size(), info.ModTime().UnixNano(), isExec(info)
	} else {
		err = errors.Join(err, err1)
	}
	entry.Sum = sum.Sum(nil)
	return errors.Join(err, to.Close())
}
