package git

import (
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

func newContent(repo *source.GitRepository, db database, id object.ID, notes []string) (source.Content, error) {
	c, err := readCommit(db, id)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("commit %s: %w", id, err)
	}
	return &content{repo, db, c, notes}, nil
}

// Verify implements [source.Content].
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content]: the tree without what the ignore rules
// leave out, in the normal form of package artifact.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	tree := object.TreeFS(c.db, c.commit.Tree)
	ignore := artifact.DefaultIgnore()
	if c.repo.Spec.Ignore != nil {
		ignore.Extra = *c.repo.Spec.Ignore
	}
	rules, err := ignore.Compile(tree)
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
