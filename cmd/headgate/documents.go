package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// documentFlags say which documents are read, and which of them count.
type documentFlags struct {
	files   []string
	exclude []string
	verbose bool
	selection
}

func (f *documentFlags) register(c *cobra.Command) {
	registerFiles(c, &f.files)
	registerExclude(c, &f.exclude)
	fl := c.Flags()
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "name the documents of other kinds, a Kustomization with its source")
	f.selection.register(c)
}

func registerFiles(c *cobra.Command, files *[]string) {
	c.Flags().StringArrayVarP(files, "filename", "f", nil, "`FILE`, directory or - (standard input) with objects and Secrets; repeatable")
}

func registerExclude(c *cobra.Command, exclude *[]string) {
	c.Flags().StringArrayVar(exclude, "exclude", nil, "`GLOB` of files and directories below a directory of -f that are not read, as a line of the file .headgateignore there; repeatable")
}

// A selection says which objects are meant: of a namespace, or with labels.
type selection struct {
	namespace  string
	everywhere bool
	selector   string
	all        bool
}

func (f *selection) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of the objects, and of those that are written as KIND/NAME; default all")
	fl.BoolVarP(&f.everywhere, "all-namespaces", "A", false, "objects of all namespaces, which is the default")
	fl.StringVarP(&f.selector, "selector", "l", "", "`LABELS` of the objects, as team=shop,stage!=test,canary,!old")
	fl.BoolVar(&f.all, "all", false, "all objects, which is the default where none has to be named")
}

// narrows reports whether some objects are not meant.
func (f *selection) narrows() bool { return f.namespace != "" && !f.everywhere || f.selector != "" }

