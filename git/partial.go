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
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// maxWants bounds the blobs of one request, about 50 bytes each. git
// http-backend takes requests of 10 MiB.
const maxWants = 100_000

// maxPartialShare is the share of a tree's files up to which single files are requested.
// For more files a server takes longer to look them up than to send the whole tree.
const maxPartialShare = 0.9

// prefersPartialFetch reports whether much of the tree is likely to be left out, so that it pays to
// fetch the trees first. That is so with spec.sparseCheckout, or if spec.ignore seems
// to exclude whole directories: if it has a pattern, not negated, that ends in a
// slash or whose last element has no dot, such as /*, vendor or docs/. Only the
// number of requests depends on the result.
func (o *Origin) prefersPartialFetch() bool {
	spec := &o.repo.Spec
	if dirs, err := spec.Directories(); err == nil && dirs != nil {
		return true
	}
	if spec.Ignore == nil {
		return false
	}
	for line := range strings.Lines(*spec.Ignore) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && line[0] != '!' && !strings.Contains(line[strings.LastIndexByte(line, '/')+1:], ".") {
			return true
		}
	}
	return false
}

// A partialDatabase is a commit that was fetched without its blobs, with the blobs that were
// obtained since. The files that decide what is packed (.sourceignore, .gitmodules,
// .gitattributes) come first, if there are any, then all others that are packed. Each
// step is one request, over the first connection.
type partialDatabase struct {
	upstream *remoteUpstream
	commit   object.ID
	via      string
	packs    []database
}

// fetchPartial fetches a commit and its trees.
func (n *remoteUpstream) fetchPartial(ctx context.Context, commit object.ID, via string) (*partialDatabase, error) {
	if err := n.greet(ctx, false); err != nil {
		return nil, err
	}
	if r := n.remote; !r.WantsAny() || !r.Supports("filter") || !r.Supports("shallow") {
		return nil, wire.ErrUnsupported
	}
	q := wire.FetchRequest{Wants: []object.ID{commit}, Depth: 1, Filter: "blob:none"}
	pack, _, err := n.receive(ctx, q, packLimits(n.env.Limits, true), new(cachedBase))
	if err != nil {
		return nil, err
	}
	return &partialDatabase{n, commit, via, []database{pack}}, nil
}

// fetchBlobs fetches the missing blobs in one request. It fetches the whole tree instead,
// and returns a note, if the blobs are too many for one request, if they are most of
// the tree's files, whose number is of (0: not known), or if the upstream does not
// send single blobs.
func (p *partialDatabase) fetchBlobs(ctx context.Context, blobs []object.ID, of int64) (note string, err error) {
	lacks := func(id object.ID) bool { return p.packWith(id) == nil }
	missing := slices.DeleteFunc(slices.Clone(blobs), func(id object.ID) bool { return !lacks(id) })
	switch n := len(missing); {
	case n == 0:
		return "", nil
	case n > maxWants || of > 0 && float64(n) > maxPartialShare*float64(of):
		return p.fetchWholeTree(ctx, fmt.Sprintf("%d files are needed", n))
	}
	limits := packLimits(p.upstream.env.Limits, false)
	limits.Objects = int64(len(missing))
	pack, _, err := p.upstream.receive(ctx, wire.FetchRequest{Wants: missing}, limits, new(cachedBase))
	if err == nil {
		p.packs = append(p.packs, pack)
		if slices.ContainsFunc(missing, lacks) {
			err = errWrongObjects
		}
	}
	if limit, ok := errors.AsType[*packfile.LimitError](err); ok && limit.Limit == "Objects" {
		err = errWrongObjects
	}
	if isPartialUnsupported(err) {
		return p.fetchWholeTree(ctx, "the server does not send single files")
	}
	return "", err
}

// fetchWholeTree fetches the whole tree and returns a note that says why.
func (p *partialDatabase) fetchWholeTree(ctx context.Context, reason string) (note string, err error) {
	if err := p.Close(); err != nil {
		return "", err
	}
	p.packs = nil
	pack, notes, err := p.upstream.fetchCommit(ctx, p.commit, p.via, false)
	if err != nil {
		return "", err
	}
	p.packs = []database{pack}
	return strings.Join(append([]string{wholeTreeNote(reason)}, notes...), "; "), nil
}

