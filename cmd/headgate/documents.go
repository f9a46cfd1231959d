package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// documentFlags say which documents are read, and which of them count.
type documentFlags struct {
	files   []string
	counts  []int // how many objects the set had after each of files
	exclude []string
	verbose bool
	selection
}

func (f *documentFlags) register(c *cobra.Command) {
	f.registerFiles(c)
	f.selection.register(c)
}

// registerFiles adds the flags of documents of which all count.
func (f *documentFlags) registerFiles(c *cobra.Command) {
	fl := c.Flags()
	fl.StringArrayVarP(&f.files, "filename", "f", nil, "`FILE`, directory or - (standard input) with objects and Secrets; repeatable")
	fl.StringArrayVar(&f.exclude, "exclude", nil, "`GLOB` of files and directories that are left out of a directory of -f, like a line of its file .headgateignore; repeatable")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "list the documents of other kinds; a Kustomization with its source")
}

// A selection says which objects are meant: those that arguments name, of a namespace,
// or with labels.
type selection struct {
	namespace  string
	everywhere bool
	selector   string
	all        bool
	refs       []source.Reference // that arguments name; none for all
}

func (f *selection) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "", "only objects in `NAMESPACE`, also for arguments KIND/NAME; default all")
	fl.BoolVarP(&f.everywhere, "all-namespaces", "A", false, "objects in all namespaces (the default)")
	fl.StringVarP(&f.selector, "selector", "l", "", "only objects with `LABELS`, such as team=shop,stage!=test,canary,!old")
	fl.BoolVar(&f.all, "all", false, "all objects (the default of commands that do not need names)")
}

// narrows reports whether flags leave objects out.
func (f *selection) narrows() bool { return f.namespace != "" && !f.everywhere || f.selector != "" }

// choose reads arguments as kubectl and flux have them: KIND/NAME, KIND, KINDS after the
// word sources, which alone means all. Some commands need names.
func (f *selection) choose(args []string, needed bool) error {
	needed = needed && !f.all && !f.narrows()
	if len(args) > 0 && (args[0] == "sources" || args[0] == "all") && !needed {
		args = args[1:]
	} else if len(args) == 0 && needed {
		return usage("name objects as KIND/NAME, or select some with --all, -n or -l")
	}
	for _, arg := range args {
		ref, err := source.ParseReference(arg)
		switch {
		case err != nil:
			return &exitError{exitUsage, err}
		case ref.Name == "" && needed:
			return usage("%q names no object: write KIND/NAME or KIND/NAMESPACE/NAME, or select some with --all, -n or -l", arg)
		case ref.Namespace == "" && !f.everywhere:
			ref.Namespace = f.namespace
		}
		f.refs = append(f.refs, ref)
	}
	return nil
}

// names reports whether an object is meant, whatever its labels are.
func (f *selection) names(ref source.Reference) bool {
	if len(f.refs) == 0 {
		return f.namespace == "" || f.everywhere || ref.Namespace == f.namespace
	}
	return slices.ContainsFunc(f.refs, func(r source.Reference) bool { return r.Selects(ref) })
}

// selects reports whether an object with labels is meant.
func (f *selection) selects(ref source.Reference, labels map[string]string) bool {
	if !f.names(ref) {
		return false
	}
	for term := range strings.SplitSeq(f.selector, ",") {
		name, not := strings.CutPrefix(strings.TrimSpace(term), "!")
		name, want, compares := strings.Cut(name, "=")
		name, differs := strings.CutSuffix(name, "!")
		value, there := labels[strings.TrimSpace(name)]
		want = strings.TrimSpace(strings.TrimPrefix(want, "=")) // == is = as well
		if term != "" && (compares && (value == want && there) == differs || !compares && there == not) {
			return false
		}
	}
	return true
}

