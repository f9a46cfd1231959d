package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// content is one fetched commit.
type content struct {
	repo   *source.GitRepository
	db     database
	commit *object.CommitData
	notes  []string
}

// newContent takes over db, which holds the commit id with its whole tree.
func newContent(ctx context.Context, repo *source.GitRepository, db database, id object.ID, limits artifact.Limits) (*content, error) {
	commit, err := readCommit(db, id)
	if err == nil {
		err = measure(ctx, db, commit.Tree, limits)
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("commit %s: %w", id, err)
	}
	return &content{repo: repo, db: db, commit: commit}, nil
}

// measure refuses a tree that is larger than the limits before anything walks
// it: a few small trees that hold each other can describe 2¹⁰⁰ files.
func measure(ctx context.Context, db object.Database, tree object.ID, limits artifact.Limits) error {
	total, err := object.Measure(ctx, db, tree)
	if err != nil {
		return err
	}
	entries := cmp.Or(int64(limits.Entries), maxEntries)
	if entries > 0 && total.Entries > entries {
		return fmt.Errorf("the tree holds %d entries: more than the limit of %d, raise it if that is right", total.Entries, entries)
	}
	size := cmp.Or(limits.Bytes, maxBytes)
	if size > 0 && total.Bytes > size {
		return fmt.Errorf("the tree holds %d bytes: more than the limit of %d, raise it if that is right", total.Bytes, size)
	}
	return nil
}

// The limits of a tree where [source.Env] sets none.
const (
	maxEntries = 4_000_000
	maxBytes   = 16 << 30
)

// Verify implements [source.Content].
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content]: the tree without what the ignore rules
// leave out, in the normal form of package artifact.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	tree := object.TreeFS(c.db, c.commit.Tree)
	rules, err := ignoreOf(c.repo).Compile(tree)
	switch {
	case errors.Is(err, object.ErrCorrupt) || isAbsent(err): // the tree cannot be read at all
		return source.Report{}, stepError(source.StepFetch, err)
	case err != nil:
		return source.Report{}, &source.StepError{Step: source.StepFetch, Reason: "SourceIgnoreError", Err: err}
	}
	out := &sink{w: w}
	packed, err := artifact.Pack(ctx, out, rules.View(tree))
	if err != nil && out.err == nil { // the tree is at fault, not the storage
		err = stepError(source.StepFetch, err)
	}
	return source.Report{
		Report:  packed,
		Message: "stored artifact for commit '" + shorten(c.commit.Subject(), 50) + "'",
		Notes:   c.notes,
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
func (c *content) Close() error { return c.db.Close() }

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
