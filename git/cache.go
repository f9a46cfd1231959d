package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// A base is the newest commit of an upstream that an earlier fetch left in the
// cache, so that the next one, of whatever object, brings only what is new. It is
// one entry of the cache: the objects of the commit with its whole tree, as
// [packfile.Pack] spools them. What a fetch builds on it is completed by copies of
// the objects that it did not bring, and takes its place.
//
//   - A commit is held only after its whole tree was found.
//   - The cache may forget or damage anything at any time, and a process may die
//     anywhere: what cannot be read back is not held. A cache that cannot be used
//     costs nothing but time.
//   - One fetch at a time, of all processes that share the cache: a fetch that
//     waits finds the commit of the one before, or a smaller difference to fetch.
type base struct {
	commit  object.ID      // zero when nothing is held
	objects *packfile.Pack // those of commit; nil when nothing is held

	cache  *artifact.Cache // nil when there is none, or it cannot be used
	key    string
	wanted object.ID // what commit was fetched by: itself, or a tag that leads to it
	draft  *artifact.Draft
	unlock func()
}

// A note tells what a frozen pack holds, as JSON.
type note struct {
	ID     string `json:"id"`     // what was wanted: the commit, or a tag that leads to it
	Commit string `json:"commit"` // with its tree
}

// lock waits for other fetches of the upstream and returns what the cache holds then. A
// held commit is not fetched again; with credentials of a provider the server is
// still contacted, to prove that they are valid.
func (n *network) lock(ctx context.Context) (*base, error) {
	b := &base{key: "git pool 3\x00" + n.scope}
	if n.lent {
		if err := n.greet(ctx, true); err != nil {
			return nil, err
		}
	}
	unlock, err := n.env.Cache.Lock(ctx, b.key+"\x00lock")
	switch {
	case err == nil:
		b.cache, b.unlock = n.env.Cache, unlock
		b.load()
	case ctx.Err() != nil:
		return nil, err
	}
	return b, nil
}

// load opens what is held. What cannot be read is not.
func (b *base) load() {
	e, err := b.cache.Open(b.key)
	if err != nil {
		return
	}
	pack, text, err := packfile.Thaw(e)
	if err != nil {
		e.Close()
		return
	}
	var n note
	b.objects = pack
	if err = json.Unmarshal(text, &n); err == nil {
		b.wanted, err = object.ParseID(n.ID)
	}
	if err == nil {
		b.commit, err = object.ParseID(n.Commit)
	}
	if err != nil {
		b.forget()
	}
}

// forget goes on as if nothing was held. The cache is left alone.
func (b *base) forget() {
	if b.objects != nil {
		b.objects.Close()
	}
	b.objects, b.commit = nil, object.ID{}
}

// close ends the use of what is held and gives the lock back.
func (b *base) close() {
	b.forget()
	b.discard()
	if b.unlock != nil {
		b.unlock()
	}
}

func (b *base) discard() {
	if b.draft != nil {
		b.draft.Discard()
		b.draft = nil
	}
}

// temp creates a spool. The pack whose spool was created last can be kept.
func (b *base) temp() (*os.File, error) {
	b.discard()
	draft, err := b.cache.Create()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCache, err)
	}
	b.draft = draft
	return draft.File(), nil
}

var (
	errIncomplete = errors.New("the server left out what it had to send")
	errCache      = errors.New("write to the cache")
)

// complete adds to pack what it lacks of the commit or tag id and is held, checks
// that all is there, and holds that in place of what was held. That something
// cannot be kept is no error.
func (b *base) complete(ctx context.Context, pack *packfile.Pack, id object.ID) error {
	u := &union{pack, b.objects, map[object.ID]bool{}}
	commit, err := peel(u, id)
	var c *object.CommitData
	if err == nil {
		c, err = object.ReadCommit(u, commit)
	}
	if err == nil {
		_, err = object.Measure(ctx, u, c.Tree, false)
	}
	if isAbsent(err) {
		err = fmt.Errorf("%w: %w", errIncomplete, err)
	}
	if err == nil && len(u.held) > 0 {
		err = pack.Add(ctx, b.objects, slices.Collect(maps.Keys(u.held)))
	}
	if err != nil || b.draft == nil {
		return err
	}
	text, err := json.Marshal(note{id.String(), commit.String()})
	if err == nil && pack.Freeze(text) == nil {
		b.draft.Commit(b.key) // or else what was held stays
	}
	return nil
}

// peel returns what a tag leads to in the end, and other objects as they are.
func peel(db object.Database, id object.ID) (object.ID, error) {
	said := object.Type(0)
	for range object.MaxTags + 1 {
		t, _, err := db.Stat(id)
		if err == nil && said != 0 && t != said {
			err = fmt.Errorf("%w: object %v is a %v, the tag says %v", object.ErrCorrupt, id, t, said)
		}
		if err != nil || t != object.Tag {
			return id, err
		}
		tag, err := object.ReadTag(db, id)
		if err != nil {
			return id, err
		}
		id, said = tag.Object, tag.Type
	}
	return id, fmt.Errorf("%w: more than %d tags point at each other", object.ErrCorrupt, object.MaxTags)
}

// A union is the [object.Database] of what was fetched and of what is held. It
// notes what it took from the latter.
type union struct {
	pack, base *packfile.Pack // base is nil when nothing is held
	held       map[object.ID]bool
}

// from returns the pack that has an object.
func (u *union) from(id object.ID) *packfile.Pack {
	if _, _, err := u.pack.Stat(id); err == nil || u.base == nil {
		return u.pack
	}
	if _, _, err := u.base.Stat(id); err == nil {
		u.held[id] = true
	}
	return u.base
}

// Stat implements [object.Database].
func (u *union) Stat(id object.ID) (object.Type, int64, error) { return u.from(id).Stat(id) }

// Open implements [object.Database].
func (u *union) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	return u.from(id).Open(id)
}

// doubtful reports whether a fetch may have failed because of what it was based
// on, so that one without a base is worth a try.
func (b *base) doubtful(ctx context.Context, err error) bool {
	is := func(kind error) bool { return errors.Is(err, kind) }
	return b.objects != nil && ctx.Err() == nil && !b.unwritable(ctx, err) &&
		slices.ContainsFunc([]error{errIncomplete, object.ErrCorrupt, wire.ErrRemote, wire.ErrProtocol}, is) &&
		!slices.ContainsFunc([]error{wire.ErrUnreachable, wire.ErrAuth, wire.ErrNotFound, wire.ErrBusy}, is)
}

// unwritable reports whether err is that of a file of the cache, such as that
// the disk is full, so that a fetch that does without it is worth a try.
func (b *base) unwritable(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ctx.Err() == nil && (errors.Is(err, errCache) || ok && b.draft != nil && e.Path == b.draft.File().Name())
}