// missing says which names mean nothing of what was found, or more than one object if
// they have to be unique.
func (f *selection) missing(found []source.Reference, unique bool) error {
	var errs []error
	for _, ref := range f.refs {
		same := 0
		for _, other := range found {
			if ref.Selects(other) {
				same++
			}
		}
		switch {
		case ref.Name == "":
		case same == 0:
			errs = append(errs, fmt.Errorf("%s: no such object", sourceName(ref)))
		case same > 1 && unique:
			return usage("%s names %d objects: write KIND/NAMESPACE/NAME, or give their namespace with -n", sourceName(ref), same)
		}
	}
	return errors.Join(errs...)
}

// filter selects on a server what one name selects; of several the client selects.
func (f *selection) filter() (filter api.Filter) {
	if len(f.refs) == 1 {
		filter.Kind, filter.Namespace, filter.Name = f.refs[0].Kind, f.refs[0].Namespace, f.refs[0].Name
	} else if len(f.refs) == 0 && !f.everywhere {
		filter.Namespace = f.namespace
	}
	return filter
}

// A session is what the commands on sources share.
type session struct {
	*program
	flags   *sourceFlags
	set     *source.Set
	bad     error // objects that did not decode; the others go on
	typed   bool  // the objects are what URLs and flags say
	env     source.Env
	origins headgate.Origins // without a cache
	opened  []io.Closer      // what it reads
}

// close closes what the session reads.
func (s *session) close() {
	for _, c := range s.opened {
		c.Close()
	}
}

// open reads the objects and prepares their environment.
func (p *program) open(f *sourceFlags) (*session, error) {
	s := &session{program: p, flags: f, set: new(source.Set), origins: p.origins("")}
	var err error
	if s.env, err = p.environment(f, s.set); err != nil {
		return nil, err
	}
	s.bad = p.load(s.set, &f.documentFlags)
	if !f.quiet {
		p.warn(s.set.Warnings...)
		p.skipped(s.set.Others, s.set.Skipped, f.verbose)
	}
	return s, nil
}

// skipped tells of documents of other kinds.
func (p *program) skipped(others []source.Other, count int, verbose bool) {
	for _, o := range others {
		if verbose {
			fmt.Fprintf(p.stderr, "skipped %s\n", o)
		}
	}
	if count > 0 {
		fmt.Fprintf(p.stderr, "skipped documents of other kinds: %d\n", count)
	}
}

// load reads documents into set. The error joins the defects; good objects are in
// the set all the same. A Helm template in a directory is a warning of the set.
func (p *program) load(set *source.Set, f *documentFlags) error {
	var errs []error
	f.counts = nil
	for _, name := range f.files {
		errs = append(errs, p.decode(name, f.exclude, &set.Warnings, func(t text) error { return set.Decode(t.name, bytes.NewReader(t.data)) }))
		f.counts = append(f.counts, len(set.Objects))
	}
	return errors.Join(errs...)
}

