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

func (p *program) explain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain",
		Short: "Tell why something is as it is",
		Args:  noCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.explainIgnore())
	return c
}

type ignoreFlags struct {
	sourceFlags
	dir string
}

func (p *program) explainIgnore() *cobra.Command {
	f := new(ignoreFlags)
	c := &cobra.Command{
		Use:   "ignore [-f FILE|DIR|- KIND/NAME | URL[@REF]] PATH...",
		Short: "Tell which paths an artifact holds, and which pattern decides",
		Long: `Ignore tells for each PATH whether it is in the artifact of a source and which pattern decides: the file it
stands in, or spec.ignore, with its line, or the default patterns. Without a source it explains the files
of a directory as the source of a Git repository, before they are committed.

A PATH is relative to the top of the source. It need not exist: a slash at its end says that a directory
is meant. Included sources count as they are in the store; the store is only read.`,
		Example: `  headgate explain ignore deploy/app.yaml logo.png vendor/
  headgate explain ignore -f sources.yaml gitrepository/app docs/
  headgate explain ignore https://example.org/app.git@v1.2.3 docs/index.md -o json`,
		RunE: func(c *cobra.Command, args []string) error { return p.runIgnore(c.Context(), f, args) },
	}
	f.register(c)
	registerLimit(c, &f.maxBytes)
	registerStore(c, &f.store)
	c.Flags().StringVar(&f.dir, "dir", ".", "`DIR` to explain when no source is given")
	return c
}

func (p *program) runIgnore(ctx context.Context, f *ignoreFlags, args []string) error {
	if f.output != "table" && f.output != "json" {
		return usage("-o %q: want table or json", f.output)
	}
	open, paths, err := p.subject(f, args)
	if err != nil {
		return err
	}
	r, err := open(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	list := make([]explanation, len(paths))
	for i, name := range paths {
		if list[i], err = r.explain(ctx, name); err != nil {
			return failed(err)
		}
	}
	switch {
	case !f.prints():
		return nil
	case f.output == "json":
		return asFailure(printJSON(p.stdout, list))
	}
	return asFailure(printExplanations(p.stdout, list))
}

// subject returns what opens the source or the directory that is asked about,
// and the paths inside it.
func (p *program) subject(f *ignoreFlags, args []string) (open func(context.Context) (ruled, error), paths []string, err error) {
	sourced := len(f.files) > 0 || len(args) > 0 && strings.Contains(args[0], "://")
	if sourced && f.dir != "." {
		return nil, nil, usage("--dir goes without a source: --from URL=DIR lets a directory stand in for one")
	}
	open, paths = openDir(f.dir, f.store), args
	if sourced && len(args) > 0 {
		open, paths = p.openSource(&f.sourceFlags, args[0]), args[1:]
	}
	if len(paths) == 0 {
		return nil, nil, usage("give the paths to explain")
	}
	for _, name := range paths {
		if _, ok := treePath(name); !ok {
			return nil, nil, usage("%q is no path inside a source", name)
		}
	}
	return open, paths, nil
}

// A ruled is a tree and the ignore rules that apply to it.
type ruled struct {
	tree  fs.FS
	rules *artifact.Rules
	close func() error
}

// openDir reads the rules of a directory as if it were a Git repository. The
// store, which holds what no commit would, is no part of it.
func openDir(dir, store string) func(context.Context) (ruled, error) {
	return func(ctx context.Context) (ruled, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return ruled{}, failed(err)
		}
		ignore := artifact.DefaultIgnore()
		if inside, ok := below(dir, store); ok {
			ignore.Base = append(ignore.Base, "/"+literal.Replace(inside)+"/")
		}
		rules, err := ignore.Compile(ctx, root.FS())
		if err != nil {
			return ruled{}, failed(errors.Join(fmt.Errorf("%s: %w", dir, err), root.Close()))
		}
		return ruled{root.FS(), rules, root.Close}, nil
	}
}

