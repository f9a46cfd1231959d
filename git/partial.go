package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/pool"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// A partial fetch asks for the commit and its trees first, then for the files
// that decide what is packed (.sourceignore, .gitmodules, .gitattributes), if
// there are any, and last for all other blobs of what is packed. Each of the
// three is one request. Where a server does not take part, or most of the tree
// is needed anyway, the whole tree is fetched as if none of this existed.

// maxWants bounds the blobs of one request, about 50 bytes each. git
// http-backend takes requests of 10 MiB.
const maxWants = 100_000

// worthwhile is the part of a tree's files up to which it pays to ask for them
// one by one: a server takes longer to look them up than to send a whole tree.
const worthwhile = 0.9

// lean reports whether much of the tree is likely to be left out, so that it
// pays to ask for the trees first.
func (o *Origin) lean() bool {
	spec := &o.repo.Spec
	dirs, err := spec.Directories()
	return err == nil && dirs != nil || spec.Ignore != nil && cutsDirs(*spec.Ignore)
}

// cutsDirs reports whether an ignore text looks as if it excludes whole
// directories: it holds a pattern, not negated, that ends in a slash or whose
// last element has no dot, such as /*, vendor or docs/. Nothing depends on it
// but the number of requests.
func cutsDirs(ignore string) bool {
	for line := range strings.Lines(ignore) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && line[0] != '!' && !strings.Contains(line[strings.LastIndexByte(line, '/')+1:], ".") {
			return true
		}
	}
	return false
}

// prepare obtains the files that the layers above the tree read: ignore files
// of what is packed, and what describes submodules and LFS files.
func (c *content) prepare(ctx context.Context, tree fs.FS) error {
	db, ok := c.db.(lender)
	if !ok {
		return nil
	}
	spec := &c.origin.repo.Spec
	var w want
	err := w.walk(ctx, c.own, named(ignoreOf(c.origin.repo).File))
	if err == nil && spec.LFS { // attributes count from above and beside the listed directories too
		err = w.walk(ctx, tree, named(".gitattributes"))
	}
	if err == nil && spec.LFS {
		err = w.top(tree, ".lfsconfig")
	}
	if err == nil && spec.RecurseSubmodules {
		err = w.top(tree, modulesFile)
	}
	if err != nil {
		return err
	}
	return c.obtain(ctx, db, w.blobs, 0)
}

// named accepts the files with a name, wherever they are.
func named(base string) func(string) bool {
	return func(name string) bool { return path.Base(name) == base }
}

// supply obtains the files of view that a lean fetch left out. It refuses a
// view of more bytes than the limit.
func (c *content) supply(ctx context.Context, view fs.FS) error {
	db, ok := c.db.(lender)
	if !ok {
		return nil
	}
	var w want
	if err := w.walk(ctx, view, func(string) bool { return true }); err != nil {
		return err
	}
	if err := c.obtain(ctx, db, w.blobs, c.files); err != nil {
		return err
	}
	var total int64
	for id, times := range w.times {
		_, size, err := c.db.Stat(id)
		if err != nil {
			return err
		}
		total += size * times
	}
	return checkBytes(total+c.total.Bytes, c.origin.env.Limits) // of submodules until now
}

func (c *content) obtain(ctx context.Context, db lender, blobs []object.ID, of int64) error {
	note, err := db.obtain(ctx, blobs, of)
	if note != "" {
		c.notes = append(c.notes, note)
	}
	if err != nil {
		return fmt.Errorf("fetch the files of %s: %w", c.id, err)
	}
	return nil
}

// A want collects the blobs of files.
type want struct {
	blobs []object.ID
	times map[object.ID]int64 // how many files have the content
}

// walk adds the regular files of tree that choose accepts.
func (w *want) walk(ctx context.Context, tree fs.FS, choose func(name string) bool) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && choose(name) {
			w.add(d)
		}
		return err
	})
}

// top adds a file in the root of tree, if it is there.
func (w *want) top(tree fs.FS, name string) error {
	entries, err := fs.ReadDir(tree, ".")
	for _, e := range entries {
		if e.Name() == name {
			w.add(e)
		}
	}
	return err
}

func (w *want) add(d fs.DirEntry) {
	id, ok := object.EntryID(d)
	if !ok || !d.Type().IsRegular() {
		return
	}
	if w.times == nil {
		w.times = map[object.ID]int64{}
	}
	if w.times[id]++; w.times[id] == 1 {
		w.blobs = append(w.blobs, id)
	}
}

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
	db, _, err := n.fetch(ctx, wire.FetchRequest{Wants: []object.ID{commit}, Depth: 1, Filter: "blob:none"}, pool.Base{})
	if err != nil {
		return nil, err
	}
	return &partial{from: n, commit: commit, via: via, packs: []database{db}}, nil
}

// obtain implements lender.
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
	pack, _, err := p.from.receive(ctx, wire.FetchRequest{Wants: missing}, limits, pool.Base{})
	if err == nil {
		p.packs = append(p.packs, pack)
		if slices.ContainsFunc(missing, func(id object.ID) bool { return !p.holds(id) }) {
			err = errOmitted
		}
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

// errOmitted is an answer that lacks what was asked for.
var errOmitted = errors.New("the server left out objects that were asked for")

// declined reports whether err says that the server does not take part in a
// partial fetch, though it may well send everything.
func declined(err error) bool {
	for _, kind := range []error{wire.ErrUnsupported, wire.ErrUnreachable, wire.ErrRemote, wire.ErrProtocol, errOmitted} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
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
