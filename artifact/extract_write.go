package artifact

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"lukechampine.com/blake3"
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
	sum := blake3.New(32, nil)
	_, err = io.CopyBuffer(io.MultiWriter(to, sum), struct{ io.Reader }{&contextReader{w.ctx, from}}, buf)
	err = errors.Join(err, to.Chmod(fileMode(info)))
	if info, err1 := to.Stat(); err1 == nil {
		entry.Size, entry.Modified, entry.Exec = info.Size(), info.ModTime().UnixNano(), isExec(info)
	} else {
		err = errors.Join(err, err1)
	}
	entry.Sum = sum.Sum(nil)
	return errors.Join(err, to.Close())
}

// A written is a file or directory that Extract wrote; the lines of a record
// are its JSON. Size and time of a file tell quickly that it is unchanged; when
// they differ its content decides, so that a directory may be copied and
// restored. A record lies beside the directory, where no artifact of the
// directory has entries; one that came with an artifact of the parent can only
// describe content of that artifact.
type written struct {
	Name     []byte `json:"name"` // relative, with slashes; any bytes
	Dir      bool   `json:"dir,omitempty"`
	Exec     bool   `json:"exec,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Modified int64  `json:"modified,omitempty"` // nanoseconds since 1970
	Sum      []byte `json:"blake3,omitempty"`
}

// longestLine is the longest line of a record, in bytes: names are shorter.
const longestLine = 1 << 20

func writeRecord(path string, list []*written) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	lines := json.NewEncoder(out)
	for _, w := range list {
		if err = lines.Encode(w); err != nil {
			break
		}
	}
	return errors.Join(err, out.Flush(), f.Close())
}

// readRecord returns what a record lists, by name. The error wraps
// [fs.ErrNotExist] when there is none.
func readRecord(path string) (map[string]*written, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]*written{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		w := new(written)
		if err := json.Unmarshal(lines.Bytes(), w); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all[string(w.Name)] = w
	}
	return all, lines.Err()
}

// changed says what shows that dir is not as an Extract left it, "" if nothing
// does. A killed Extract may have left two records, one for each content that
// dir can have.
func changed(ctx context.Context, dir string) (why string, err error) {
	for _, name := range []string{nextRecord, lastRecord} {
		all, err := readRecord(filepath.Join(besideOf(dir), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			why = fmt.Sprintf("the record of what was extracted to it cannot be read (%v)", err)
			continue
		}
		if why, err = differs(ctx, all, dir); why == "" || err != nil {
			return why, err
		}
	}
	if why == "" {
		why = "it is not empty, and was not written by an extraction"
	}
	return why, nil
}

// differs names one entry by which dir differs from what all lists.
func differs(ctx context.Context, all map[string]*written, dir string) (why string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		local, err := filepath.Rel(dir, path)
		if err != nil || local == "." {
			return err
		}
		name := filepath.ToSlash(local)
		w := all[name]
		delete(all, name)
		if w == nil {
			why = fmt.Sprintf("%q was added to it since it was extracted", name)
			return fs.SkipAll
		}
		same, err := w.is(path, d)
		if err == nil && !same {
			why = fmt.Sprintf("%q in it was changed since it was extracted", name)
			return fs.SkipAll
		}
		return err
	})
	if err != nil || why != "" || len(all) == 0 {
		return why, err
	}
	var missing []string
	for name := range all {
		missing = append(missing, name)
	}
	return fmt.Sprintf("%q in it was removed since it was extracted", slices.Min(missing)), nil
}

// is reports whether the entry d at path is as it was written.
func (w *written) is(path string, d fs.DirEntry) (bool, error) {
	if w.Dir || !d.Type().IsRegular() {
		return w.Dir && d.IsDir(), nil
	}
	info, err := d.Info()
	if err != nil {
		return false, err
	}
	if info.Size() != w.Size || isExec(info) != w.Exec {
		return false, nil
	}
	if info.ModTime().UnixNano() == w.Modified {
		return true, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	h := blake3.New(32, nil)
	if _, err := io.Copy(h, f); err != nil {
		return false, err
	}
	return bytes.Equal(h.Sum(nil), w.Sum), nil
}

func isExec(info fs.FileInfo) bool { return info.Mode()&0o111 != 0 }
