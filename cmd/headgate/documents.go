package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// documentFlags select the documents that are read, and the objects in them.
type documentFlags struct {
	files   []string
	counts  []int // number of objects in the set after each of files
	exclude []string
	verbose bool
	selection
}

func (f *documentFlags) register(c *cobra.Command) {
	f.registerFiles(c)
	f.selection.register(c)
}

// registerFiles adds the flags of documents for commands that use all objects in them.
func (f *documentFlags) registerFiles(c *cobra.Command) {
	fl := c.Flags()
	fl.StringArrayVarP(&f.files, "filename", "f", nil, "`FILE`, directory or - (standard input) with objects and Secrets; repeatable")
	fl.StringArrayVar(&f.exclude, "exclude", nil, "`GLOB` of files and directories that are left out of a directory of -f, like a line of its file .headgateignore; repeatable")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "list the documents of other kinds; a Kustomization with its source")
}

// A selection selects objects by argument, by namespace and by label.
type selection struct {
	namespace     string
	allNamespaces bool
	selector      string
	all           bool
	refs          []objectArgument // empty selects all
}

// An objectArgument names one object, or all objects of a kind.
type objectArgument struct {
	source.Reference
	written string // the same, with the kind as the user wrote it
}

func (f *selection) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "", "only objects in `NAMESPACE`, also for arguments KIND/NAME; default all")
	fl.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "objects in all namespaces (the default)")
	fl.StringVarP(&f.selector, "selector", "l", "", "only objects with `LABELS`, such as team=shop,stage!=test,canary,!old")
	fl.BoolVar(&f.all, "all", false, "all objects (the default of commands that do not need names)")
}

// narrows reports whether the flags exclude any objects.
func (f *selection) narrows() bool { return f.namespace != "" && !f.allNamespaces || f.selector != "" }

// parseArguments parses arguments in the forms of kubectl and flux: KIND/NAME, KIND, KIND,KIND or KIND
// NAME..., each also after the word sources. No argument, or all, selects all objects. If needed is
// set, the command requires names.
func (f *selection) parseArguments(args []string, needed bool) error {
	needed = needed && !f.all && !f.narrows()
	for len(args) > 0 && (args[0] == "source" || args[0] == "sources" || args[0] == "all" && !needed) {
		args = args[1:]
	}
	if len(args) == 0 && needed {
		return usage("name objects as KIND/NAME, or select some with --all, -n or -l")
	}
	if len(args) > 1 && !strings.Contains(args[0]+args[1], "/") {
		if _, err := source.ParseReference(args[1]); err != nil { // not a kind, so it is a name
			kind := args[0] + "/"
			args = mapSlice(args[1:], func(name string) string { return kind + name })
		}
	}
	for _, arg := range args {
		for name := range strings.SplitSeq(arg, ",") {
			ref, err := source.ParseReference(name)
			switch {
			case err != nil:
				return &exitError{exitUsage, err}
			case ref.Name == "" && needed:
				return usage("%q names no object: write KIND/NAME or KIND/NAMESPACE/NAME, or select some with --all, -n or -l", name)
			case ref.Namespace == "" && !f.allNamespaces:
				ref.Namespace = f.namespace
			}
			kind, _, _ := strings.Cut(name, "/")
			f.refs = append(f.refs, objectArgument{ref, sourceName(source.Reference{Kind: kind, Namespace: ref.Namespace, Name: ref.Name})})
		}
	}
	return nil
}

// selectsName reports whether the arguments and the namespace select an object, whatever its labels are.
func (f *selection) selectsName(ref source.Reference) bool {
	if len(f.refs) == 0 {
		return f.namespace == "" || f.allNamespaces || ref.Namespace == f.namespace
	}
	return slices.ContainsFunc(f.refs, func(r objectArgument) bool { return r.Selects(ref) })
}

