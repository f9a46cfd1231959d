// Package pool keeps the newest commit that was fetched from one upstream in a
// cache, so that the next fetch, of whatever object, brings only what is new.
//
// A pool is one entry of the cache: the objects of a commit with its whole tree,
// as [packfile.Pack] spools them, inflated and checked against their IDs. What a
// fetch builds on it is completed by copies of the objects that it did not bring,
// and takes its place.
//
// What a caller may rely on:
//
//   - A commit counts as held only after its whole tree was found. A partial
//     fetch has no place here.
//   - The cache may forget or damage anything at any time, and a process may die
//     anywhere: what cannot be read back is not held and fetched again. A cache
//     that cannot be used costs nothing but time.
//   - One fetch at a time, of all processes that share the cache: who waits for
//     it finds its commit, or a smaller difference to fetch.
//   - Pools of different scopes share nothing.
package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// A Pool holds a commit of one upstream, and the tags that led to it. It is safe for concurrent use.
type Pool struct {
	cache *artifact.Cache
	key   string
}

// New returns the pool of a scope: a text that differs wherever the upstream or
// those who may read it do.
func New(cache *artifact.Cache, scope string) *Pool {
	return &Pool{cache, "git pool 2\x00" + scope}
}

// A Base is what a pool holds, to fetch on. The lock of the pool is held until
// it is closed.
type Base struct {
	Commit  object.ID      // zero when nothing is held
	Whole   bool           // Commit is held with all its history, not with its tree alone
	Objects *packfile.Pack // those of Commit; nil when nothing is held

	pool   *Pool // nil when the cache cannot be used
	wanted object.ID
	draft  *artifact.Draft
	unlock func()
}

// A note tells what a frozen pack holds, as JSON.
type note struct {
	ID     string `json:"id"`     // what was wanted: the commit, or a tag that leads to it
	Commit string `json:"commit"` // with its tree
	Whole  bool   `json:"whole,omitempty"`
}

// Lock waits for other fetches of the upstream and returns what is held then.
// The only error is that of ctx.
func (p *Pool) Lock(ctx context.Context) (*Base, error) {
	unlock, err := p.cache.Lock(ctx, p.key+"\x00lock")
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, err
	default:
		return new(Base), nil
	}
	b := &Base{pool: p, unlock: unlock}
	b.load()
	return b, nil
}

// load opens what is held. What cannot be read is not.
func (b *Base) load() {
	e, err := b.pool.cache.Open(b.pool.key)
	if err != nil {
		return
	}
	pack, text, err := packfile.Thaw(e)
	if err != nil {
		e.Close()
		return
	}
	var n note
	err = json.Unmarshal(text, &n)
	if err == nil {
		b.wanted, err = object.ParseID(n.ID)
	}
	if err == nil {
		b.Commit, err = object.ParseID(n.Commit)
	}
	if err != nil {
		pack.Close()
		return
	}
	b.Objects, b.Whole = pack, n.Whole
}

// Take returns the objects if id is the commit that is held or the tag that it
// was fetched by, and nil otherwise. The caller closes them.
func (b *Base) Take(id object.ID) *packfile.Pack {
	if b.Objects == nil || id != b.Commit && id != b.wanted {
		return nil
	}
	pack := b.Objects
	b.Objects = nil
	return pack
}

// Forget goes on as if nothing was held. The cache is left alone.
func (b *Base) Forget() {
	if b.Objects != nil {
		b.Objects.Close()
	}
	b.Objects, b.Commit, b.Whole = nil, object.ID{}, false
}

// Close ends the use of what is held and gives the lock back.
func (b *Base) Close() {
	b.Forget()
	b.discard()
	if b.unlock != nil {
		b.unlock()
	}
}

func (b *Base) discard() {
	if b.draft != nil {
		b.draft.Discard()
		b.draft = nil
	}
}

// Temp returns what creates spools, nil when the cache cannot be used. The pack
// whose spool was created last can be kept.
func (b *Base) Temp() func() (*os.File, error) {
	if b.pool == nil {
		return nil
	}
	return func() (*os.File, error) {
		b.discard()
		draft, err := b.pool.cache.Create()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errCache, err)
		}
		b.draft = draft
		return draft.File(), nil
	}
}

var (
	errIncomplete = errors.New("the server left out what it had to send")
	errUnfit      = errors.New("the commit cannot be used") // whatever it is fetched with
	errCache      = errors.New("write to the cache")
)

// Complete adds to pack what it lacks of the commit or tag id and is held, checks
// that all is there, and holds that in place of what was held. whole tells that the
// history was fetched as well. That something cannot be kept is no error.
func (b *Base) Complete(ctx context.Context, pack *packfile.Pack, id object.ID, whole bool) error {
	r := reach{ctx: ctx, pack: pack, base: b.Objects, seen: map[object.ID]bool{}}
	commit, whole, err := r.commit(id, whole)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", errIncomplete, err)
	default:
		return fmt.Errorf("%w: %w", errUnfit, err)
	}
	if len(r.held) > 0 {
		if err := pack.Add(ctx, b.Objects, r.held); err != nil {
			return err
		}
	}
	if b.draft == nil {
		return nil
	}
	text, err := json.Marshal(note{id.String(), commit.String(), whole})
	if err == nil && pack.Freeze(text) == nil {
		b.draft.Commit(b.pool.key) // or else what was held stays
	}
	return nil
}

// Doubtful reports whether a fetch may have failed because of what it was based
// on, so that one without a base is worth a try.
func (b *Base) Doubtful(ctx context.Context, err error) bool {
	if b.Objects == nil || b.Unwritable(ctx, err) {
		return false
	}
	for _, not := range []error{errUnfit, wire.ErrUnreachable, wire.ErrAuth, wire.ErrNotFound, wire.ErrBusy} {
		if errors.Is(err, not) {
			return false
		}
	}
	return ctx.Err() == nil && (errors.Is(err, errIncomplete) || errors.Is(err, object.ErrCorrupt) ||
		errors.Is(err, wire.ErrRemote) || errors.Is(err, wire.ErrProtocol))
}

// Unwritable reports whether err is that of a file of the cache, such as that
// the disk is full, so that a fetch that does without it is worth a try.
func (b *Base) Unwritable(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ctx.Err() == nil && (errors.Is(err, errCache) || ok && b.draft != nil && e.Path == b.draft.File().Name())
}