func wholeTreeNote(reason string) string { return reason + ": the whole tree was transferred" }

// errWrongObjects reports an answer that lacks a requested object or holds others.
var errWrongObjects = errors.New("the server sends other objects than it was asked for")

// isPartialUnsupported reports whether err means that the server does not support partial
// fetches, though it may still send everything. An answer that breaks off in the
// middle does not mean that.
func isPartialUnsupported(err error) bool {
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Phase != wire.Fetch {
		return false
	}
	return slices.ContainsFunc([]error{wire.ErrUnsupported, wire.ErrUnreachable, wire.ErrRemote, wire.ErrProtocol, errWrongObjects},
		func(kind error) bool { return errors.Is(err, kind) })
}

// packWith returns the pack that has an object, nil if none has.
func (p *partialDatabase) packWith(id object.ID) database {
	for _, pack := range p.packs {
		if _, _, err := pack.Stat(id); err == nil {
			return pack
		}
	}
	return nil
}

// Stat implements [object.Database].
func (p *partialDatabase) Stat(id object.ID) (t object.Type, size int64, err error) {
	if pack := p.packWith(id); pack != nil {
		return pack.Stat(id)
	}
	return 0, 0, fmt.Errorf("object %v is not in the pack: %w", id, fs.ErrNotExist)
}

// Open implements [object.Database].
func (p *partialDatabase) Open(id object.ID) (t object.Type, size int64, content io.ReadCloser, err error) {
	if pack := p.packWith(id); pack != nil {
		return pack.Open(id)
	}
	return 0, 0, nil, fmt.Errorf("object %v is not in the pack: %w", id, fs.ErrNotExist)
}

// Close implements [io.Closer].
func (p *partialDatabase) Close() (err error) {
	for _, pack := range p.packs {
		err = errors.Join(err, pack.Close())
	}
	return err
}

// fetchConfigFiles fetches the files that decide what is packed: ignore files, and the files
// that describe submodules and LFS objects.
func (c *content) fetchConfigFiles(ctx context.Context) error {
	spec := &c.origin.repo.Spec
	ignoreFile := ignoreOf(c.origin.repo).File
	parts := []part{{c.ownTree, func(name string) bool { return path.Base(name) == ignoreFile }}}
	if spec.LFS { // attributes outside of the listed directories apply too
		parts = append(parts, part{c.tree, func(name string) bool { return path.Base(name) == ".gitattributes" || name == ".lfsconfig" }})
	}
	if spec.RecurseSubmodules {
		parts = append(parts, part{c.tree, func(name string) bool { return name == modulesFile }})
	}
	return c.fetchFiles(ctx, 0, parts...)
}

// A part selects the files of a view for which choose returns true.
type part struct {
	view   fs.FS
	choose func(name string) bool
}

// fetchFiles fetches files that a lean fetch left out; of is the number of files in the
// tree (0: not known). More bytes than the limit are an error.
func (c *content) fetchFiles(ctx context.Context, of int64, parts ...part) error {
	db := c.db.(*partialDatabase)
	var blobs []object.ID
	times := map[object.ID]int64{} // how many files have the content
	for _, p := range parts {
		err := fs.WalkDir(p.view, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil || !d.Type().IsRegular() || !p.choose(name) {
				return err
			}
			if tree, id := object.EntryID(d); tree == c.tree {
				if times[id]++; times[id] == 1 {
					blobs = append(blobs, id)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	note, err := db.fetchBlobs(ctx, blobs, of)
	if note != "" {
		c.notes = append(c.notes, note)
	}
	total := c.total.Bytes // so far, those of submodules
	for id, n := range times {
		if err == nil {
			var size int64
			_, size, err = db.Stat(id)
			total += size * n
		}
	}
	if err != nil {
		return fmt.Errorf("fetch the files of %s: %w", c.id, err)
	}
	return checkBytes(total, c.origin.env.Limits)
}