// openSource fetches the one object that arg names, and stores nothing.
func (p *program) openSource(f *sourceFlags, arg string) func(context.Context) (ruled, error) {
	return func(ctx context.Context) (ruled, error) {
		s, objects, err := p.prepare(ctx, f, []string{arg})
		if err != nil {
			return ruled{}, err
		}
		if s.bad != nil && !f.quiet {
			fmt.Fprintf(p.stderr, "warning: %s\n", redact.Error(s.bad))
		}
		if len(objects) != 1 {
			return ruled{}, usage("%s names %d objects: write KIND/NAMESPACE/NAME", arg, len(objects))
		}
		ctx, cancel := s.within(ctx)
		defer cancel()
		r, err := p.explained(ctx, s, objects[0])
		if err != nil {
			obj := row{err: err}
			return ruled{}, &exitError{obj.code(false), fmt.Errorf("%s: %w", objects[0].Head(), err)}
		}
		return r, nil
	}
}

// explained opens the content of obj: with what it includes, as far as that is
// in the store.
func (p *program) explained(ctx context.Context, s *session, obj source.Object) (ruled, error) {
	switch obj.(type) {
	case *source.PkgChart:
		return ruled{}, errors.New("PkgChart has no ignore rules: the .helmignore of the chart decides, after those of the source that holds it")
	case *source.PkgRepository:
		return ruled{}, errors.New("PkgRepository has no ignore rules")
	}
	ctx, cancel := source.Bounded(ctx, obj)
	defer cancel()
	closeStore, err := s.lookBack(ctx, obj)
	if err != nil {
		return ruled{}, err
	}
	r, err := s.content(ctx, obj)
	if g, ok := obj.(*source.GitRepository); ok && errors.Is(err, source.ErrWaiting) {
		if !s.flags.quiet {
			fmt.Fprintf(p.stderr, "%s: note: without what it includes, which is not in the store: fetch it first\n", obj.Head())
		}
		alone := *g
		alone.Spec.Include = nil
		r, err = s.content(ctx, &alone)
	}
	if err != nil {
		return ruled{}, errors.Join(err, closeStore())
	}
	closeContent := r.close
	r.close = func() error { return errors.Join(closeContent(), closeStore()) }
	return r, nil
}

// content fetches obj for its rules.
func (s *session) content(ctx context.Context, obj source.Object) (ruled, error) {
	from, err := s.origins.New(obj, s.env)
	if err != nil {
		return ruled{}, err
	}
	r, err := explain(ctx, obj, from)
	return r, source.Conceal(err, from)
}

func explain(ctx context.Context, obj source.Object, from source.Origin) (ruled, error) {
	rev, _, err := from.Resolve(ctx, nil)
	if err != nil {
		return ruled{}, err
	}
	content, err := from.Open(ctx, rev)
	if err != nil {
		return ruled{}, err
	}
	_, err = content.Verify(ctx)
	e, ok := content.(source.Explainer)
	if err == nil && !ok {
		err = fmt.Errorf("%s has no ignore rules", obj.Head().Kind)
	}
	var r ruled
	if err == nil {
		r.tree, r.rules, err = e.Explain(ctx)
	}
	if err != nil {
		return ruled{}, errors.Join(err, content.Close())
	}
	r.close = content.Close
	return r, nil
}

// lookBack gives origins the artifacts that obj needs as they are in the store,
// if there is one.
func (s *session) lookBack(ctx context.Context, obj source.Object) (closeStore func() error, err error) {
	inventory := &source.Inventory{Objects: s.set.Objects, Client: &artifact.Client{MaxBytes: s.flags.maxBytes}}
	s.env.Sources, closeStore = inventory, func() error { return nil }
	needed, err := source.Needed(ctx, obj, inventory)
	if err != nil {
		return nil, err
	}
	for _, n := range needed {
		if _, external := n.(*source.ExternalArtifact); external {
			continue
		}
		if _, err := ledgerOf(s.flags.store).Load(ctx, n); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(s.flags.store); err != nil || len(needed) == 0 {
		return closeStore, nil
	}
	if inventory.Store, err = openExisting(s.flags.store); err != nil {
		return nil, err
	}
	return inventory.Store.Close, nil
}
