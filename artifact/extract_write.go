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
	"strconv"

	"golang.org/x/sync/errgroup"
	"lukechampine.com/blake3"

	"github.com/headgate-io/headgate/internal/durable"
)

// writers is the number of files that are written concurrently.
const writers = 8

// writeTree writes tree to the new directory dir and returns what it wrote.
func writeTree(outer context.Context, tree fs.FS, dir string) (listing, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, ctx := errgroup.WithContext(outer)
	files.SetLimit(writers)
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		local := filepath.FromSlash(name)
		switch {
		case err != nil:
			return err
		case !filepath.IsLocal(local):
			return fmt.Errorf("%w: the name %q cannot be written on this system", fs.ErrInvalid, name)
		case name == ".":
			return root.Chmod(local, 0o755)
		case d.IsDir():
			return cmp.Or(root.Mkdir(local, 0o755), root.Chmod(local, 0o755))
		case d.Type().IsRegular():
			files.Go(func() error {
				if err := writeFile(ctx, tree, root, name); err != nil {
					return fmt.Errorf("%q: %w", name, err)
				}
				return nil
			})
		}
		return context.Cause(ctx)
	})
	failed := files.Wait()
	if err = cmp.Or(context.Cause(outer), failed, err); err != nil {
		return nil, err
	}
	return list(outer, root.Name())
}

// writeFile writes the file name of tree to root.
func writeFile(ctx context.Context, tree fs.FS, root *os.Root, name string) error {
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
	_, err = io.Copy(to, &contextReader{ctx, from})
	return errors.Join(err, to.Chmod(fileMode(info)), to.Close())
}

// A listing maps the quoted names of a tree to "dir", or to the mode and checksum of a file.
//
// A record is a JSON list of the listings that a directory may match. It lies beside the directory,
// so that no artifact of the directory can contain it. A record that came with an artifact of the
// parent directory can only describe content of that artifact.
type listing map[string]string

// list reads all of a directory. It does not use [fs.FS], because names need not be UTF-8.
func list(ctx context.Context, dir string) (listing, error) {
	all := listing{}
	buf := make([]byte, 64<<10)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		description := d.Type().String()
		if d.IsDir() {
			description = "dir"
		} else if d.Type().IsRegular() {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			sum := blake3.New(32, nil)
			_, err = io.CopyBuffer(sum, struct{ io.Reader }{&contextReader{ctx, f}}, buf)
			info, failed := f.Stat()
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			description = fmt.Sprintf("%v %x", fileMode(info), sum.Sum(nil))
		}
		name, err := filepath.Rel(dir, path)
		if name != "." {
			all[strconv.Quote(filepath.ToSlash(name))] = description
		}
		return err
	})
	return all, err
}

// record records that the directory matches one of the trees; nil trees are ignored. Without trees,
// it removes the record.
func (w *extraction) record(trees ...listing) error {
	trees = slices.DeleteFunc(trees, func(tree listing) bool { return tree == nil })
	if len(trees) == 0 {
		return os.RemoveAll(w.path(recordFile))
	}
	text, err := json.Marshal(trees)
	if err != nil {
		return err
	}
	return durable.Replace(w.path(recordFile), text)
}

// matchRecord returns the tree in dir if an Extract wrote it and it is unchanged. If not, reason says
// why, "" for an empty directory.
func matchRecord(ctx context.Context, dir string) (tree listing, reason string, err error) {
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		return nil, "", err
	}
	record := filepath.Join(extractionDir(dir), recordFile)
	var trees []listing
	text, err := os.ReadFile(record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "it is not empty, and was not written by an extraction", nil
	}
	if err == nil && bytes.HasPrefix(text, []byte("{")) {
		trees, err = readLines(text)
	} else if err == nil {
		err = json.Unmarshal(text, &trees)
	}
	if err != nil {
		return nil, fmt.Sprintf("the record of what was extracted to it, %s, cannot be read (%v)", record, err), nil
	}
	found, err := list(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	for _, tree := range trees {
		if reason = found.differs(tree); reason == "" {
			return tree, "", nil
		}
	}
	return nil, reason, nil
}

// readLines returns the trees of a record in an older format: a line of JSON for each entry, and a
// line {} between two trees.
func readLines(text []byte) ([]listing, error) {
	trees := []listing{{}}
	for lines := json.NewDecoder(bytes.NewReader(text)); ; {
		var entry struct {
			Name      []byte // any bytes
			Dir, Exec bool
			BLAKE3    []byte
		}
		switch err := lines.Decode(&entry); {
		case err == io.EOF:
			return trees, nil
		case err != nil:
			return nil, err
		case len(entry.Name) == 0:
			trees = append(trees, listing{})
			continue
		}
		mode, description := fs.FileMode(0o644), "dir"
		if entry.Exec {
			mode = 0o755
		}
		if !entry.Dir {
			description = fmt.Sprintf("%v %x", mode, entry.BLAKE3)
		}
		trees[len(trees)-1][strconv.Quote(string(entry.Name))] = description
	}
}

// differs describes one entry in which found differs from tree, "" if there is none.
func (found listing) differs(tree listing) string {
	both := maps.Clone(tree)
	maps.Copy(both, found)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		switch {
		case found[name] == tree[name]:
		case tree[name] == "":
			return name + " was added to it since it was extracted"
		case found[name] == "":
			return name + " in it was removed since it was extracted"
		default:
			return name + " in it was changed since it was extracted"
		}
	}
	return ""
}