// documentsIn is a directory of -f without what exclude and the files .headgateignore in it leave out.
func documentsIn(dir fs.FS, exclude []string) (fs.FS, error) {
	rules, err := artifact.Ignore{Base: exclude, File: ".headgateignore"}.Compile(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	return rules.View(context.Background(), dir), nil
}

// prepare opens a session and returns the objects that the command works on.
func (p *program) prepare(ctx context.Context, f *sourceFlags, args []string) (*session, []source.Object, error) {
	s, err := p.open(f)
	if err != nil {
		return nil, nil, err
	}
	objects, err := s.objects(ctx, args)
	return s, objects, err
}

// objects returns those of -f that args name, or those that URLs stand for.
func (s *session) objects(ctx context.Context, args []string) (objects []source.Object, err error) {
	s.typed = len(s.flags.files) == 0
	switch {
	case s.flags.parallel < 1:
		return nil, usage("--parallel %d: want 1 or more", s.flags.parallel)
	case !s.typed:
		if err = s.flags.fits(""); err == nil {
			objects, err = s.selected(args)
		}
		if err == nil && len(objects) == 0 {
			err = &exitError{exitUsage, cmp.Or(s.bad, fmt.Errorf("no objects in %s", strings.Join(s.flags.files, ", ")))}
		}
		return objects, err
	case len(args) == 0:
		return nil, usage("give objects with -f, or URLs such as https://HOST/PATH, ssh://USER@HOST/PATH, oci://HOST/PATH or s3://BUCKET")
	}
	for _, arg := range args {
		obj, err := s.objectOf(ctx, arg)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(objects, func(other source.Object) bool { return source.ReferenceTo(other) == source.ReferenceTo(obj) }) {
			return nil, usage("%s: another URL has the same name: fetch it by itself, with --name", redact.String(arg))
		}
		objects = append(objects, obj)
	}
	return objects, nil
}

// selected returns the objects that args name, or all, as far as the flags select
// them. Once some are not selected, what is wrong with other documents is a warning.
func (s *session) selected(args []string) ([]source.Object, error) {
	if err := s.flags.choose(args, false); err != nil {
		return nil, err
	}
	for _, ref := range s.flags.refs {
		if ref.Name == "" {
			continue
		}
		if _, err := s.set.Find(sourceName(ref)); err != nil { // what did not decode may be what was named
			return nil, &exitError{exitUsage, errors.Join(s.bad, err)}
		}
	}
	var objects []source.Object
	names := map[string]bool{}
	var outputs []source.Reference // of selected generators, which are before them
	for _, obj := range s.set.Objects {
		ref := source.ReferenceTo(obj)
		if s.flags.selects(ref, obj.Head().Metadata.Labels) || slices.Contains(outputs, ref) {
			if _, generator := obj.(*source.ArtifactGenerator); generator {
				outputs = append(outputs, obj.Plan().Needs...)
			}
			objects = append(objects, obj)
			names[obj.Head().String()] = true
		}
	}
	if len(args) == 0 && !s.flags.narrows() || len(objects) == 0 {
		return objects, nil
	}
	var bad, others []error
	for _, err := range document.Split(s.bad) {
		if e, ok := errors.AsType[*source.DocumentError](err); ok && !names[e.Object] {
			others = append(others, err)
		} else {
			bad = append(bad, err)
		}
	}
	if s.bad = errors.Join(bad...); !s.flags.quiet {
		s.warn(others...)
	}
	return objects, nil
}

// decoded returns the object of a document.
func decoded(document string) (source.Object, error) {
	set := new(source.Set)
	if err := set.Decode("status", strings.NewReader(document)); err != nil {
		return nil, err
	}
	if len(set.Objects) == 0 {
		return nil, errors.New("it is no document of a source")
	}
	return set.Objects[0], nil // behind a generator comes what it makes
}

// withoutGenerators returns the objects that can have artifacts: a generator is named with what it makes.
func withoutGenerators(objects []source.Object) []source.Object {
	return slices.DeleteFunc(slices.Clone(objects), func(obj source.Object) bool {
		_, generator := obj.(*source.ArtifactGenerator)
		return generator
	})
}

// argumentOf names an object as its document does, in the form that commands take.
func argumentOf(obj source.Object) string {
	o := source.Involved(obj)
	return sourceName(source.Reference{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
}

// sourceName writes a reference as commands take it.
func sourceName(ref source.Reference) string {
	parts := slices.DeleteFunc([]string{strings.ToLower(ref.Kind), ref.Namespace, ref.Name}, func(part string) bool { return part == "" })
	return strings.Join(parts, "/")
}

// addressOf returns the address of obj; one that has none is refused later, by name.
func addressOf(obj source.Object) string {
	address, err := source.Address(obj)
	if err != nil {
		return obj.Head().Metadata.Name
	}
	return address
}

// completeObjects offers the objects in the files of -f that can be read; never those
// on standard input, which is the user's terminal.
func (f *documentFlags) completeObjects(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	set, quiet := new(source.Set), &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	_ = quiet.load(set, f)
	return argumentsOf(set), cobra.ShellCompDirectiveNoFileComp
}

// completeStored offers the objects of a store that can be read, and files.
func completeStored(dir *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		set, _ := ledgerOf(*dir).List()
		return argumentsOf(set), cobra.ShellCompDirectiveDefault
	}
}

func argumentsOf(set *source.Set) []string {
	names := make([]string, len(set.Objects))
	for i, obj := range set.Objects {
		names[i] = argumentOf(obj)
	}
	return names
}
