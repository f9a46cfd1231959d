package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// The limits of a tree where [source.Env] sets none.
const (
	maxEntries   = 4_000_000
	maxBytes     = 16 << 30
	maxFileBytes = 1 << 30
)

// content is one fetched commit.
type content struct {
	origin *Origin
	rev    source.Revision
	sel    selection
	tag    object.Ref // the tag whose signature is required, if any
	db     database
	id     object.ID
	commit *object.CommitData
	tree   *object.FS
	total  object.Totals // of the trees of the commit and of its submodules
	files  int64         // in the tree of the commit
	notes  []string

	links    []gitlink       // the submodules in ownTree
	module   *module         // of a submodule: the first place where it is needed
	verified bool            // Verify has succeeded
	rules    *artifact.Rules // nil until the tree was composed
	ownTree  fs.FS           // the packed part of the commit's own tree, before the ignore rules
	fullTree fs.FS           // ownTree with all includes, before the ignore rules
	closers  []io.Closer     // what fullTree reads from, besides db

	repositories map[*object.FS]func(context.Context) (upstream, error) // connects to the repository of a tree, for LFS objects
}

// newContent returns the content of the commit id, whose trees db holds. It takes
// ownership of db and closes it on error.
func newContent(ctx context.Context, o *Origin, db database, id object.ID, notes []string) (*content, error) {
	c := &content{origin: o, db: db, id: id, notes: notes}
	var err error
	if c.commit, err = object.ReadCommit(db, id); err == nil {
		// A few small trees that hold each other can describe 2¹⁰⁰ files. A partial
		// database does not know the sizes of files before it has them: see fetchFiles.
		_, lean := db.(*partialDatabase)
		c.total, err = object.Measure(ctx, db, c.commit.Tree, lean)
	}
	if err == nil {
		err = checkTotals(c.total, o.env.Limits)
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("commit %s: %w", id, err)
	}
	c.files = c.total.Files
	c.tree = object.TreeFS(db, c.commit.Tree)
	c.repositories = map[*object.FS]func(context.Context) (upstream, error){c.tree: o.openUpstream}
	return c, nil
}

// checkTotals refuses a tree that is larger than the limits.
func checkTotals(total object.Totals, limits artifact.Limits) error {
	if limit := cmp.Or(int64(limits.Entries), maxEntries); limit > 0 && total.Entries > limit {
		return fmt.Errorf("the tree holds %d entries: more than the limit of %d, raise it if that is right", total.Entries, limit)
	}
	return checkBytes(total.Bytes, limits)
}

// checkBytes refuses more bytes of files than the limit.
func checkBytes(n int64, limits artifact.Limits) error {
	if limit := cmp.Or(limits.Bytes, maxBytes); limit > 0 && n > limit {
		return fmt.Errorf("the tree holds %d bytes: more than the limit of %d, raise it if that is right", n, limit)
	}
	return nil
}

// compose builds the tree that is packed, once. It acts on nothing that the commit
// says before the signature is verified.
func (c *content) compose(ctx context.Context) error {
	if c.rules != nil {
		return nil
	}
	if !c.verified {
		if _, err := c.Verify(ctx); err != nil {
			return err
		}
	}
	spec := &c.origin.repo.Spec
	_, lean := c.db.(*partialDatabase)
	var err error
	if c.ownTree = c.tree; len(spec.SparseCheckout) > 0 {
		c.ownTree, err = c.origin.sparseView(ctx, c.tree)
	}
	if err == nil && lean {
		err = c.fetchConfigFiles(ctx)
	}
	if err == nil && c.total.Modules > 0 {
		err = c.mountSubmodules(ctx)
	}
	if c.fullTree = c.ownTree; err == nil && len(spec.Include)+len(c.rev.Inputs) > 0 {
		err = c.include(ctx)
	}
	if err != nil {
		return err
	}
	rules, err := ignoreOf(c.origin.repo).Compile(ctx, c.fullTree)
	if err != nil {
		if errors.Is(err, object.ErrCorrupt) || isAbsent(err) { // the tree cannot be read at all
			return err
		}
		return &source.StepError{Step: source.StepFetch, Reason: "SourceIgnoreError", Err: err}
	}
	if len(c.links) > 0 && !spec.RecurseSubmodules {
		c.noteEmptySubmodules(ctx, rules)
	}
	if lean {
		all := part{rules.View(ctx, c.ownTree), func(string) bool { return true }}
		if err := c.fetchFiles(ctx, c.files, all); err != nil {
			return err
		}
	}
	if err := c.replaceLFSPointers(ctx, rules); err != nil {
		return err
	}
	c.rules = rules
	return nil
}

