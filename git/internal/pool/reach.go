package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// A reach walks over what a commit leads to, each object once. It is the
// [object.Database] of what was fetched and what was held.
type reach struct {
	ctx  context.Context
	pack *packfile.Pack
	base *packfile.Pack // nil when nothing was held
	seen map[object.ID]bool
	held []object.ID // what the base has and the pack lacks
}

// Stat implements [object.Database].
func (r *reach) Stat(id object.ID) (object.Type, int64, error) {
	t, size, err := r.pack.Stat(id)
	if errors.Is(err, fs.ErrNotExist) && r.base != nil {
		return r.base.Stat(id)
	}
	return t, size, err
}

// Open implements [object.Database].
func (r *reach) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	t, size, content, err := r.pack.Open(id)
	if errors.Is(err, fs.ErrNotExist) && r.base != nil {
		return r.base.Open(id)
	}
	return t, size, content, err
}

// add reports whether id was not met before. It must be of type t.
func (r *reach) add(id object.ID, t object.Type) (bool, error) {
	if r.seen[id] {
		return false, nil
	}
	if r.ctx.Err() != nil {
		return false, context.Cause(r.ctx)
	}
	got, _, err := r.Stat(id)
	if err == nil && got != t {
		err = fmt.Errorf("%w: object %v is a %v, want a %v", object.ErrCorrupt, id, got, t)
	}
	if err != nil {
		return false, err
	}
	r.seen[id] = true
	if _, _, err := r.pack.Stat(id); err != nil {
		r.held = append(r.held, id)
	}
	return true, nil
}

// commit walks over tags, a commit and its tree, and with whole set over its
// history. It returns the commit; history is false where that has holes.
func (r *reach) commit(id object.ID, whole bool) (commit object.ID, history bool, err error) {
	for n := 0; ; n++ {
		if t, _, err := r.Stat(id); err != nil || t != object.Tag {
			break
		}
		if n == object.MaxTags {
			return id, false, fmt.Errorf("%w: more than %d tags lead to each other", object.ErrCorrupt, object.MaxTags)
		}
		tag, err := object.ReadTag(r, id)
		if err == nil {
			_, err = r.add(id, object.Tag)
		}
		if err != nil {
			return id, false, err
		}
		id = tag.Object
	}
	parents, err := r.one(id)
	if err != nil {
		return id, false, err
	}
	for whole && len(parents) > 0 {
		more, err := r.one(parents[0])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return id, false, nil
		case err != nil:
			return id, false, err
		}
		parents = append(parents[1:], more...)
	}
	return id, whole, nil
}

// one walks over a commit and its tree and returns its parents.
func (r *reach) one(id object.ID) (parents []object.ID, err error) {
	if fresh, err := r.add(id, object.Commit); err != nil || !fresh {
		return nil, err
	}
	c, err := object.ReadCommit(r, id)
	if err == nil {
		err = r.tree(c.Tree, 1)
	}
	if err != nil {
		return nil, err
	}
	return c.Parents, nil
}

// tree walks over a tree and all it holds. The commit of a submodule is elsewhere.
func (r *reach) tree(id object.ID, depth int) error {
	if depth > object.MaxDepth {
		return fmt.Errorf("%w: more than %d folders in each other", object.ErrCorrupt, object.MaxDepth)
	}
	if fresh, err := r.add(id, object.Tree); err != nil || !fresh {
		return err
	}
	data, err := object.Read(r, id, object.Tree, object.MaxTree)
	if err != nil {
		return err
	}
	for e, err := range object.TreeEntries(data, id.Format()) {
		switch {
		case err != nil:
		case e.Mode.IsDir():
			err = r.tree(e.ID, depth+1)
		case e.Mode.FS()&os.ModeIrregular == 0:
			_, err = r.add(e.ID, object.Blob)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
