package pool

import (
	"context"
	"crypto/rand"
	"os"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// merge replaces the layers of c by one with what the commits used last lead
// to. Where that cannot be, c is emptied: it must not grow for ever.
func (p *Pool) merge(ctx context.Context, c *chain, objects *Objects) {
	next, err := p.merged(ctx, c, objects)
	switch {
	case ctx.Err() != nil: // another time
	case err != nil:
		p.forget(c)
	default:
		p.drop(c.Layers)
		*c = *next
	}
}

func (p *Pool) merged(ctx context.Context, c *chain, objects *Objects) (*chain, error) {
	next := &chain{Commits: append([]held(nil), c.Commits[:min(len(c.Commits), kept)]...)}
	r := reach{ctx: ctx, db: objects, seen: map[object.ID]bool{}}
	for i := range next.Commits {
		next.Commits[i].Layers = 1
	}
	for _, h := range next.Commits {
		if err := r.held(h); err != nil {
			return nil, err
		}
	}
	l, err := p.copy(ctx, objects, r.ids)
	if err != nil {
		return nil, err
	}
	next.Layers = []layer{l}
	if err := p.save(next); err != nil {
		p.drop(next.Layers)
		return nil, err
	}
	return next, nil
}

// copy makes a layer of some objects.
func (p *Pool) copy(ctx context.Context, objects *Objects, ids []object.ID) (layer, error) {
	l := layer{Name: rand.Text()}
	draft, err := p.cache.Create()
	if err != nil {
		return l, err
	}
	defer draft.Discard()
	pack, err := packfile.Copy(ctx, objects, ids, packfile.Options{
		Temp:   func() (*os.File, error) { return draft.File(), nil },
		Format: objects.format(),
	})
	if err != nil {
		return l, err
	}
	defer pack.Close()
	if l.Size, err = pack.Freeze(); err != nil {
		return l, err
	}
	return l, draft.Commit(p.key(l.Name))
}

// A reach collects the objects that commits lead to, each once. The objects of
// a commit lie together, trees before what they hold.
type reach struct {
	ctx  context.Context
	db   object.Database
	seen map[object.ID]bool
	ids  []object.ID
}

// add reports whether id is new.
func (r *reach) add(id object.ID) bool {
	if r.seen[id] {
		return false
	}
	r.seen[id] = true
	r.ids = append(r.ids, id)
	return true
}

// held adds what is held: tags, a commit and its tree, and its history if that
// is held too.
func (r *reach) held(h held) error {
	id, err := object.ParseID(h.ID)
	if err != nil {
		return err
	}
	commit, err := peel(r.db, id, func(tag object.ID) { r.add(tag) })
	if err != nil {
		return err
	}
	for queue := []object.ID{commit}; len(queue) > 0; {
		id := queue[0]
		queue = queue[1:]
		if !r.add(id) {
			continue
		}
		c, err := object.ReadCommit(r.db, id)
		if err != nil {
			return err
		}
		if err := r.tree(c.Tree, 0); err != nil {
			return err
		}
		if h.Whole {
			queue = append(queue, c.Parents...)
		}
	}
	return nil
}

// tree adds a tree and all it holds. Its depth was checked when it came.
func (r *reach) tree(id object.ID, depth int) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if depth > object.MaxDepth || !r.add(id) {
		return nil
	}
	data, err := object.Read(r.db, id, object.Tree, object.MaxTree)
	if err != nil {
		return err
	}
	for e, err := range object.TreeEntries(data, id.Format()) {
		switch {
		case err != nil:
			return err
		case e.Mode.IsDir():
			err = r.tree(e.ID, depth+1)
		case e.Mode.FS()&os.ModeIrregular == 0: // the commit of a submodule is elsewhere
			r.add(e.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
