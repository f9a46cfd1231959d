package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/pool"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// maxWants bounds the blobs of one request, about 50 bytes each. git
// http-backend takes requests of 10 MiB.
const maxWants = 100_000

// worthwhile is the part of a tree's files up to which it pays to ask for them
// one by one: a server takes longer to look them up than to send a whole tree.
const worthwhile = 0.9

// partial is a commit that was fetched without its blobs, and what was
// obtained of them since.
type partial struct {
	from   *network
	commit object.ID
	via    string
	packs  []database
}

// partial fetches a commit and its trees.
func (n *network) partial(ctx context.Context, commit object.ID, via string) (database, error) {
	r, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	if !r.WantsAny() || !r.Supports("filter") || !r.Supports("shallow") {
		return nil, wire.ErrUnsupported
	}
	q := wire.FetchRequest{Wants: []object.ID{commit}, Depth: 1, Filter: "blob:none"}
	db, _, err := n.receive(ctx, q, packLimits(n.env.Limits, true), new(pool.Base))
	if err != nil {
		return nil, err
	}
	return &partial{from: n, commit: commit, via: via, packs: []database{db}}, nil
}

// obtain implements partialDatabase.
func (p *partial) obtain(ctx context.Context, blobs []object.ID, of int64) (note string, err error) {
	missing := slices.DeleteFunc(slices.Clone(blobs), p.holds)
	switch n := len(missing); {
	case n == 0:
		return "", nil
	case n > maxWants || of > 0 && float64(n) > worthwhile*float64(of):
		return p.complete(ctx, fmt.Sprintf("%d files are needed", n))
	}
	limits := packLimits(p.from.env.Limits, false)
	limits.Objects = int64(len(missing))
	pack, _, err := p.from.receive(ctx, wire.FetchRequest{Wants: missing}, limits, new(pool.Base))
	if err == nil {
		p.packs = append(p.packs, pack)
		if slices.ContainsFunc(missing, func(id object.ID) bool { return !p.holds(id) }) {
			err = errOther
		}
	}
	if limit, ok := errors.AsType[*packfile.LimitError](err); ok && limit.Limit == "Objects" {
		err = errOther
	}
	if declined(err) {
		return p.complete(ctx, "the server does not send single files")
	}
	return "", err
}

// complete fetches the whole tree after all, and says why.
func (p *partial) complete(ctx context.Context, why string) (note string, err error) {
	if err := p.Close(); err != nil {
		return "", err
	}
	p.packs = nil
	db, notes, err := p.from.whole(ctx, p.commit, p.via)
	if err != nil {
		return "", err
	}
	p.packs = []database{db}
	return strings.Join(append([]string{wholeTree(why)}, notes...), "; "), nil
}

func wholeTree(why string) string { return why + ": the whole tree was transferred" }

// errOther is an answer that lacks what was asked for, or holds more.
var errOther = errors.New("the server sends other objects than it was asked for")

// declined reports whether err says that the server does not take part in a
// partial fetch, though it may well send everything. An answer that breaks off
// in the middle says nothing of that sort.
func declined(err error) bool {
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Phase != wire.Fetch {
		return false
	}
	return slices.ContainsFunc([]error{wire.ErrUnsupported, wire.ErrUnreachable, wire.ErrRemote, wire.ErrProtocol, errOther},
		func(kind error) bool { return errors.Is(err, kind) })
}

func (p *partial) holds(id object.ID) bool {
	_, _, err := p.Stat(id)
	return err == nil
}

// Stat implements [object.Database].
func (p *partial) Stat(id object.ID) (t object.Type, size int64, err error) {
	err = errClosed
	for _, db := range p.packs {
		if t, size, err = db.Stat(id); err == nil || !isAbsent(err) {
			return t, size, err
		}
	}
	return 0, 0, err
}

// Open implements [object.Database].
func (p *partial) Open(id object.ID) (t object.Type, size int64, content io.ReadCloser, err error) {
	err = errClosed
	for _, db := range p.packs {
		if t, size, content, err = db.Open(id); err == nil || !isAbsent(err) {
			return t, size, content, err
		}
	}
	return 0, 0, nil, err
}

var errClosed = fmt.Errorf("object database: %w", fs.ErrClosed)

// Close implements [io.Closer].
func (p *partial) Close() (err error) {
	for _, db := range p.packs {
		err = errors.Join(err, db.Close())
	}
	return err
}
