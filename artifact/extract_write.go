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
)

// writers is how many files are written at a time.
const writers = 8

// A treeWriter writes a tree to a directory: the walk makes directories,
// writers make files.
type treeWriter struct {
	ctx   context.Context
	tree  fs.FS
	root  *os.Root
	files chan string
}

// writeTree writes tree to dir, which it makes.
func writeTree(ctx context.Context, tree fs.FS, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &treeWriter{ctx: ctx, tree: tree, root: root, files: make(chan string, writers)}
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
	return context.Cause(ctx)
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
	if d.IsDir() {
		return w.makeDir(local)
	}
	if !d.Type().IsRegular() {
		return nil
	}
	select {
	case w.files <- name:
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
	for name := range w.files {
		if err := w.writeFile(name, buf); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

func (w *treeWriter) writeFile(name string, buf []byte) error {
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
	if info.Mode()&0o111 != 0 {
		perm = modes[kindExec]
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{&contextReader{w.ctx, from}}, buf)
	return errors.Join(err, to.Chmod(perm), to.Close())
}
