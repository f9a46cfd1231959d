package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/generator"
)

func (p *program) explain() *cobra.Command {
	return group("explain", "Explain which files are in an artifact", p.explainIgnore(), p.explainSource())
}

func (p *program) explainIgnore() *cobra.Command {
	f, dir := new(sourceFlags), ""
	c := &cobra.Command{
		Use:   "ignore [-f FILE|DIR|- KIND/NAME | URL[@REF]] PATH...",
		Short: "Print whether paths are in an artifact, and which pattern decides",
		Long: `Ignore prints for each PATH whether it is in the artifact of a source, and which pattern decides: a line of a file or of
spec.ignore, or the default patterns. Without a source it explains the files of a directory as if it were a Git
repository, before they are committed.

A PATH is relative to the top of the source. It need not exist; a slash at its end means a directory. Included sources
are read from the store.`,
		Example: `  headgate explain ignore deploy/app.yaml logo.png vendor/
  headgate explain ignore -f sources.yaml gitrepository/app docs/`,
		RunE: func(c *cobra.Command, args []string) error { return p.explainPaths(c.Context(), f, dir, args, false) },
	}
	f.register(c)
	registerLimit(c, &f.maxBytes)
	registerStore(c, &f.store)
	f.formats = []string{"table", "json"}
	c.Flags().StringVar(&dir, "dir", ".", "`DIR` to explain, if no source is given")
	return c
}

// explainPaths prints the pattern that decides about each path, or the operations that produced it.
func (p *program) explainPaths(ctx context.Context, f *sourceFlags, dir string, args []string, operations bool) error {
	paths, sourced := args, len(f.files) > 0 || len(args) > 0 && strings.Contains(args[0], "://")
	if sourced && len(args) > 0 {
		paths = args[1:]
	}
	switch {
	case operations && len(f.files) == 0:
		return usage("give the generator with -f")
	case sourced && dir != ".":
		return usage("--dir takes no source: --from URL=DIR lets a directory stand in for one")
	case len(paths) == 0:
		return usage("give the paths to explain")
	}
	for _, name := range paths {
		if name == "" || !fs.ValidPath(path.Clean(filepath.ToSlash(name))) {
			return usage("%q is no path inside a source", name)
		}
	}
	s, err := p.openSession(f)
	if err != nil {
		return err
	}
	defer s.close()
	var r sourceTree
	if sourced {
		r, err = s.openSource(ctx, args[0])
	} else {
		r, err = s.openDir(ctx, dir)
	}
	if err != nil {
		return err
	}
	list, lines := []explanation{}, [][]string{{"PATH", "INCLUDED", "DECIDED BY", "NOTE"}}
	if operations {
		lines[0] = []string{"PATH", "OPERATION", "SOURCE", "FROM", "NOTE"}
	}
	for _, name := range paths {
		e, err := r.explain(ctx, name)
		if err != nil {
			return err
		}
		if list = append(list, e); !operations {
			lines = append(lines, e.cells())
			continue
		}
		if len(e.Operations) == 0 {
			return usage("%q is no file that an operation of a generator copies to %s", name, args[0])
		}
		for _, step := range e.Operations {
			note := ""
			if step.Overwritten {
				note = "overwritten"
			}
			lines = append(lines, []string{name, step.Operation, step.Source, step.Path, note})
		}
	}
	return p.printResult(&f.outputFlags, list, nil, lines)
}

func (p *program) explainSource() *cobra.Command {
	f := new(sourceFlags)
	c := &cobra.Command{
		Use:   "source -f FILE|DIR|- KIND/NAME PATH...",
		Short: "Print which operation of a generator a file comes from",
		Long: `Source prints for each PATH of an artifact that an ArtifactGenerator makes which operations copied it, and from where, in
their order: those that others overwrote, and several where files were merged. The sources are read from the store: fetch
them first.`,
		Example: `  headgate explain source -f sources.yaml externalartifact/app deploy/app.yaml`,
		Args:    rangeArgs(2, -1),
		RunE:    func(c *cobra.Command, args []string) error { return p.explainPaths(c.Context(), f, ".", args, true) },
	}
	f.register(c)
	registerLimit(c, &f.maxBytes)
	registerStore(c, &f.store)
	f.formats = []string{"table", "json"}
	return c
}

// A sourceTree is a tree with the ignore rules that apply to it. The session closes it.
type sourceTree struct {
	tree  fs.FS
	rules *artifact.Rules
}

// openDir reads the rules of a directory as if it were a Git repository. It ignores the store, which no
// commit would contain.
func (s *session) openDir(ctx context.Context, dir string) (sourceTree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return sourceTree{}, err
	}
	s.opened = append(s.opened, root)
	ignore := artifact.DefaultIgnore()
	if inside, ok := pathInside(dir, s.flags.store); ok {
		ignore.Base = append(ignore.Base, "/"+globEscaper.Replace(inside)+"/")
	}
	rules, err := ignore.Compile(ctx, root.FS())
	if err != nil {
		return sourceTree{}, fmt.Errorf("%s: %w", dir, err)
	}
	return sourceTree{root.FS(), rules}, nil
}