// selects reports whether the selection includes an object with these labels.
func (f *selection) selects(ref source.Reference, labels map[string]string) bool {
	if !f.selectsName(ref) {
		return false
	}
	for term := range strings.SplitSeq(f.selector, ",") {
		name, not := strings.CutPrefix(strings.TrimSpace(term), "!")
		name, want, compares := strings.Cut(name, "=")
		name, differs := strings.CutSuffix(name, "!")
		value, present := labels[strings.TrimSpace(name)]
		want = strings.TrimSpace(strings.TrimPrefix(want, "=")) // "==" means "="
		if term != "" && (compares && (value == want && present) == differs || !compares && present == not) {
			return false
		}
	}
	return true
}

// checkFound returns an error for names that match no object in found and, if unique is set, for names
// that match more than one.
func (f *selection) checkFound(found []source.Reference, unique bool) error {
	var errs []error
	for _, ref := range f.refs {
		count := 0
		for _, other := range found {
			if ref.Selects(other) {
				count++
			}
		}
		switch {
		case ref.Name == "":
		case count == 0:
			errs = append(errs, fmt.Errorf("%s: no such object", ref.written))
		case count > 1 && unique:
			return usage("%s names %d objects: write KIND/NAMESPACE/NAME, or give their namespace with -n", ref.written, count)
		}
	}
	return errors.Join(errs...)
}

// filter returns the filter for a server. A filter has room for one name: with several names the
// client selects.
func (f *selection) filter() (filter api.Filter) {
	if len(f.refs) == 1 {
		filter.Kind, filter.Namespace, filter.Name = f.refs[0].Kind, f.refs[0].Namespace, f.refs[0].Name
	} else if len(f.refs) == 0 && !f.allNamespaces {
		filter.Namespace = f.namespace
	}
	return filter
}

// A session holds the state that the commands on sources share.
type session struct {
	*program
	flags     *sourceFlags
	set       *source.Set
	decodeErr error // errors of objects that did not decode; the others are processed
	fromURLs  bool  // URLs and flags define the objects
	env       source.Env
	origins   headgate.Origins // without a cache
	opened    []io.Closer      // closed by close
}

// close closes the files and content that the session opened.
func (s *session) close() {
	for _, c := range s.opened {
		c.Close()
	}
}

// openSession reads the documents and prepares the environment of the objects. The caller closes the
// session.
func (p *program) openSession(f *sourceFlags) (*session, error) {
	s := &session{program: p, flags: f, set: new(source.Set), origins: p.origins("")}
	var err error
	if s.env, err = p.sourceEnv(f, s.set); err != nil {
		return nil, err
	}
	s.decodeErr = p.load(s.set, &f.documentFlags)
	if !f.quiet {
		p.warn(s.set.Warnings...)
		p.printSkipped(s.set.Others, s.set.Skipped, f.verbose)
	}
	return s, nil
}

// printSkipped prints how many documents of other kinds there are. With verbose it also lists them.
func (p *program) printSkipped(others []source.Other, count int, verbose bool) {
	for _, o := range others {
		if verbose {
			fmt.Fprintf(p.stderr, "skipped %s\n", o)
		}
	}
	if count > 0 {
		fmt.Fprintf(p.stderr, "skipped documents of other kinds: %d\n", count)
	}
}

// load reads documents into set. It returns the joined errors of invalid documents; set has the
// valid objects nevertheless. A Helm template in a directory adds a warning to the set.
func (p *program) load(set *source.Set, f *documentFlags) error {
	var errs []error
	for _, name := range f.files {
		errs = append(errs, p.decode(name, f.exclude, &set.Warnings, func(t fileText) error { return set.Decode(t.name, bytes.NewReader(t.data)) }))
		f.counts = append(f.counts, len(set.Objects))
	}
	return errors.Join(errs...)
}

// prepare opens a session and returns the objects that the command works on.
func (p *program) prepare(ctx context.Context, f *sourceFlags, args []string) (*session, []source.Object, error) {
	s, err := p.openSession(f)
	if err != nil {
		return nil, nil, err
	}
	objects, err := s.objects(ctx, args)
	if err == nil && !f.quiet {
		s.warnOfUnused(slices.Concat(s.set.Objects, objects))
	}
	return s, objects, err
}