// noteEmptySubmodules notes which submodules are empty directories of the artifact.
func (c *content) noteEmptySubmodules(ctx context.Context, rules *artifact.Rules) {
	var names []string
	for _, l := range c.links {
		if _, ignored, err := rules.Match(ctx, l.path, true); !ignored && err == nil {
			names = append(names, l.path)
		}
	}
	if len(names) > 0 {
		c.notes = append(c.notes, "submodules are empty directories without spec.recurseSubmodules: "+enumerate(names))
	}
}

// replaceLFSPointers replaces the LFS pointers that are packed by their objects. Without
// spec.lfs it only notes how many pointers there are, at next to no cost if the tree
// has no .gitattributes at its top.
func (c *content) replaceLFSPointers(ctx context.Context, rules *artifact.Rules) error {
	if !c.origin.repo.Spec.LFS {
		top, err := c.tree.ReadDir(".")
		if err != nil || !slices.ContainsFunc(top, func(e fs.DirEntry) bool { return e.Name() == ".gitattributes" }) {
			return err
		}
		if n, err := lfs.Count(ctx, rules.View(ctx, c.ownTree)); err == nil && n > 0 {
			c.notes = append(c.notes, fmt.Sprintf("%d files are Git LFS pointers, packed as they are: set spec.lfs to get what they stand for", n))
		}
		return nil
	}
	limits, progress := c.origin.env.Limits, c.origin.env.Progress
	o := lfs.Options{
		FileBytes: cmp.Or(limits.FileBytes, maxFileBytes),
		Bytes:     cmp.Or(limits.Bytes, maxBytes),
		Used:      c.total.Bytes,
		Temp:      limits.Temp,
		Fetch:     c.fetchLFSObjects,
	}
	if name, err := source.Address(c.origin.repo); progress != nil && err == nil {
		o.Progress = func(done, total int64) {
			progress(source.Progress{Object: name, Phase: "receiving LFS objects", Done: done, Total: total, Unit: "bytes"})
		}
	}
	held, nonPointers, err := lfs.Fill(ctx, rules.View(ctx, c.fullTree), o)
	if held != nil {
		c.closers = append(c.closers, held)
	}
	if n := len(nonPointers); n > 0 {
		c.notes = append(c.notes, fmt.Sprintf("%d files have the attribute filter=lfs and are no LFS pointers, they are packed as they are: %s",
			n, enumerate(nonPointers)))
	}
	return err
}

// fetchLFSObjects fetches LFS objects from the repository of tree.
func (c *content) fetchLFSObjects(ctx context.Context, tree *object.FS, objects []lfs.Object, spool *lfs.Spool) error {
	configured, err := lfs.ConfiguredURL(tree)
	if err != nil {
		return err
	}
	up, err := c.repositories[tree](ctx)
	if err != nil {
		return err
	}
	return errors.Join(up.fetchLFS(ctx, configured, objects, spool), up.Close())
}

// enumerate joins the first few names.
func enumerate(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + " …"
}

// Explain implements [source.Explainer].
func (c *content) Explain(ctx context.Context) (fs.FS, *artifact.Rules, error) {
	if err := c.compose(ctx); err != nil {
		return nil, nil, stepError(source.StepFetch, err)
	}
	return c.fullTree, c.rules, nil
}

// WriteTo implements [source.Content]: it writes the tree, without ignored files, in
// the normal form of package artifact.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	if err := c.compose(ctx); err != nil {
		return source.Report{}, stepError(source.StepFetch, err)
	}
	out := &errWriter{w: w}
	packed, err := c.origin.env.Cache.Pack(ctx, out, c.rules.View(ctx, c.fullTree))
	if err != nil && out.err == nil { // reading the tree failed, not writing to w
		err = stepError(source.StepFetch, err)
	}
	return source.Report{
		Report:  packed,
		Message: "stored artifact for commit '" + shorten(c.commit.Subject(), 50) + "'",
		Notes:   c.notes,
		Emptied: c.rules.Emptied(packed),
	}, err
}

// An errWriter remembers whether writing failed.
type errWriter struct {
	w   io.Writer
	err error
}

func (s *errWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// Close implements [source.Content].
func (c *content) Close() error {
	err := c.db.Close()
	for _, h := range c.closers {
		err = errors.Join(err, h.Close())
	}
	return err
}

// shorten cuts s to at most n bytes, never within a character.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimSpace(s[:n])
}
