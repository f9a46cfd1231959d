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
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
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
		texts, err := p.readTexts(name, nil)
		b.texts, errs = append(b.texts, texts...), append(errs, err)
	}
	for _, t := range b.texts {
		canaries, warnings, err := rollout.Decode(t.name, bytes.NewReader(t.data))
		b.canaries, b.warnings = append(b.canaries, canaries...), append(b.warnings, warnings...)
		if err == nil { // or the same defects are told twice
			err = b.documents.Decode(t.name, bytes.NewReader(t.data))
		}
		if err != nil && t.below && isTemplate(t.data) {
			b.warnings, err = append(b.warnings, templateWarning(t.name)), nil
		}
		errs = append(errs, err)
	}
	b.warnings = append(b.warnings, b.documents.Warnings...)
	if err := errors.Join(errs...); err != nil {
		p.tellWarnings(b)
		return nil, asUsage(err)
	}
	return b, nil
}

func (p *program) tellWarnings(b *book) {
	for _, w := range b.warnings {
		fmt.Fprintf(p.stderr, "warning: %s\n", redact.String(w.Error()))
	}
}

// refusal returns what no analysis of a canary starts with. Decode has warned of
// the same, with the line: that is the error then, and no warning any more.
func (b *book) refusal(c *rollout.Canary) error {
	err := c.Check()
	if err == nil {
		return nil
	}
	rules := strings.Split(err.Error(), "\n")
	var located []error
	b.warnings = slices.DeleteFunc(b.warnings, func(w error) bool {
		refused := slices.ContainsFunc(rules, func(rule string) bool { return strings.HasSuffix(w.Error(), ": "+rule) })
		if refused {
			located = append(located, w)
		}
		return refused
	})
	if len(located) == len(rules) {
		err = errors.Join(located...)
	}
	return err
}

// readTexts reads a file, standard input, or the files of a directory that are
// named like documents, as [source.Set.DecodeFS] does: of these all that it can.
func (p *program) readTexts(name string, exclude []string) (texts []text, err error) {
	if name == "-" {
		return readText(name, p.stdin)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readText(name, f)
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
	err = fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name))):
			var more []text
			more, err = readRegular(dir, name)
			texts = append(texts, more...)
		}
		errs = append(errs, err)
		return nil
	})
	return texts, errors.Join(append(errs, err)...)
}

// readRegular reads a regular file; one of another kind has no text.
func readRegular(dir fs.FS, name string) ([]text, error) {
	info, err := fs.Stat(dir, name) // before it is opened: a pipe would wait for its writer
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	texts, err := readText(name, f)
	for i := range texts {
		texts[i].below = true
	}
	return texts, err
}

// maxText is the size of a file of documents, in bytes.
const maxText = 16 << 20

func readText(name string, r io.Reader) ([]text, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxText+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(data) > maxText:
		return nil, fmt.Errorf("%s: larger than %d MiB: split it", name, maxText>>20)
	}
	return []text{{name: name, data: data}}, nil
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
		err = asUsage(b.refusal(canary))
	}
	p.tellWarnings(b)
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
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		s, err := places.Secret(ctx, namespace, name)
		return s.Data, err
	}, nil
}

// asUsage gives err the exit code 2, which is that of every error of a rollout.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// completeCanaries offers the canaries in the files of -f.
func completeCanaries(f *manifestFlags) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		for _, canary := range f.offered() {
			if len(args) == 0 {
				names = append(names, nameOf(canary))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// offered returns the canaries that can be read; never those on standard
// input, which is the user's terminal.
func (f *manifestFlags) offered() []*rollout.Canary {
	files := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(f.files))), func(name string) bool { return name == "-" }) // flags are parsed twice for completion
	quiet := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	b, err := quiet.readBook(&manifestFlags{files: files})
	if err != nil {
		return nil
	}
	return b.canaries
}