// warnOfUnused warns of the values of --from that replace the origin of no object. It does not warn
// if a repository has submodules, whose URLs are not known yet.
func (s *session) warnOfUnused(objects []source.Object) {
	for _, url := range slices.Sorted(maps.Keys(s.env.Local)) {
		url = redact.String(url)
		used := func(obj source.Object) bool {
			g, git := obj.(*source.GitRepository)
			origin := source.OriginOf(obj)
			return git && g.Spec.RecurseSubmodules || origin == url || strings.HasPrefix(url, origin+"/") // the charts of a registry are below its URL
		}
		if !slices.ContainsFunc(objects, used) {
			s.warn(fmt.Errorf("--from %s replaces nothing: it is the spec.url of no object, nor ENDPOINT/BUCKET of a Bucket", url))
		}
	}
}

// objects returns the objects of -f that args name, or without -f the objects that URLs define.
func (s *session) objects(ctx context.Context, args []string) (objects []source.Object, err error) {
	s.fromURLs = len(s.flags.files) == 0
	switch {
	case s.flags.parallel < 1:
		return nil, usage("--parallel %d: want 1 or more", s.flags.parallel)
	case !s.fromURLs:
		if err = s.flags.checkSort(""); err == nil {
			objects, err = s.selectObjects(args)
		}
		if err == nil && len(objects) == 0 {
			err = &exitError{exitUsage, cmp.Or(s.decodeErr, fmt.Errorf("no objects in %s", strings.Join(s.flags.files, ", ")))}
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

// selectObjects returns the objects of -f that args and flags select. If they leave out some objects,
// errors of the other documents become warnings.
func (s *session) selectObjects(args []string) ([]source.Object, error) {
	if err := s.flags.parseArguments(args, false); err != nil {
		return nil, err
	}
	for _, ref := range s.flags.refs {
		if ref.Name == "" {
			continue
		}
		if _, err := s.set.Find(ref.written); err != nil { // the named object may be one that did not decode
			return nil, &exitError{exitUsage, errors.Join(s.decodeErr, err)}
		}
	}
	var objects []source.Object
	names := map[string]bool{}
	var outputs []source.Reference // outputs of selected generators, which precede them
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
	var selectedErrs, otherErrs []error
	for _, err := range document.Split(s.decodeErr) {
		if e, ok := errors.AsType[*source.DocumentError](err); ok && !names[e.Object] {
			otherErrs = append(otherErrs, err)
		} else {
			selectedErrs = append(selectedErrs, err)
		}
	}
	if s.decodeErr = errors.Join(selectedErrs...); !s.flags.quiet {
		s.warn(otherErrs...)
	}
	return objects, nil
}

// decodeObject returns the object that a document defines.
func decodeObject(document string) (source.Object, error) {
	set := new(source.Set)
	if err := set.Decode("status", strings.NewReader(document)); err != nil {
		return nil, err
	}
	if len(set.Objects) == 0 {
		return nil, errors.New("it is no document of a source")
	}
	return set.Objects[0], nil // the outputs of a generator follow it
}

// withoutGenerators returns the objects that can have artifacts. It leaves out generators, because
// their outputs are listed too.
func withoutGenerators(objects []source.Object) []source.Object {
	return slices.DeleteFunc(slices.Clone(objects), func(obj source.Object) bool {
		_, generator := obj.(*source.ArtifactGenerator)
		return generator
	})
}

// argumentOf returns KIND/NAMESPACE/NAME of an object as an argument of commands, with the kind as
// in its document.
func argumentOf(obj source.Object) string {
	o := source.Involved(obj)
	return sourceName(source.Reference{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
}

// sourceName formats a reference as an argument of commands.
func sourceName(ref source.Reference) string {
	parts := slices.DeleteFunc([]string{strings.ToLower(ref.Kind), ref.Namespace, ref.Name}, func(part string) bool { return part == "" })
	return strings.Join(parts, "/")
}

// addressOf returns the address of obj, or "" if it has none. Such objects are rejected later, with
// their names.
func addressOf(obj source.Object) string {
	address, err := source.Address(obj)
	if err != nil {
		return obj.Head().Metadata.Name
	}
	return address
}

// completeObjects completes the objects in the readable files of -f. It does not read standard
// input, which is the user's terminal.
func (f *documentFlags) completeObjects(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	set, quietProgram := new(source.Set), &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	_ = quietProgram.load(set, f)
	return mapSlice(set.Objects, argumentOf), cobra.ShellCompDirectiveNoFileComp
}

// completeStored completes the objects of a store that can be read, and files.
func completeStored(dir *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		set, _ := ledgerOf(*dir).List()
		return mapSlice(set.Objects, argumentOf), cobra.ShellCompDirectiveDefault
	}
}

// manifestFlags name the documents of a rollout.
type manifestFlags struct {
	files   []string
	secrets string
}

func (f *manifestFlags) register(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "`FILE`, directory or - (standard input) with Canary objects, and the Secrets, alert providers and metric templates that they name; repeatable")
	registerSecrets(c, &f.secrets)
}

// rolloutDocuments are the decoded documents of a rollout.
type rolloutDocuments struct {
	canaries []*rollout.Canary
	warnings []error
	texts    []fileText
	secrets  *source.Set // Secrets in the documents
}

// A fileText is the content of a file.
type fileText struct {
	name string
	data []byte
}

// readDocuments reads the documents. If it fails, it prints their warnings; otherwise the caller
// does.
func (p *program) readDocuments(f *manifestFlags) (*rolloutDocuments, error) {
	if len(f.files) == 0 {
		return nil, usage("give a Canary with -f")
	}
	b := &rolloutDocuments{secrets: new(source.Set)}
	var errs []error
	for _, name := range f.files {
		errs = append(errs, p.decode(name, nil, &b.warnings, func(t fileText) error {
			b.texts = append(b.texts, t)
			canaries, warnings, err := rollout.Decode(t.name, bytes.NewReader(t.data))
			b.canaries, b.warnings = append(b.canaries, canaries...), append(b.warnings, warnings...)
			if err == nil { // otherwise defects are reported twice
				err = b.secrets.Decode(t.name, bytes.NewReader(t.data))
			}
			return err
		}))
	}
	b.warnings = append(b.warnings, b.secrets.Warnings...)
	if err := errors.Join(errs...); err != nil {
		p.warn(b.warnings...)
		return nil, err
	}
	return b, nil
}

// checkCanary returns the reasons why a canary cannot be analyzed. Decode has added the same reasons to
// the warnings, with their lines. checkCanary returns those as errors and removes them from the
// warnings.
func (b *rolloutDocuments) checkCanary(c *rollout.Canary) error {
	var located []error
	rules := document.Split(c.Check())
	for _, rule := range rules {
		if i := slices.IndexFunc(b.warnings, func(w error) bool { return strings.HasSuffix(w.Error(), ": "+rule.Error()) }); i >= 0 {
			rule = b.warnings[i]
			b.warnings = slices.Delete(b.warnings, i, i+1)
		}
		located = append(located, rule)
	}
	return errors.Join(located...)
}

// decode decodes the content of one value of -f: a file, standard input, or the files of a
// directory that have the names of documents, as [source.Set.DecodeFS] does. It skips files that
// exclude and .headgateignore exclude. It decodes valid files even if others fail. A Helm template
// in a directory adds a warning.
func (p *program) decode(root string, exclude []string, warnings *[]error, decode func(fileText) error) error {
	read := func(name string, f io.ReadCloser, err error) error {
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, source.MaxStream+1)) // one byte more than the decoders' limit
		if err != nil {
			return err // a truncated document may lack fields
		}
		if err = decode(fileText{name, data}); err != nil && name != root && bytes.Contains(data, []byte("{{")) {
			err = errors.New("is a Helm template, which is not read: leave it out with --exclude, or in .headgateignore")
			*warnings, err = append(*warnings, &source.DocumentError{File: name, Err: err}), nil
		}
		return err
	}
	info, err := os.Stat(root)
	switch {
	case root == "-":
		return read(root, io.NopCloser(p.stdin), nil)
	case err != nil:
		return fmt.Errorf("-f: %w", err)
	case !info.IsDir():
		f, err := os.Open(root)
		return read(root, f, err)
	}
	top, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer top.Close()
	rules, err := artifact.Ignore{Base: exclude, File: ".headgateignore"}.Compile(context.Background(), top.FS())
	if err != nil {
		return err
	}
	dir := rules.View(context.Background(), top.FS())
	var errs []error
	for file, err := range document.Files(dir, ".") {
		var info fs.FileInfo
		if err == nil {
			info, err = fs.Stat(dir, file)
		}
		if err == nil && info.Mode().IsRegular() { // opening a pipe would block until a writer opens it
			f, open := dir.Open(file)
			err = read(path.Join(filepath.ToSlash(root), file), f, open)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// findCanary returns the canary called NAME or NAMESPACE/NAME. If name is "", there must be exactly one.
func (b *rolloutDocuments) findCanary(name string) (*rollout.Canary, error) {
	var found []*rollout.Canary
	var names []string
	for _, c := range b.canaries {
		names = append(names, canaryName(c))
		if name == "" || name == c.Metadata.Name || name == canaryName(c) {
			found = append(found, c)
		}
	}
	available := strings.Join(names, ", ")
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0:
		return nil, usage("no Canary in the files of -f")
	case len(found) == 0:
		return nil, usage("no canary %q; there are %s", name, available)
	case !slices.ContainsFunc(found, func(c *rollout.Canary) bool { return canaryName(c) != canaryName(found[0]) }):
		return nil, usage("canary %s is declared more than once", canaryName(found[0]))
	}
	return nil, usage("several canaries: name one of %s", available)
}

// readCanary reads the manifests and returns the named canary. It fails if the canary cannot be
// analyzed.
func (p *program) readCanary(f *manifestFlags, name string) (*rollout.Canary, *rolloutDocuments, error) {
	b, err := p.readDocuments(f)
	if err != nil {
		return nil, nil, err
	}
	canary, err := b.findCanary(name)
	if err == nil {
		err = b.checkCanary(canary)
	}
	p.warn(b.warnings...)
	return canary, b, err
}

// decodeAll decodes the documents of one kind from all files.
func decodeAll[T any](b *rolloutDocuments, decode func(string, io.Reader) ([]T, error)) ([]T, error) {
	var all []T
	var errs []error
	for _, t := range b.texts {
		some, err := decode(t.name, bytes.NewReader(t.data))
		all, errs = append(all, some...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// canaryName returns NAMESPACE/NAME of a canary.
func canaryName(c *rollout.Canary) string { return c.Namespace() + "/" + c.Metadata.Name }

// rolloutSecrets returns a lookup of Secrets in documents, in the directory dir and in the environment.
func (p *program) rolloutSecrets(dir string, documents *source.Set) (rollout.Secrets, error) {
	places, err := p.secretLookup(dir, documents)
	return func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		s, err := places.Secret(ctx, namespace, name)
		return s.Data, err
	}, err
}

// completeCanaries completes the canaries in the files of -f.
func completeCanaries(f *manifestFlags) cobra.CompletionFunc {
	return completeNames(1, func(context.Context, *cobra.Command, []string) []string {
		return mapSlice(f.completionCanaries(), canaryName)
	})
}

// completionCanaries returns the canaries in the readable files of -f. It does not read standard input, which
// is the user's terminal.
func (f *manifestFlags) completionCanaries() []*rollout.Canary {
	files := slices.Compact(slices.Sorted(slices.Values(f.files))) // completion parses the flags twice
	quietProgram := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	b, err := quietProgram.readDocuments(&manifestFlags{files: files})
	if err != nil {
		return nil
	}
	return b.canaries
}
