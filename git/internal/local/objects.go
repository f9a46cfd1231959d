package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A place is where an object is in a pack.
type place struct {
	pack   *pack
	offset int64
}

// Stat implements [object.Database].
func (r *Repo) Stat(id object.ID) (t object.Type, size int64, err error) {
	at, loose, err := r.find(id)
	switch {
	case err != nil:
	case loose != nil:
		defer loose.Close()
		var z *inflater
		if t, size, z, err = r.openLoose(loose); err == nil {
			r.pool.Put(z)
		}
	default:
		t, size, err = r.statPacked(at)
	}
	return t, size, wrap(id, err)
}

// Open implements [object.Database]. The content fails with an error that wraps
// [object.ErrCorrupt], before its last byte, if it is not what id names.
func (r *Repo) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	t, size, content, err := r.open(id)
	if err == nil && size > r.max {
		content.Close()
		err = fmt.Errorf("it has %d bytes, more than the limit of %d", size, r.max)
	}
	if err != nil {
		return 0, 0, nil, wrap(id, err)
	}
	c := newChecked(id, t, size, content)
	if size == 0 {
		if err := c.check(); err != nil {
			c.Close()
			return 0, 0, nil, err
		}
	}
	return t, size, c, nil
}

func wrap(id object.ID, err error) error {
	if err != nil {
		err = fmt.Errorf("object %v: %w", id, err)
	}
	return err
}

// open opens an object without comparing it with its ID.
func (r *Repo) open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	at, loose, err := r.find(id)
	if err != nil {
		return 0, 0, nil, err
	}
	if loose != nil {
		t, size, z, err := r.openLoose(loose)
		if err != nil {
			loose.Close()
			return 0, 0, nil, err
		}
		return t, size, &stream{z, r, loose}, nil
	}
	it, err := at.pack.item(at.offset)
	if err != nil {
		return 0, 0, nil, err
	}
	if it.isDelta() {
		w, err := r.make(at)
		return w.typ, int64(len(w.data)), io.NopCloser(bytes.NewReader(w.data)), err
	}
	z := r.inflater()
	if err := z.reset(at.pack.section(it.data)); err != nil {
		return 0, 0, nil, err
	}
	return it.typ, it.size, &stream{z, r, nil}, nil
}

// find returns where an object is: in a pack or in a file of its own.
func (r *Repo) find(id object.ID) (place, *os.File, error) {
	for {
		at, searched, err := r.findPacked(id)
		if err != nil || at.pack != nil {
			return at, nil, err
		}
		for _, store := range r.stores {
			name := id.String()
			f, err := openFile(filepath.Join(store, name[:2], name[2:]))
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				return place{}, f, err
			}
		}
		// Objects move from files into packs, and packs into others.
		if open, err := r.scan(); err != nil || open == searched {
			if err == nil {
				err = fmt.Errorf("not in the repository: %w%s", fs.ErrNotExist, r.absent)
			}
			return place{}, nil, err
		}
	}
}

// findPacked returns where an object is in one of the packs that are open, and
// how many those are.
func (r *Repo) findPacked(id object.ID) (at place, searched int, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, p := range r.packs {
		if offset, ok, err := p.find(id); err != nil || ok {
			return place{p, offset}, len(r.packs), err
		}
	}
	return place{}, len(r.packs), nil
}

// looseTypes are the types by the word that an object in a file begins with.
var looseTypes = map[string]object.Type{
	"commit": object.Commit, "tree": object.Tree, "blob": object.Blob, "tag": object.Tag,
}

// openLoose reads the header of an object in a file: type, size, NUL.
func (r *Repo) openLoose(f *os.File) (object.Type, int64, *inflater, error) {
	z := r.inflater()
	if err := z.reset(f); err != nil {
		return 0, 0, nil, err
	}
	var head []byte
	var b [1]byte
	for len(head) < 32 {
		if _, err := io.ReadFull(z, b[:]); err != nil {
			return 0, 0, nil, damaged(err)
		}
		if b[0] == 0 {
			break
		}
		head = append(head, b[0])
	}
	word, digits, _ := strings.Cut(string(head), " ")
	size, err := strconv.ParseInt(digits, 10, 64)
	if looseTypes[word] == 0 || err != nil || size < 0 {
		return 0, 0, nil, fmt.Errorf("%w: it begins with %q", object.ErrCorrupt, head)
	}
	return looseTypes[word], size, z, nil
}