// selects reports whether an object in a namespace and with labels is meant.
func (f *selection) selects(namespace string, labels map[string]string) bool {
	if f.namespace != "" && !f.everywhere && namespace != f.namespace {
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

// in returns the reference that an argument means: in the namespace of -n if it names none.
func (f *selection) in(ref source.Reference) source.Reference {
	if ref.Namespace == "" && !f.everywhere {
		ref.Namespace = f.namespace
	}
	return ref
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
}

// open reads the objects and prepares their environment.
func (p *program) open(f *sourceFlags) (*session, error) {
	if err := f.outputFlags.check(); err != nil {
		return nil, err
	}
	s := &session{program: p, flags: f, set: new(source.Set), origins: p.origins("")}
	var err error
	if s.env, err = p.environment(f, s.set); err != nil {
		return nil, err
	}
	s.bad = p.load(s.set, &f.documentFlags)
	if !f.quiet {
		p.warn(errors.Join(s.set.Warnings...))
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
		fmt.Fprintf(p.stderr, "skipped %d documents of other kinds\n", count)
	}
}

// load reads documents into set. The error joins the defects; good objects are in
// the set all the same. A Helm template in a directory is a warning of the set.
func (p *program) load(set *source.Set, f *documentFlags) error {
	var errs []error
	for _, name := range f.files {
		errs = append(errs, p.loadFile(set, name, f.exclude))
	}
	return errors.Join(errs...)
}

func (p *program) loadFile(set *source.Set, name string, exclude []string) error {
	if name == "-" {
		return set.Decode("-", p.stdin)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(name)
		if err != nil {
			return err
		}
		defer root.Close()
		return loadDir(set, root.FS(), exclude)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return set.Decode(name, f)
}

func loadDir(set *source.Set, dir fs.FS, exclude []string) error {
	view, err := documentsIn(dir, exclude)
	if err != nil {
		return err
	}
	bad := flatten(set.DecodeFS(view, "."))
	templates := map[string]bool{}
	bad = slices.DeleteFunc(bad, func(err error) bool {
		e, ok := errors.AsType[*source.DocumentError](err)
		if !ok {
			return false
		}
		is, known := templates[e.File]
		if !known {
			text, _ := fs.ReadFile(dir, e.File)
			is = isTemplate(text)
			templates[e.File] = is
			if is {
				set.Warnings = append(set.Warnings, templateWarning(e.File))
			}
		}
		return is
	})
	return errors.Join(bad...)
}

// documentsIn is a directory of -f without what exclude and the files .headgateignore in it leave out.
func documentsIn(dir fs.FS, exclude []string) (fs.FS, error) {
	rules, err := artifact.Ignore{Base: exclude, File: ".headgateignore"}.Compile(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	return rules.View(context.Background(), dir), nil
}

// isTemplate reports whether a file with a defect is taken for a Helm template.
func isTemplate(text []byte) bool { return bytes.Contains(text, []byte("{{")) }

func templateWarning(file string) error {
	return &source.DocumentError{File: file, Err: errors.New("is a Helm template, which is not read: leave it out with --exclude, or in .headgateignore")}
}

// prepare opens a session and returns the objects that the command works on:
// those of -f that args name, or those that URLs stand for.
func (p *program) prepare(ctx context.Context, f *sourceFlags, args []string) (*session, []source.Object, error) {
	s, err := p.open(f)
	if err != nil {
		return nil, nil, err
	}
	if f.parallel < 1 {
		return nil, nil, usage("--parallel %d: want 1 or more", f.parallel)
	}
	if err := f.urlForm.check(len(f.files) == 0); err != nil {
		return nil, nil, err
	}
	var objects []source.Object
	if s.typed = len(f.files) == 0; s.typed {
		if len(args) == 0 {
			return nil, nil, usage("give objects with -f, or URLs such as https://HOST/PATH, ssh://USER@HOST/PATH, oci://HOST/PATH or s3://BUCKET")
		}
		for _, arg := range args {
			obj, err := s.objectOf(ctx, arg)
			if err != nil {
				return nil, nil, err
			}
			if slices.ContainsFunc(objects, func(other source.Object) bool { return source.ReferenceTo(other) == source.ReferenceTo(obj) }) {
				return nil, nil, usage("%s: another URL has the same name: fetch it by itself, with --name", redact.String(arg))
			}
			objects = append(objects, obj)
		}
		return s, objects, nil
	}
	if err := f.fit(""); err != nil {
		return nil, nil, err
	}
	if objects, err = s.selected(args); err != nil {
		return nil, nil, err
	}
	switch {
	case len(objects) == 0 && s.bad != nil:
		return nil, nil, &exitError{exitUsage, s.bad}
	case len(objects) == 0:
		return nil, nil, usage("no objects in %s", strings.Join(f.files, ", "))
	}
	return s, objects, nil
}

// selected returns the objects that args name, or all, as far as the flags select
// them. Once some are not selected, what is wrong with other documents is a warning.
func (s *session) selected(args []string) ([]source.Object, error) {
	all := s.set.Objects
	for i, arg := range args {
		ref, err := source.ParseReference(arg)
		if err == nil && ref.Name != "" {
			arg = sourceName(s.flags.in(ref))
		}
		found, err := s.set.Find(arg)
		if err != nil { // what did not decode may be what was named
			return nil, &exitError{exitUsage, errors.Join(s.bad, err)}
		}
		if i == 0 {
			all = nil
		}
		for _, obj := range found {
			if !slices.Contains(all, obj) {
				all = append(all, obj)
			}
		}
	}
	narrows := len(args) > 0 || s.flags.narrows()
	if len(args) > 0 { // they have the namespace if they named none
		s.flags.namespace = ""
	}
	var objects []source.Object
	names := map[string]bool{}
	for _, obj := range all {
		if s.flags.selects(source.ReferenceTo(obj).Namespace, obj.Head().Metadata.Labels) {
			objects = append(objects, obj)
			names[obj.Head().String()] = true
		}
	}
	if !narrows || len(objects) == 0 {
		return objects, nil
	}
	var bad, others []error
	for _, err := range flatten(s.bad) {
		if e, ok := errors.AsType[*source.DocumentError](err); ok && !names[e.Object] {
			others = append(others, err)
		} else {
			bad = append(bad, err)
		}
	}
	if s.bad = errors.Join(bad...); !s.flags.quiet {
		s.warn(errors.Join(others...))
	}
	return objects, nil
}

// decoded returns the object of a document.
func decoded(document string) (source.Object, error) {
	set := new(source.Set)
	if err := set.Decode("status", strings.NewReader(document)); err != nil {
		return nil, err
	}
	if len(set.Objects) != 1 {
		return nil, fmt.Errorf("%d objects, want one", len(set.Objects))
	}
	return set.Objects[0], nil
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

// completeObjects offers the objects in the files of -f; never those on standard
// input, which is the user's terminal.
func completeObjects(files *[]string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		set := new(source.Set)
		quiet := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
		for _, name := range *files {
			if name != "-" {
				_ = quiet.loadFile(set, name, nil) // what can be read is offered
			}
		}
		return addresses(set), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeStored offers the objects of a store, and files.
func completeStored(dir *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		set, _ := ledgerOf(*dir).List() // what can be read is offered
		return addresses(set), cobra.ShellCompDirectiveDefault
	}
}

func addresses(set *source.Set) []string {
	names := make([]string, len(set.Objects))
	for i, obj := range set.Objects {
		names[i] = argumentOf(obj)
	}
	return names
}
