package artifact

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"lukechampine.com/blake3"

	"github.com/headgate-io/headgate/internal/durable"
)

// writers is how many files are written at a time.
const writers = 8

// writeTree writes tree to dir, which it makes, and returns what it wrote.
func writeTree(ctx context.Context, tree fs.FS, dir string) (list []*written, err error) {
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
	list = []*written{} // not nil, which is no tree
	buffers := make(chan []byte, writers)
	for range writers {
		buffers <- make([]byte, 64<<10)
	}
	var running sync.WaitGroup
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		local := filepath.FromSlash(name)
		switch {
		case err != nil:
			return err
		case !filepath.IsLocal(local):
			return fmt.Errorf("%w: the name %q cannot be written on this system", fs.ErrInvalid, name)
		case name == ".":
			return root.Chmod(local, 0o755)
		case !d.IsDir() && !d.Type().IsRegular():
			return nil
		}
		entry := &written{Name: []byte(name), Dir: d.IsDir()}
		list = append(list, entry)
		if d.IsDir() {
			return cmp.Or(root.Mkdir(local, 0o755), root.Chmod(local, 0o755))
		}
		select {
		case buf := <-buffers:
			running.Go(func() {
				if err := entry.write(ctx, tree, root, buf); err != nil {
					stop(fmt.Errorf("%q: %w", name, err))
				}
				buffers <- buf
			})
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	})
	running.Wait()
	return list, cmp.Or(context.Cause(ctx), err)
}

// write writes the file w.Name of tree to root and completes w.
func (w *written) write(ctx context.Context, tree fs.FS, root *os.Root, buf []byte) error {
	name := string(w.Name)
	from, err := tree.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := root.OpenFile(filepath.FromSlash(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	sum := blake3.New(32, nil)
	_, err = io.CopyBuffer(io.MultiWriter(to, sum), struct{ io.Reader }{&contextReader{ctx, from}}, buf)
	err = errors.Join(err, to.Chmod(fileMode(info)))
	if info, err1 := to.Stat(); err1 == nil {
		w.Size, w.Modified, w.Exec = info.Size(), info.ModTime().UnixNano(), isExec(info)
	} else {
		err = errors.Join(err, err1)
	}
	w.Sum = sum.Sum(nil)
	return errors.Join(err, to.Close())
}

// A written is a file or directory that Extract wrote. Size and time of a file
// tell quickly that it is unchanged; when they differ its content decides, so
// that a directory may be copied and restored.
//
// A record is a line of JSON for each, with a line {} between two trees. It lies
// beside the directory, where no artifact of the directory has entries; one that
// came with an artifact of the parent can only describe content of that artifact.
type written struct {
	Name     []byte `json:"name,omitempty"` // relative, with slashes; any bytes
	Dir      bool   `json:"dir,omitempty"`
	Exec     bool   `json:"exec,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Modified int64  `json:"modified,omitempty"` // nanoseconds since 1970
	Sum      []byte `json:"blake3,omitempty"`
}

// record records that the directory holds one of the trees, nil for none.
func (w *workplace) record(trees ...[]*written) error {
	trees = slices.DeleteFunc(trees, func(tree []*written) bool { return tree == nil })
	if len(trees) == 0 {
		return os.RemoveAll(w.path(recordFile))
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for i, tree := range trees {
		if i > 0 {
			text.WriteString("{}\n")
		}
		for _, entry := range tree {
			if err := lines.Encode(entry); err != nil {
				return err
			}
		}
	}
	return durable.Replace(w.path(recordFile), text.Bytes())
}

// readRecord returns the trees of a record. The error wraps [fs.ErrNotExist]
// when there is none.
func readRecord(path string) ([][]*written, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	trees := [][]*written{{}}
	for lines := json.NewDecoder(f); ; {
		entry, last := new(written), len(trees)-1
		switch err := lines.Decode(entry); {
		case err == io.EOF:
			return trees, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		case len(entry.Name) == 0:
			trees = append(trees, []*written{})
		default:
			trees[last] = append(trees[last], entry)
		}
	}
}

// recorded returns the tree that dir is as an Extract left it. Where it is
// none, why says what shows that, "" for an empty directory.
func recorded(ctx context.Context, dir string) (tree []*written, why string, err error) {
	trees, err := readRecord(filepath.Join(besideOf(dir), recordFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "it is not empty, and was not written by an extraction"
	case err != nil:
		why = fmt.Sprintf("the record of what was extracted to it cannot be read (%v)", err)
	}
	for _, tree := range trees {
		if why, err = differs(ctx, tree, dir); why == "" || err != nil {
			return tree, "", err
		}
	}
	if some, err := differs(ctx, nil, dir); some == "" || err != nil {
		return nil, "", err
	}
	return nil, why, nil
}

// differs names one entry by which dir differs from tree.
func differs(ctx context.Context, tree []*written, dir string) (why string, err error) {
	all := make(map[string]*written, len(tree))
	for _, w := range tree {
		all[string(w.Name)] = w
	}
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
	return fmt.Sprintf("%q in it was removed since it was extracted", slices.Min(slices.Collect(maps.Keys(all)))), nil
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
