// Package pool keeps what fetches from one upstream brought in a cache, so that
// the next one, for whatever object, brings only what is new.
//
// A pool holds commits, each with its whole tree. Their objects lie in layers,
// a layer being what one fetch brought: an entry of the cache with the objects
// as [packfile.Pack] spools them, inflated and checked against their IDs. A
// manifest, another entry, lists the layers in the order in which they came and
// the commits with the number of layers that each needs. Now and then the
// layers are merged into one and what no recent commit leads to is dropped.
//
// What a caller may rely on:
//
//   - A commit counts as held only after its whole tree was found. A partial
//     fetch has no place here.
//   - The cache may forget or damage anything at any time, and a process may
//     die anywhere: what cannot be read back, and all that was built upon it, is
//     not held and fetched again. A cache that cannot be used costs nothing but
//     time.
//   - One fetch at a time, of all processes that share the cache: whoever waits
//     for it finds its commit, or a smaller difference to fetch.
//   - Pools of different scopes share nothing.
package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// A Pool holds commits of one upstream, and tags that led to them. It is safe for concurrent use.
type Pool struct {
	cache *artifact.Cache
	scope string
}

// New returns the pool of a scope: a text that differs wherever the upstream or
// those who may read it do.
func New(cache *artifact.Cache, scope string) *Pool { return &Pool{cache, scope} }

// A Commit is one that is held.
type Commit struct {
	ID    object.ID
	Whole bool // with all its history, not with its tree alone
}

// A Base is what a fetch can build on.
type Base struct {
	Commits []Commit                 // the one used last first; nil when there are none
	Objects object.Database          // their objects and more; nil when there are none
	Temp    func() (*os.File, error) // creates a spool; the pack whose spool was created last is kept; nil: none is
}

// A Fetch brings a commit, or a tag with its commit, with its tree, whole tells with its history as well,
// except for what the base has. The pack is complete, the union of the two too.
type Fetch func(ctx context.Context, base Base) (pack *packfile.Pack, whole bool, err error)

// Obtain returns a database with the commit or tag id and the whole tree that it
// leads to, and fetches what is missing. Errors are those of fetch, and those of ctx.
func (p *Pool) Obtain(ctx context.Context, id object.ID, fetch Fetch) (*Objects, error) {
	unlock, err := p.cache.Lock(ctx, p.key("lock"))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, err
	default:
		return alone(ctx, fetch)
	}
	defer unlock()
	c := p.load()
	if held := p.find(c, id); held != nil {
		return held, nil
	}
	objects, err := p.extend(ctx, c, p.base(c), id, fetch)
	if err != nil && len(c.Layers) > 0 && doubtful(ctx, err) {
		fresh := new(chain)
		if objects, err = p.extend(ctx, fresh, nil, id, fetch); err == nil {
			p.drop(c.Layers)
			c = fresh
		}
	}
	if errors.Is(err, errSpool) && ctx.Err() == nil {
		return alone(ctx, fetch)
	}
	if err == nil && c.crowded() {
		p.merge(ctx, c, objects)
	}
	return objects, err
}

// Warm reports whether the pool holds any commits, as far as the manifest tells.
func (p *Pool) Warm() bool { return len(p.load().Commits) > 0 }

// alone fetches as if there were no pool: the cache cannot be written to.
func alone(ctx context.Context, fetch Fetch) (*Objects, error) {
	pack, _, err := fetch(ctx, Base{})
	if err != nil {
		return nil, err
	}
	return new(Objects).with(pack), nil
}

var (
	errIncomplete = errors.New("the server left out what it had to send")
	errUnfit      = errors.New("the commit cannot be used") // whatever it is fetched with
	errSpool      = errors.New("write to the cache")
)

