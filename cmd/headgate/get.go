package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// getFlags say which sources are shown, and how.
type getFlags struct {
	keeperFlags
	watch  bool
	output string
}

var getFormats = []string{"table", "wide", "json", "yaml", "name"}

func (p *program) get() *cobra.Command {
	f := new(getFlags)
	c := &cobra.Command{
		Use:   "get [KIND | KIND/NAME | KIND/NAMESPACE/NAME]...",
		Short: "Print sources as they are kept: readiness, revision, last error",
		Long: `Get prints sources as the server that keeps them knows them (headgate serve), or as the files of the store say when none
runs. Nothing is fetched. A kind may be written as in documents of either group, in any case, in the plural, or short:
git, gitrepo, helmrepo, hc, ocirepo, ea.

AGE is the time since the artifact was stored. MESSAGE is the last error of a source that is not ready, or who suspended it and
why. With -o yaml or json each source is the document as fetch prints it, with its status.

What is wrong with documents of the server goes to standard error.

With -w a line, or a document, follows for each change until it is interrupted; when the server is lost it waits until it is back.

Exit codes: 0 the sources were printed, ready or not; 1 one that was named does not exist, or the server was not reached or refused; 2 usage.`,
		Example: `  headgate get
  headgate get gitrepository -w
  headgate get gitrepository/shop/checkout -o yaml
  headgate get --server https://sources.example.org --token-file token -o wide`,
		RunE: func(c *cobra.Command, args []string) error { return asFailure(p.runGet(c.Context(), f, args)) },
	}
	f.register(c)
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "print changes as they happen")
	c.Flags().StringVarP(&f.output, "output", "o", "table", "what to print: "+either(getFormats))
	complete(c, "output", getFormats...)
	c.ValidArgsFunction = p.completeKept(&f.keeperFlags)
	return c
}

func (p *program) runGet(ctx context.Context, f *getFlags, args []string) error {
	if !slices.Contains(getFormats, f.output) {
		return usage("-o %q: want %s", f.output, either(getFormats))
	}
	refs, err := references(args, true)
	if err != nil {
		return err
	}
	k, err := p.openKeeper(&f.keeperFlags)
	if err != nil {
		return err
	}
	if f.watch {
		if err := p.warnOf(ctx, k); err != nil {
			return err
		}
		return p.watchSources(ctx, f, k, refs)
	}
	found, err := k.sources(ctx, refs, f.output == "yaml" || f.output == "json")
	if err == nil {
		err = p.warnOf(ctx, k)
	}
	if err != nil {
		return err
	}
	if err := missing(refs, found); err != nil && len(found) == 0 {
		return err
	}
	return errors.Join(p.printSources(f.output, found), missing(refs, found))
}

// warnOf tells what is wrong with documents.
func (p *program) warnOf(ctx context.Context, k keeper) error {
	defects, err := k.defects(ctx)
	for _, defect := range defects {
		p.warn(errors.New(defect))
	}
	return err
}

// missing names what was asked for and is not there.
func missing(refs []source.Reference, found []api.Source) error {
	var errs []error
	for _, ref := range refs {
		if ref.Name != "" && !slices.ContainsFunc(found, func(s api.Source) bool { return ref.Selects(sourceRef(s)) }) {
			errs = append(errs, fmt.Errorf("%s: no such object", sourceName(ref)))
		}
	}
	return errors.Join(errs...)
}

// printSources prints sources.
func (p *program) printSources(format string, found []api.Source) error {
	switch format {
	case "name":
		for _, s := range found {
			if _, err := fmt.Fprintln(p.stdout, argument(s)); err != nil {
				return err
			}
		}
		return nil
	case "json", "yaml":
		objects := make([]source.Object, len(found))
		for i, s := range found {
			var err error
			if objects[i], err = decoded(s.Document); err != nil {
				return fmt.Errorf("document of %s: %w", argument(s), err)
			}
		}
		return printDocuments(p.stdout, format, objects)
	}
	return newSourceTable(p.stdout, format == "wide").print(found)
}

// watchSources prints sources, and then what changes.
func (p *program) watchSources(ctx context.Context, f *getFlags, k keeper, refs []source.Reference) error {
	w := &sourceWatch{program: p, keeper: k, format: f.output, table: newSourceTable(p.stdout, f.output == "wide"), told: map[source.Reference]string{}}
	err := k.watch(ctx, refs, func(n api.Notice) error { return w.notice(ctx, n) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// A sourceWatch prints what a keeper tells.
type sourceWatch struct {
	*program
	keeper keeper
	format string
	table  *sourceTable
	synced bool
	first  []api.Source                // until it is synced
	told   map[source.Reference]string // what was printed last
}

func (w *sourceWatch) notice(ctx context.Context, n api.Notice) error {
	switch {
	case n.Synced && !w.synced:
		w.synced = true
		first := w.first
		w.first = nil
		if w.format == "table" || w.format == "wide" {
			for _, s := range first {
				w.told[sourceRef(s)] = w.table.key(s)
			}
			return w.table.print(first)
		}
		for _, s := range first {
			if err := w.tell(ctx, s); err != nil {
				return err
			}
		}
	case n.Gone != nil:
		return w.gone(api.Source{Kind: n.Gone.Kind, Namespace: n.Gone.Namespace, Name: n.Gone.Name, Phase: "removed"})
	case n.Source == nil:
	case !w.synced:
		w.first = append(w.first, *n.Source)
	default:
		return w.tell(ctx, *n.Source)
	}
	return nil
}

// tell prints a source unless it looks as it did when it was printed last.
func (w *sourceWatch) tell(ctx context.Context, s api.Source) error {
	ref, text := sourceRef(s), ""
	switch w.format {
	case "table", "wide":
		text = w.table.key(s)
	case "name":
		text = argument(s)
	default:
		whole, err := w.keeper.sources(ctx, []source.Reference{ref}, true)
		if err != nil || len(whole) == 0 {
			return err // it is gone again
		}
		s = whole[0]
		text = s.Document
	}
	if w.told[ref] == text {
		return nil
	}
	w.told[ref] = text
	switch w.format {
	case "table", "wide":
		return w.table.row(s)
	case "yaml":
		_, err := fmt.Fprint(w.stdout, "---\n")
		return errors.Join(err, w.printSources("yaml", []api.Source{s}))
	case "json":
		obj, err := decoded(s.Document)
		if err != nil {
			return err
		}
		text, err := source.EncodeJSON(obj)
		if err != nil {
			return err
		}
		return printLine(w.stdout, json.RawMessage(text))
	}
	return w.printSources(w.format, []api.Source{s})
}

// gone prints that a source is no more; documents have no words for it.
func (w *sourceWatch) gone(s api.Source) error {
	ref := sourceRef(s)
	w.first = slices.DeleteFunc(w.first, func(s api.Source) bool { return sourceRef(s) == ref })
	if _, was := w.told[ref]; !was || w.format != "table" && w.format != "wide" {
		delete(w.told, ref)
		return nil
	}
	delete(w.told, ref)
	return w.table.row(s)
}

// completeKept offers the sources of the store, and kinds.
func (p *program) completeKept(f *keeperFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		quiet := &program{stdin: p.stdin, stdout: p.stderr, stderr: io.Discard, lookup: p.lookup}
		k, err := quiet.openKeeper(f)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		found, err := k.sources(ctx, nil, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, s := range found {
			if name := argument(s); strings.HasPrefix(name, strings.ToLower(start)) && !slices.Contains(args, name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