// openSource fetches the single object that arg names. It stores nothing.
func (s *session) openSource(ctx context.Context, arg string) (sourceTree, error) {
	objects, err := s.objects(ctx, []string{arg})
	if err != nil {
		return sourceTree{}, err
	}
	if !s.flags.quiet {
		s.warn(s.decodeErr)
	}
	if len(objects) > 1 {
		objects = withoutGenerators(objects)
	}
	if len(objects) != 1 {
		return sourceTree{}, usage("%s names %d objects: write KIND/NAMESPACE/NAME", arg, len(objects))
	}
	obj := objects[0]
	switch obj.(type) {
	case *source.PkgChart, *source.PkgRepository:
		return sourceTree{}, fmt.Errorf("%s has no ignore rules: of a chart the .helmignore in it decides, after those of the source that holds it", obj.Head())
	}
	if err := s.openStoredInputs(ctx, obj); err != nil {
		return sourceTree{}, err
	}
	r, err := s.openContent(ctx, obj)
	if g, ok := obj.(*source.GitRepository); ok && errors.Is(err, source.ErrWaiting) {
		if !s.flags.quiet {
			fmt.Fprintf(s.stderr, "%s: note: without what it includes, which is not in the store: fetch it first\n", obj.Head())
		}
		repo := *g
		repo.Spec.Include = nil
		r, err = s.openContent(ctx, &repo)
	}
	if err != nil {
		return sourceTree{}, s.prefixError(obj.Head().String(), err)
	}
	return r, nil
}

// openContent fetches obj and returns its tree and rules.
func (s *session) openContent(ctx context.Context, obj source.Object) (r sourceTree, err error) {
	ctx, cancel := source.Bounded(ctx, obj)
	defer cancel()
	from, err := s.origins.New(obj, s.env)
	if err != nil {
		return r, err
	}
	defer func() { err = source.Conceal(err, from) }()
	rev, _, err := from.Resolve(ctx, nil)
	if err != nil {
		return r, err
	}
	content, err := from.Open(ctx, rev)
	if err != nil {
		return r, err
	}
	s.opened = append(s.opened, content)
	if _, err := content.Verify(ctx); err != nil {
		return r, err
	}
	e, ok := content.(source.Explainer)
	if !ok {
		return r, fmt.Errorf("%s has no ignore rules", obj.Head().Kind)
	}
	r.tree, r.rules, err = e.Explain(ctx)
	return r, err
}

// openStoredInputs makes the stored artifacts of the objects that obj needs available to origins, if the
// store exists.
func (s *session) openStoredInputs(ctx context.Context, obj source.Object) error {
	inventory := &source.Inventory{Objects: s.set.Objects, Client: &artifact.Client{MaxBytes: s.flags.maxBytes}}
	s.env.Sources = inventory
	needed, err := source.Needed(ctx, obj, inventory)
	for _, n := range needed {
		if !source.External(n) && err == nil {
			_, err = ledgerOf(s.flags.store).Load(ctx, n)
		}
	}
	if err != nil || len(needed) == 0 || !exists(s.flags.store) {
		return err
	}
	if inventory.Store, err = openExisting(s.flags.store); err == nil {
		s.opened = append(s.opened, inventory.Store)
	}
	return err
}

// An explanation tells whether an artifact contains a path, and why.
type explanation struct {
	Path          string `json:"path"`
	Exists        bool   `json:"exists"`
	Directory     bool   `json:"directory"`
	Included      bool   `json:"included"` // in the artifact, or would be if it existed
	artifact.Rule        // the deciding rule; Pattern is "" if no pattern matches
	Note          string `json:"note,omitempty"`

	Operations []generator.Step `json:"operations,omitempty"` // of a generator, in order
}

func (e explanation) cells() []string {
	included, by := "no", "no pattern"
	if e.Included {
		included = "yes"
	}
	switch {
	case e.Pattern != "" && e.Line > 0:
		by = fmt.Sprintf("%s:%d: %s", e.Source, e.Line, e.Pattern)
	case e.Pattern != "":
		by = e.Source + ": " + e.Pattern
	}
	return []string{e.Path, included, by, e.Note}
}

// explain returns the explanation of the path arg.
func (r sourceTree) explain(ctx context.Context, arg string) (explanation, error) {
	name := path.Clean(filepath.ToSlash(arg))
	e := explanation{Path: name}
	if tree, ok := r.tree.(*generator.Tree); ok {
		e.Operations = tree.Steps(name)
	}
	mode, err := modeOf(r.tree, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Directory, e.Note = strings.HasSuffix(filepath.ToSlash(arg), "/"), "does not exist"
	case err != nil:
		return e, err
	default:
		e.Exists, e.Directory = true, mode.IsDir()
	}
	rule, ignored, err := r.rules.Match(ctx, name, e.Directory)
	if err != nil {
		return e, err
	}
	e.Included, e.Rule = !ignored, rule
	switch {
	case e.Exists && !mode.IsDir() && !mode.IsRegular():
		e.Included, e.Note = false, "is "+kindOfFile(mode)+", which no artifact holds"
	case e.Exists && mode.IsDir() && ignored:
		if below, err := fs.ReadDir(r.rules.View(ctx, r.tree), name); err == nil && len(below) > 0 {
			e.Note = "a pattern includes something below it again"
		}
	}
	return e, nil
}

// modeOf returns the type of the file at a path, without following a link. It reads directories
// only, so it works if file contents are not available.
func modeOf(tree fs.FS, name string) (fs.FileMode, error) {
	if name == "." {
		return fs.ModeDir, nil
	}
	mode, err := modeOf(tree, path.Dir(name))
	if err != nil || !mode.IsDir() {
		return 0, cmp.Or(err, fs.ErrNotExist)
	}
	entries, err := fs.ReadDir(tree, path.Dir(name))
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == path.Base(name) })
	if i < 0 {
		return 0, fs.ErrNotExist
	}
	return entries[i].Type(), nil
}