// doubtful reports whether a fetch may have failed because of what it was
// based on, so that one without a base is worth a try.
func doubtful(ctx context.Context, err error) bool {
	for _, not := range []error{errUnfit, errSpool, wire.ErrUnreachable, wire.ErrAuth, wire.ErrNotFound, wire.ErrBusy} {
		if errors.Is(err, not) {
			return false
		}
	}
	return ctx.Err() == nil && (errors.Is(err, errIncomplete) || errors.Is(err, object.ErrCorrupt) ||
		errors.Is(err, wire.ErrRemote) || errors.Is(err, wire.ErrProtocol))
}

// extend fetches id on the base, which it takes over, and adds what came to c.
func (p *Pool) extend(ctx context.Context, c *chain, base *Objects, id object.ID, fetch Fetch) (*Objects, error) {
	from := Base{}
	if base != nil {
		from.Commits, from.Objects = c.commits(), base
	}
	s := spool{cache: p.cache}
	defer s.discard()
	from.Temp = s.create
	pack, whole, err := fetch(ctx, from)
	if err != nil {
		base.Close()
		return nil, s.blame(err)
	}
	if base != nil && base.format() != pack.Format() { // another repository in the place of the old one
		base.Close()
		p.forget(c)
		base = nil
	}
	objects := base.with(pack)
	commit, err := complete(ctx, objects, id)
	if err != nil {
		objects.Close()
		return nil, err
	}
	if s.draft != nil {
		p.keep(c, pack, s.draft, held{ID: id.String(), Commit: commit.String(), Whole: whole})
	}
	return objects, nil
}

// A spool creates drafts for the packs of one fetch; the last is the one that counts.
type spool struct {
	cache *artifact.Cache
	draft *artifact.Draft
}

func (s *spool) create() (*os.File, error) {
	s.discard()
	draft, err := s.cache.Create()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSpool, err)
	}
	s.draft = draft
	return draft.File(), nil
}

func (s *spool) discard() {
	if s.draft != nil {
		s.draft.Discard()
	}
}

// blame marks an error of the file, such as that the disk is full.
func (s *spool) blame(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok && s.draft != nil && e.Path == s.draft.File().Name() {
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	return err
}

// keep makes a pack the last layer of c. When that fails c is as it was.
func (p *Pool) keep(c *chain, pack *packfile.Pack, draft *artifact.Draft, h held) {
	size, err := pack.Freeze()
	if err != nil {
		return
	}
	l := layer{Name: rand.Text(), Size: size}
	if draft.Commit(p.key(l.Name)) != nil {
		return
	}
	next := c.with(l, h)
	if p.save(next) != nil {
		p.cache.Remove(p.key(l.Name))
		return
	}
	*c = *next
}

// complete checks that all that id leads to can be read, and returns its commit.
func complete(ctx context.Context, db *Objects, id object.ID) (object.ID, error) {
	id, err := peel(db, id, func(object.ID) {})
	var commit *object.CommitData
	if err == nil {
		commit, err = object.ReadCommit(db, id)
	}
	if err == nil {
		_, err = db.Measure(ctx, commit.Tree)
	}
	switch {
	case err == nil:
		return id, nil
	case errors.Is(err, fs.ErrNotExist):
		return id, fmt.Errorf("%w: %w", errIncomplete, err)
	}
	return id, fmt.Errorf("%w: %w", errUnfit, err)
}

// peel returns the commit that id leads to, and tells of the tags on the way.
func peel(db object.Database, id object.ID, met func(tag object.ID)) (object.ID, error) {
	for range object.MaxTags {
		t, _, err := db.Stat(id)
		if t != object.Tag {
			return id, err
		}
		tag, err := object.ReadTag(db, id)
		if err != nil {
			return id, err
		}
		met(id)
		id = tag.Object
	}
	return id, fmt.Errorf("%w: more than %d tags lead to each other", object.ErrCorrupt, object.MaxTags)
}

// key returns the key of a thing of this pool.
func (p *Pool) key(name string) string { return "git pool 1\x00" + p.scope + "\x00" + name }
