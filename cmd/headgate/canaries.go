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
	name string
	data []byte
}

// readBook reads the documents. Their warnings are told with an error, or else
// by the caller.
func (p *program) readBook(ctx context.Context, f *manifestFlags) (*book, error) {
	if len(f.files) == 0 {
		return nil, usage("give a Canary with -f")
	}
	b := &book{documents: new(source.Set)}
	var errs []error
	for _, name := range f.files {
		texts, err := p.awaitTexts(ctx, name)
		if ctx.Err() != nil {
			return nil, &exitError{exitUsage, err}
		}
		errs = append(errs, err)
		b.texts = append(b.texts, texts...)
	}
	for _, t := range b.texts {
		canaries, warnings, err := rollout.Decode(t.name, bytes.NewReader(t.data))
		b.canaries = append(b.canaries, canaries...)
		b.warnings = append(b.warnings, warnings...)
		errs = append(errs, err)
		if err == nil { // or the same defects are told twice
			errs = append(errs, b.documents.Decode(t.name, bytes.NewReader(t.data)))
		}
	}
	b.warnings = append(b.warnings, b.documents.Warnings...)
	if err := errors.Join(errs...); err != nil {
		p.tellWarnings(b)
		return nil, &exitError{exitUsage, err}
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

// awaitTexts is readTexts, which a pipe or a terminal can keep waiting, until ctx ends.
func (p *program) awaitTexts(ctx context.Context, name string) ([]text, error) {
	type outcome struct {
		texts []text
		err   error
	}
	read := make(chan outcome, 1)
	go func() {
		texts, err := p.readTexts(name)
		read <- outcome{texts, err}
	}()
	select {
	case o := <-read:
		return o.texts, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("-f %s: not read to its end: %w", name, context.Cause(ctx))
	}
}

// readTexts reads a file, standard input, or the files of a directory that are
// named like documents, as [source.Set.DecodeFS] does.
func (p *program) readTexts(name string) ([]text, error) {
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
	return readDir(root.FS())
}

// readDir reads all that it can.
func readDir(fsys fs.FS) (texts []text, err error) {
	var errs []error
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			errs = append(errs, err)
			return nil
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !namedLikeDocuments(name):
			return nil
		}
		info, err := fs.Stat(fsys, name) // before it is opened: a pipe would wait for who writes
		if err != nil || !info.Mode().IsRegular() {
			errs = append(errs, err)
			return nil
		}
		f, err := fsys.Open(name)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		defer f.Close()
		more, err := readText(name, f)
		texts, errs = append(texts, more...), append(errs, err)
		return nil
	})
	return texts, errors.Join(append(errs, err)...)
}

func namedLikeDocuments(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
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
	return []text{{name, data}}, nil
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
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0:
		return nil, usage("no Canary in the files of -f")
	case len(found) == 0:
		return nil, usage("no canary %q; there are %s", name, strings.Join(names, ", "))
	case !slices.ContainsFunc(found, func(c *rollout.Canary) bool { return nameOf(c) != nameOf(found[0]) }):
		return nil, usage("canary %s is declared more than once", nameOf(found[0]))
	case name == "":
		return nil, usage("several canaries: name one of %s", strings.Join(names, ", "))
	}
	return nil, usage("several canaries are called %q: name one of %s", name, strings.Join(names, ", "))
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

// completeCanaries offers the canaries in the files of -f.
func completeCanaries(f *manifestFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, canary := range f.offered() {
			names = append(names, nameOf(canary))
		}
		if len(args) > 0 {
			names = nil
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// offered returns the canaries that can be read; never those on standard
// input, which is the user's terminal.
func (f *manifestFlags) offered() (canaries []*rollout.Canary) {
	quiet := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	for i, name := range f.files {
		if name == "-" || slices.Contains(f.files[:i], name) { // flags are parsed twice for completion
			continue
		}
		texts, _ := quiet.readTexts(name) // what can be read is offered
		for _, t := range texts {
			more, _, _ := rollout.Decode(t.name, bytes.NewReader(t.data))
			canaries = append(canaries, more...)
		}
	}
	return canaries
}
