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

// A cachedBase is the newest commit of an upstream that an earlier fetch left in the cache.
// The next fetch, for any object, transfers only what is new. It is one entry of
// the cache: the objects of the commit with its whole tree, as [packfile.Pack] spools
// them. A fetch that builds on it copies the objects that it did not receive, and its
// pack then replaces the entry.
//
//   - A commit is stored only after its whole tree was found.
//   - The cache may lose or damage any entry at any time, and a process may die at
//     any point: an entry that cannot be read counts as missing. A cache that cannot
//     be used costs nothing but time.
//   - One fetch of an upstream runs at a time, across all processes that share the
//     cache: a fetch that has waited finds the commit of the fetch before it, or has
//     less to transfer.
type cachedBase struct {
	commit  object.ID      // zero when nothing is held
	objects *packfile.Pack // those of commit; nil when nothing is held

	cache  *artifact.Cache // nil when there is none, or it cannot be used
	key    string
	wanted object.ID // the object that was requested: commit, or a tag that leads to it
	draft  *artifact.Draft
	unlock func()
}

// A note describes a frozen pack, as JSON.
type note struct {
	ID     string `json:"id"`     // what was wanted: the commit, or a tag that leads to it
	Commit string `json:"commit"` // the pack holds its whole tree
}

// lock waits for other fetches of the upstream and returns what the cache holds
// afterwards. A held commit is not fetched again; with credentials of a provider the
// server is still contacted, to prove that they are valid.
func (n *remoteUpstream) lock(ctx context.Context) (*cachedBase, error) {
	b := &cachedBase{key: "git pool 3\x00" + n.scope}
	if n.providerIssued {
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

// load opens the entry of the cache. An entry that cannot be read counts as missing.
func (b *cachedBase) load() {
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
		b.dropObjects()
	}
}

// dropObjects closes what is held and continues as if there was none. It does not change
// the cache.
func (b *cachedBase) dropObjects() {
	if b.objects != nil {
		b.objects.Close()
	}
	b.objects, b.commit = nil, object.ID{}
}

// close closes what is held and releases the lock.
func (b *cachedBase) close() {
	b.dropObjects()
	b.discard()
	if b.unlock != nil {
		b.unlock()
	}
}

func (b *cachedBase) discard() {
	if b.draft != nil {
		b.draft.Discard()
		b.draft = nil
	}
}

// temp creates a spool in the cache. Only the spool created last can be kept.
func (b *cachedBase) temp() (*os.File, error) {
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

// complete checks that pack and the held objects together have the whole tree of the
// commit or tag id. It copies the objects that pack lacks and stores pack in the
// cache, in place of what was held. A failure to store it is not an error.
func (b *cachedBase) complete(ctx context.Context, pack *packfile.Pack, id object.ID) error {
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
		b.draft.Commit(b.key) // on error the old entry stays
	}
	return nil
}

// peel follows tags from id to the first object that is not a tag.
func peel(db object.Database, id object.ID) (object.ID, error) {
	wantType := object.Type(0)
	for range object.MaxTags + 1 {
		t, _, err := db.Stat(id)
		if err == nil && wantType != 0 && t != wantType {
			err = fmt.Errorf("%w: object %v is a %v, the tag says %v", object.ErrCorrupt, id, t, wantType)
		}
		if err != nil || t != object.Tag {
			return id, err
		}
		tag, err := object.ReadTag(db, id)
		if err != nil {
			return id, err
		}
		id, wantType = tag.Object, tag.Type
	}
	return id, fmt.Errorf("%w: more than %d tags point at each other", object.ErrCorrupt, object.MaxTags)
}

// A union is the [object.Database] of a received pack and of what is held. It records
// which objects it took from the latter.
type union struct {
	pack, base *packfile.Pack // base is nil when nothing is held
	held       map[object.ID]bool
}

// packWith returns the pack that has an object.
func (u *union) packWith(id object.ID) *packfile.Pack {
	if _, _, err := u.pack.Stat(id); err == nil || u.base == nil {
		return u.pack
	}
	if _, _, err := u.base.Stat(id); err == nil {
		u.held[id] = true
	}
	return u.base
}

// Stat implements [object.Database].
func (u *union) Stat(id object.ID) (object.Type, int64, error) { return u.packWith(id).Stat(id) }

// Open implements [object.Database].
func (u *union) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	return u.packWith(id).Open(id)
}

// mayHaveCaused reports whether the base may have caused err, so that a fetch without a
// base is worth a try.
func (b *cachedBase) mayHaveCaused(ctx context.Context, err error) bool {
	is := func(kind error) bool { return errors.Is(err, kind) }
	return b.objects != nil && ctx.Err() == nil && !b.isCacheWriteError(ctx, err) &&
		slices.ContainsFunc([]error{errIncomplete, object.ErrCorrupt, wire.ErrRemote, wire.ErrProtocol}, is) &&
		!slices.ContainsFunc([]error{wire.ErrUnreachable, wire.ErrAuth, wire.ErrNotFound, wire.ErrBusy}, is)
}

// isCacheWriteError reports whether err comes from writing to the cache, for example because
// the disk is full, so that a fetch without the cache is worth a try.
func (b *cachedBase) isCacheWriteError(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ctx.Err() == nil && (errors.Is(err, errCache) || ok && b.draft != nil && e.Path == b.draft.File().Name())
}
