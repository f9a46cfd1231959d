package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

type diffFlags struct {
	sourceFlags
}

func (p *program) diff() *cobra.Command {
	f := &diffFlags{sourceFlags{parallel: 1}}
	c := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two artifacts entry by entry",
		Long: `Diff tells which files and directories were added, removed or changed from BEFORE to AFTER: in content, in
being executable, or in what they are. Each of the two is an object (KIND/NAME or KIND/NAMESPACE/NAME) of the
store, a path in the store, an archive, a directory, or a URL as fetch takes it, which is fetched and not
stored. Of a directory counts what push would publish.

With -o patch it prints what changed in text files of up to 1 MiB each, as patch takes it; lines that begin
with # tell of the rest.

Exit codes: 0 the artifacts are the same, 4 they differ, 1 something failed, 2 usage.`,
		Example: `  headgate diff gitrepository/app ./checkout
  headgate diff oci://registry.example.org/app:v1 oci://registry.example.org/app:v2 -o patch
  headgate diff oci://registry.example.org/app ./manifests -q || headgate push ./manifests oci://registry.example.org/app`,
		Args:              f.exactly(2),
		ValidArgsFunction: completeStored(&f.store),
		RunE:              func(c *cobra.Command, args []string) error { return asFailure(p.runDiff(c.Context(), f, args)) },
	}
	registerStore(c, &f.store)
	f.registerAccess(c)
	registerLimit(c, &f.maxBytes)
	spanVar(c, &f.timeout, "timeout", 0, "bound of the whole command")
	f.registerOutput(c, "table", "json", "yaml", "name", "patch")
	return c
}

func (p *program) runDiff(ctx context.Context, f *diffFlags, args []string) error {
	s, err := p.open(&f.sourceFlags)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	var trees [2]fs.FS
	for i, arg := range args {
		tree, end, err := s.tree(ctx, arg)
		if err != nil {
			return about(arg, err)
		}
		defer end()
		trees[i] = tree
	}
	c := comparison{Before: shown(args[0]), After: shown(args[1]), trees: trees}
	for change, err := range artifact.Diff(ctx, trees[0], trees[1]) {
		if err != nil {
			return err
		}
		c.changes = append(c.changes, change)
		if !f.prints() {
			break // one is enough for the exit code
		}
	}
	if f.prints() {
		if err := c.print(p.stdout, f.output); err != nil {
			return err
		}
	}
	if len(c.changes) > 0 {
		return &exitError{exitChanged, nil}
	}
	return nil
}

// shown returns an argument without the credentials of a URL.
func shown(arg string) string {
	if strings.Contains(arg, "://") {
		return redact.Query(redact.Password(arg))
	}
	return arg
}

// about says what an error is about, and keeps its exit code.
func about(arg string, err error) error {
	code := (&row{err: err}).code(false)
	var coded *exitError
	if errors.As(err, &coded) {
		code, err = coded.code, coded.err
	}
	return &exitError{code, fmt.Errorf("%s: %s", redact.String(arg), byFlag.Replace(err.Error()))}
}

// tree opens what an argument of diff names.
func (s *session) tree(ctx context.Context, arg string) (tree fs.FS, end func() error, err error) {
	open := openDir(arg, s.flags.store)
	if strings.Contains(arg, "://") {
		open = func(ctx context.Context) (ruled, error) { return s.fetched(ctx, arg) }
	} else if info, err := os.Stat(arg); err != nil || !info.IsDir() {
		return s.archived(ctx, arg)
	}
	r, err := open(ctx)
	if err != nil {
		return nil, nil, err
	}
	return r.rules.View(ctx, r.tree), r.close, nil
}

// archived opens an archive, or the artifact of an object.
func (s *session) archived(ctx context.Context, arg string) (fs.FS, func() error, error) {
	lookup := artifactLookup{store: s.flags.store, maxBytes: s.flags.maxBytes}
	file, err := lookup.open(ctx, arg)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	tree, err := lookup.tree(file)
	if err != nil {
		return nil, nil, err
	}
	return tree, tree.Close, nil
}

// fetched fetches what a URL names, and stores nothing.
func (s *session) fetched(ctx context.Context, arg string) (ruled, error) {
	obj, err := s.adhoc(ctx, arg)
	if err != nil {
		return ruled{}, err
	}
	ctx, cancel := source.Bounded(ctx, obj)
	defer cancel()
	return s.content(ctx, obj)
}
