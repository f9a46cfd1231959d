package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/source"
)

// manifestFlags say where the documents of a rollout are.
type manifestFlags struct {
	files   []string
	secrets string
}

func (f *manifestFlags) register(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "`FILE`, directory or - (standard input) with Canary objects, and the Secrets, alert providers and metric templates that they name; repeatable")
	registerSecrets(c, &f.secrets)
}

// A book is what the documents of a rollout say.
type book struct {
	canaries  []*rollout.Canary
	warnings  []error
	texts     []text
	documents *source.Set // the Secrets among the documents
}

// A text is a file that was read.
type text struct {
	name  string
	data  []byte
	below bool // a directory of -f
}

// readBook reads the documents. Their warnings are told with an error, or else
// by the caller.
func (p *program) readBook(f *manifestFlags) (*book, error) {
	if len(f.files) == 0 {
		return nil, usage("give a Canary with -f")
	}
	b := &book{documents: new(source.Set)}
	var errs []error
	for _, name := range f.files {
		errs = append(errs, p.decode(name, nil, &b.warnings, func(t text) error {
			b.texts = append(b.texts, t)
			canaries, warnings, err := rollout.Decode(t.name, bytes.NewReader(t.data))
			b.canaries, b.warnings = append(b.canaries, canaries...), append(b.warnings, warnings...)
			if err == nil { // or the same defects are told twice
				err = b.documents.Decode(t.name, bytes.NewReader(t.data))
			}
			return err
		}))
	}
	b.warnings = append(b.warnings, b.documents.Warnings...)
	if err := errors.Join(errs...); err != nil {
		p.warn(b.warnings...)
		return nil, err
	}
	return b, nil
}

// refusal returns what no analysis of a canary starts with. Decode has warned of
// the same, with the line: that is the error then, and no warning any more.
func (b *book) refusal(c *rollout.Canary) error {
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

// decode decodes the texts of a value of -f, good ones all the same if others are
// defective. A Helm template in a directory is a warning.
func (p *program) decode(name string, exclude []string, warnings *[]error, decode func(text) error) error {
	texts, err := p.readTexts(name, exclude)
	errs := []error{err}
	for _, t := range texts {
		err := decode(t)
		if err != nil && t.below && bytes.Contains(t.data, []byte("{{")) {
			template := errors.New("is a Helm template, which is not read: leave it out with --exclude, or in .headgateignore")
			*warnings, err = append(*warnings, &source.DocumentError{File: t.name, Err: template}), nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readTexts reads a file, standard input, or the files of a directory that are
// named like documents, as [source.Set.DecodeFS] does: of these all that it can.
func (p *program) readTexts(name string, exclude []string) (texts []text, err error) {
	read := func(name string, below bool, f io.ReadCloser, err error) error {
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, source.MaxStream+1)) // one byte more than decoders take
		if err != nil {
			return err // of half a document fields may be missing
		}
		texts = append(texts, text{name, data, below})
		return nil
	}
	if name == "-" {
		err = read(name, false, io.NopCloser(p.stdin), nil)
		return texts, err
	}
	if info, err := os.Stat(name); err != nil {
		return nil, fmt.Errorf("-f: %w", err)
	} else if !info.IsDir() {
		f, err := os.Open(name)
		err = read(name, false, f, err)
		return texts, err
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := documentsIn(root.FS(), exclude)
	if err != nil {
		return nil, err
	}
	var errs []error
	for file, err := range document.Files(dir, ".") {
		var info fs.FileInfo
		if err == nil {
			info, err = fs.Stat(dir, file)
		}
		if err == nil && info.Mode().IsRegular() { // a pipe would wait for its writer
			f, open := dir.Open(file)
			err = read(path.Join(filepath.ToSlash(name), file), true, f, open)
		}
		errs = append(errs, err)
	}
	return texts, errors.Join(errs...)
}

// find returns the canary called NAME or NAMESPACE/NAME, with "" the only one there is.
func (b *book) find(name string) (*rollout.Canary, error) {
	var found []*rollout.Canary
	var names []string
	for _, c := range b.canaries {
		names = append(names, nameOf(c))
		if name == "" || name == c.Metadata.Name || name == nameOf(c) {
			found = append(found, c)
		}
	}
	there := strings.Join(names, ", ")
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0:
		return nil, usage("no Canary in the files of -f")
	case len(found) == 0:
		return nil, usage("no canary %q; there are %s", name, there)
	case !slices.ContainsFunc(found, func(c *rollout.Canary) bool { return nameOf(c) != nameOf(found[0]) }):
		return nil, usage("canary %s is declared more than once", nameOf(found[0]))
	}
	return nil, usage("several canaries: name one of %s", there)
}

// chosenCanary reads the manifests and returns the canary that is named, if an
// analysis runs with it.
func (p *program) chosenCanary(f *manifestFlags, name string) (*rollout.Canary, *book, error) {
	b, err := p.readBook(f)
	if err != nil {
		return nil, nil, err
	}
	canary, err := b.find(name)
	if err == nil {
		err = b.refusal(canary)
	}
	p.warn(b.warnings...)
	return canary, b, err
}

// collect reads the documents of one kind from all files.
func collect[T any](b *book, decode func(string, io.Reader) ([]T, error)) ([]T, error) {
	var all []T
	var errs []error
	for _, t := range b.texts {
		some, err := decode(t.name, bytes.NewReader(t.data))
		all, errs = append(all, some...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// nameOf is the canary as the commands name it.
func nameOf(c *rollout.Canary) string { return c.Namespace() + "/" + c.Metadata.Name }

// secretsOf returns the Secrets of documents, of the directory dir and of the environment.
func (p *program) secretsOf(dir string, documents *source.Set) (rollout.Secrets, error) {
	places, err := p.secretPlaces(dir, documents)
	return func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		s, err := places.Secret(ctx, namespace, name)
		return s.Data, err
	}, err
}

// completeCanaries offers the canaries in the files of -f.
func completeCanaries(f *manifestFlags) cobra.CompletionFunc {
	return offer(func(_ context.Context, _ *cobra.Command, args []string) (names []string) {
		for _, canary := range f.offered() {
			if len(args) == 0 {
				names = append(names, nameOf(canary))
			}
		}
		return names
	})
}

// offered returns the canaries that can be read; none of standard input, which is the
// user's terminal.
func (f *manifestFlags) offered() []*rollout.Canary {
	files := slices.Compact(slices.Sorted(slices.Values(f.files))) // flags are parsed twice for completion
	quiet := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	b, err := quiet.readBook(&manifestFlags{files: files})
	if err != nil {
		return nil
	}
	return b.canaries
}
