package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// content is one fetched commit.
type content struct {
	origin *Origin
	rev    source.Revision
	sel    selection
	tag    ref // whose signature is asked for, if any
	db     database
	id     object.ID
	commit *object.CommitData
	total  object.Totals // of the trees of the commit and of its submodules
	files  int64         // in the tree of the commit
	notes  []string

	hollowed []gitlink // the submodules that are empty directories

	verified source.Verification
	refused  error // why the signature was refused: nothing is packed then

	rules   *artifact.Rules
	own     fs.FS       // what is packed of the commit itself, before the ignore rules
	tree    fs.FS       // of a submodule, what is packed
	whole   fs.FS       // all that the ignore rules decide about
	holding []io.Closer // what tree reads from, besides db
}

// newContent takes over db, which holds the commit id with its trees.
func newContent(ctx context.Context, o *Origin, db database, id object.ID, notes []string) (*content, error) {
	commit, err := object.ReadCommit(db, id)
	var total object.Totals
	if err == nil {
		total, err = measure(ctx, db, commit.Tree, o.env.Limits)
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("commit %s: %w", id, err)
	}
	return &content{origin: o, db: db, id: id, commit: commit, total: total, files: total.Files, notes: notes}, nil
}

// compose makes the tree that is packed. A signature that is refused ends it
// early: what the commit says is not acted upon then, and Verify tells why.
func (c *content) compose(ctx context.Context) (err error) {
	if c.refused, err = c.check(ctx); err != nil || c.refused != nil {
		return err
	}
	tree := object.TreeFS(c.db, c.commit.Tree)
	for _, layer := range []func(context.Context, fs.FS) (fs.FS, error){c.sparse, c.pointers, c.submodules, c.include} {
		if tree, err = layer(ctx, tree); err != nil {
			return err
		}
	}
	c.whole = tree
	c.rules, err = ignoreOf(c.origin.repo).Compile(ctx, tree)
	switch {
	case errors.Is(err, object.ErrCorrupt) || isAbsent(err): // the tree cannot be read at all
		return stepError(source.StepFetch, err)
	case err != nil:
		return &source.StepError{Step: source.StepFetch, Reason: "SourceIgnoreError", Err: err}
	}
	c.tellHollow(ctx)
	if err := c.supply(ctx, c.rules.View(ctx, c.own)); err != nil {
		return err
	}
	return c.lfs(ctx, c.rules.View(ctx, tree))
}

// measure refuses a tree that is larger than the limits before anything walks
// it: a few small trees that hold each other can describe 2¹⁰⁰ files. A partialDatabase
// does not know the sizes of files before it has them: see [content.supply].
func measure(ctx context.Context, db object.Database, tree object.ID, limits artifact.Limits) (object.Totals, error) {
	take := object.Measure
	switch db := db.(type) {
	case partialDatabase:
		take = object.Count
	case interface {
		Measure(ctx context.Context, tree object.ID) (object.Totals, error)
	}: // which may know already
		take = func(ctx context.Context, _ object.Database, tree object.ID) (object.Totals, error) {
			return db.Measure(ctx, tree)
		}
	}
	total, err := take(ctx, db, tree)
	if err == nil {
		err = checkTotals(total, limits)
	}
	return total, err
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

// The limits of a tree where [source.Env] sets none.
const (
	maxEntries = 4_000_000
	maxBytes   = 16 << 30
)

// Verify implements [source.Content]: it tells what came of the check that
// Open made before it acted on anything the commit says.
func (c *content) Verify(context.Context) (source.Verification, error) {
	return c.verified, c.refused
}

// Explain implements [source.Explainer].
func (c *content) Explain(context.Context) (fs.FS, *artifact.Rules, error) {
	return c.whole, c.rules, c.refused
}

// WriteTo implements [source.Content]: the tree without what the ignore rules
// leave out, in the normal form of package artifact.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	if c.refused != nil {
		return source.Report{}, c.refused
	}
	out := &sink{w: w}
	packed, err := c.origin.env.Cache.Pack(ctx, out, c.rules.View(ctx, c.whole))
	if err != nil && out.err == nil { // the tree is at fault, not the storage
		err = stepError(source.StepFetch, err)
	}
	return source.Report{
		Report:  packed,
		Message: "stored artifact for commit '" + shorten(c.commit.Subject(), 50) + "'",
		Notes:   c.notes,
		Emptied: c.rules.Emptied(packed),
	}, err
}

// A sink remembers whether writing failed.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// Close implements [source.Content].
func (c *content) Close() error {
	err := c.db.Close()
	for _, h := range c.holding {
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
