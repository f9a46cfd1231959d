package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
)

func (p *program) get() *cobra.Command {
	f := new(statusStoreFlags)
	c := &cobra.Command{
		Use:   "get [sources] [KIND | KIND/NAME | KIND/NAMESPACE/NAME]...",
		Short: "Print sources: readiness, revision, last error",
		Long: `Get prints sources as the server (headgate serve) knows them, or if none is running, from the files of the store. It
fetches nothing. Objects can be named as kubectl and flux have it too: git app, or git,bucket. A kind can be written as in
documents of either group, in any case, in the plural, or short:

  Bucket, GitRepository (git, gitrepo), OCIRepository (oci, ocirepo), PkgRepository (pkgrepo, helmrepo),
  PkgChart (chart, hc), ExternalArtifact (ea), ArtifactGenerator (ag)

AGE is the time since the artifact was stored. MESSAGE is the last error, or who suspended the source and why. -o yaml and
json print documents as fetch does. With -w, which needs a server, it goes on with changes until it is interrupted, even
if the server restarts.

Exit codes: 0 the sources were printed, ready or not, 1 a named source does not exist, or the server refused or cannot be
reached, 2 usage.`,
		Example: `  headgate get git -w
  headgate get sources -n shop -l team=web
  headgate get gitrepository/shop/checkout -o jsonpath={.status.artifact.revision}
  headgate get --server https://sources.example.org --token-file token -o wide`,
		RunE: func(c *cobra.Command, args []string) error { return p.runGet(c.Context(), f, args) },
	}
	f.register(p, c)
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "print changes as they happen")
	f.registerFormat(c, "table", "wide", "json", "yaml", "name")
	return c
}

func (p *program) runGet(ctx context.Context, f *statusStoreFlags, args []string) error {
	k, err := p.openStatusStore(f, args, false, f.watch)
	if err != nil {
		return err
	}
	if f.watch {
		return k.watch(ctx)
	}
	found, defects, err := k.sources(ctx, f.machineReadable())
	if err != nil {
		return err
	}
	for _, defect := range defects {
		p.warn(errors.New(defect))
	}
	absent := k.checkFound(mapSlice(found, sourceRef), false)
	if len(found) == 0 && absent != nil {
		return absent
	}
	return errors.Join(p.printSources(&f.outputFlags, found), absent)
}

// printSources prints sources.
func (p *program) printSources(f *outputFlags, found []api.Source) error {
	var names []string
	var objects []source.Object
	wide := f.output == "wide"
	lines := [][]string{sourceTitles(wide)}
	for _, s := range found {
		names, lines = append(names, argumentOfSource(s)), append(lines, sourceCells(s, wide, time.Now()))
		if f.machineReadable() {
			obj, err := decodeObject(s.Document)
			if err != nil {
				return fmt.Errorf("document of %s: %w", argumentOfSource(s), err)
			}
			objects = append(objects, obj)
		}
	}
	return p.printResult(f, objects, names, lines)
}

func sourceTitles(wide bool) []string {
	if wide {
		return []string{"OBJECT", "READY", "REVISION", "AGE", "SUSPENDED", "PHASE", "CHECKED", "NEXT", "DIGEST", "ORIGIN", "MESSAGE"}
	}
	return []string{"OBJECT", "READY", "REVISION", "AGE", "SUSPENDED", "MESSAGE"}
}

// sourceCells returns a row of the table of sources. If now is the zero time, ages are left out, so that the row
// changes only with the source.
func sourceCells(s api.Source, wide bool, now time.Time) []string {
	since := func(from, to time.Time) string {
		if from.IsZero() || to.IsZero() {
			return ""
		}
		return formatAge(to.Sub(from))
	}
	stored, digest, suspended := "", "", "False"
	if s.Artifact != nil {
		stored, digest = since(s.Artifact.LastUpdateTime, now), shortDigest(s.Artifact.Digest)
	}
	if s.Suspended {
		suspended = "True"
	}
	cells := []string{s.Kind + "/" + s.Namespace + "/" + s.Name, s.Ready, shortRevision(s.Revision, wide), stored, suspended}
	if wide {
		cells = append(cells, s.Phase, since(s.Checked, now), since(now, s.Next), digest, s.Origin)
	}
	return append(cells, lastMessage(s))
}

// lastMessage returns why a source is not ready, or who suspended it and why.
func lastMessage(s api.Source) string {
	hold := s.Suspension
	switch {
	case hold != nil:
		return strings.TrimSuffix("suspended by "+cmp.Or(hold.By, "a command")+": "+hold.Reason, ": ")
	case s.Suspended:
		return "suspended by its spec"
	case len(s.Blockers) > 0:
		return "waits for " + strings.ToLower(strings.Join(s.Blockers, ", "))
	case s.Phase == "removed":
		return "removed: its document is gone"
	case s.Last != nil && s.Last.Error != "":
		return s.Last.Error
	case s.Ready != "True":
		return s.Message
	}
	return ""
}

// watch prints sources and then their changes. It does not print a source again if its row would be the same.
func (k *statusStore) watch(ctx context.Context) error {
	if k.selector != "" {
		return usage("-w takes no -l")
	}
	wide, synced := k.output == "wide", false
	t, lines := k.table(wide), [][]string{sourceTitles(wide)}
	printed := map[source.Reference]string{}
	return k.client.Watch(ctx, k.filter(), func(n api.Notice) error {
		s := api.Source{Phase: "removed"}
		switch {
		case n.Synced:
			synced = true
			if k.machineReadable() || k.output == "name" {
				return nil
			}
			return t.print(lines...)
		case n.Gone != nil:
			s.Kind, s.Namespace, s.Name = n.Gone.Kind, n.Gone.Namespace, n.Gone.Name
		case n.Source == nil || !k.selectsName(sourceRef(*n.Source)):
			return nil
		default:
			s = *n.Source
		}
		ref := sourceRef(s)
		row := strings.Join(sourceCells(s, wide, time.Time{}), "\t") + s.Phase
		if s.Artifact != nil {
			row += s.Artifact.Digest
		}
		if _, known := printed[ref]; printed[ref] == row || n.Gone != nil && !known {
			return nil
		}
		printed[ref] = row
		switch {
		case k.output == "name":
			return k.printSources(&k.outputFlags, []api.Source{s})
		case k.machineReadable():
			return k.printDocument(ctx, ref)
		case synced:
			return t.print(sourceCells(s, wide, time.Now()))
		}
		lines = append(lines, sourceCells(s, wide, time.Now()))
		return nil
	})
}

// printDocument prints the document of a source; JSON is printed on one line.
func (k *statusStore) printDocument(ctx context.Context, ref source.Reference) error {
	s, err := k.client.Source(ctx, ref)
	if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
		return nil
	}
	var obj source.Object
	if err == nil {
		obj, err = decodeObject(s.Document)
	}
	if err != nil {
		return err
	}
	if k.output != "json" {
		return printItem(k.stdout, k.output, []source.Object{obj})
	}
	text, err := source.EncodeJSON(obj)
	if err != nil {
		return err
	}
	return encode(k.stdout, json.RawMessage(text), "")
}

func (p *program) suspend() *cobra.Command {
	var change api.Change
	c := p.suspensionCommand(true, &change, &cobra.Command{
		Use:   "suspend {KIND/NAME... | --all | -n NAMESPACE | -l LABELS}",
		Short: "Suspend sources until they are resumed",
		Long: `Suspend makes the server (headgate serve) stop checking sources; requests and webhooks for them are refused. Artifacts
stay. A check that is running is finished first. The suspension outlives restarts; it does not change spec.suspend of a
document. If no server is running, it is saved in the store for the next one. headgate fetch ignores it.

Exit codes: 0 done, 1 refused, or the server cannot be reached, 2 usage.`,
		Example: `  headgate suspend gitrepository/app --reason "release freeze"`,
	})
	c.Flags().StringVar(&change.Reason, "reason", "", "`TEXT` of the reason")
	c.Flags().StringVar(&change.By, "actor", "", "your `NAME`, if the server needs no token; default the user name")
	return c
}

func (p *program) resume() *cobra.Command {
	return p.suspensionCommand(false, new(api.Change), &cobra.Command{
		Use:   "resume {KIND/NAME... | --all | -n NAMESPACE | -l LABELS}",
		Short: "Resume suspended sources",
		Long: `Resume ends a suspension by headgate suspend; the server then checks the sources at once. A source with spec.suspend in
its document stays suspended.

Exit codes: 0 done, 1 refused, or the server cannot be reached, 2 usage.`,
	})
}

// suspensionCommand completes a command that suspends or resumes sources and prints their new state. If one source fails, it
// continues with the others.
func (p *program) suspensionCommand(suspend bool, change *api.Change, c *cobra.Command) *cobra.Command {
	f := new(statusStoreFlags)
	f.register(p, c)
	f.registerFormat(c, "table", "wide", "name")
	c.RunE = func(c *cobra.Command, args []string) error {
		change.By = cmp.Or(change.By, p.user())
		return p.changeSources(c.Context(), f, args, suspend, *change)
	}
	return c
}

func (p *program) changeSources(ctx context.Context, f *statusStoreFlags, args []string, suspend bool, change api.Change) error {
	k, err := p.openStatusStore(f, args, true, false)
	if err != nil {
		return err
	}
	found, _, err := k.sources(ctx, false)
	if err != nil {
		return err
	}
	errs := []error{k.checkFound(mapSlice(found, sourceRef), true)}
	if codeOf(errs[0]) == exitUsage {
		return errs[0]
	}
	if k.client == nil {
		lock, err := serve.LockStore(f.store)
		if err != nil {
			return err
		}
		defer lock.Release()
	}
	var changed []api.Source
	for _, s := range found {
		s, err := k.change(ctx, sourceRef(s), change, suspend)
		if err == nil {
			changed = append(changed, s)
		}
		errs = append(errs, err)
	}
	if len(changed) > 0 {
		errs = append(errs, p.printSources(&f.outputFlags, changed))
	}
	return errors.Join(errs...)
}

// change suspends or resumes a source.
func (k *statusStore) change(ctx context.Context, ref source.Reference, change api.Change, suspend bool) (s api.Source, err error) {
	if k.client != nil {
		ctx, cancel := k.requestContext(ctx)
		defer cancel()
		if suspend {
			return k.client.Suspend(ctx, ref, change)
		}
		return k.client.Resume(ctx, ref, change)
	}
	if suspend {
		err = k.ledger.Suspend(ref, source.Suspension{By: change.By, Reason: change.Reason, Since: time.Now()})
	} else if err = k.ledger.Resume(ref); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return s, err
	}
	obj, err := k.ledger.Object(ref)
	if err != nil {
		return s, err
	}
	if g, ok := obj.(*source.ArtifactGenerator); ok { // change the objects that it makes as well
		for _, out := range g.Plan().Needs {
			if _, err := k.change(ctx, out, change, suspend); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return s, err
			}
		}
	}
	if s, err = k.savedSource(obj); err == nil && !suspend && s.Suspended {
		err = fmt.Errorf("%s is suspended by its spec: set spec.suspend to false", argumentOfSource(s))
	}
	return s, err
}

func (p *program) delete() *cobra.Command {
	f := new(statusStoreFlags)
	var force bool
	c := &cobra.Command{
		Use:   "delete {KIND/NAME... | --all | -n NAMESPACE | -l LABELS}",
		Short: "Delete objects and their artifacts from a store",
		Long: `Delete removes objects from the store: artifacts, URLs of the newest ones, status and suspension. What a generator made
goes with it. Origins and documents stay as they are.

While a server uses the store, delete is refused. With --force it is done; the server then fetches again what is in its
documents, and keeps suspensions until it is restarted.

Exit codes: 0 done, 1 refused, failed, or there is no such object, 2 usage.`,
		RunE: func(c *cobra.Command, args []string) error { return p.runDelete(c.Context(), f, force, args) },
	}
	registerStore(c, &f.store)
	f.selection.register(c)
	c.Flags().BoolVar(&force, "force", false, "delete even if a server uses the store")
	c.ValidArgsFunction = p.completeStatuses(f)
	return c
}

func (p *program) runDelete(ctx context.Context, f *statusStoreFlags, force bool, args []string) error {
	if err := cmp.Or(f.parseArguments(args, true), checkStoreDir(f.store)); err != nil {
		return err
	}
	if !force {
		note, err := serve.NoteOf(f.store)
		if note != nil {
			return fmt.Errorf("a server uses the store %s%s: stop it first, or delete with --force", f.store, note)
		}
		lock, lockErr := serve.LockStore(f.store)
		if err := errors.Join(err, lockErr); err != nil {
			return fmt.Errorf("--store %s: %w", f.store, err)
		}
		defer lock.Release()
	}
	ledger := ledgerOf(f.store)
	found, err := ledger.References() // includes objects whose document cannot be read
	found = slices.DeleteFunc(found, func(ref source.Reference) bool {
		var labels map[string]string
		if f.selector != "" {
			if obj, err := ledger.Object(ref); err == nil {
				labels = obj.Head().Metadata.Labels
			}
		}
		return !f.selects(ref, labels)
	})
	for _, ref := range found {
		if ref.Kind == "ArtifactGenerator" {
			outputs, unread := ledger.MadeBy(ref)
			err = errors.Join(err, unread)
			found = append(found, slices.DeleteFunc(outputs, func(ref source.Reference) bool { return slices.Contains(found, ref) })...)
		}
	}
	errs := []error{err, f.checkFound(found, true)}
	if codeOf(errs[1]) == exitUsage {
		return errs[1]
	}
	store, err := openExisting(f.store)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, ref := range found {
		name := sourceName(ref)
		if obj, err := ledger.Object(ref); err == nil {
			name = argumentOf(obj)
		}
		err := ledger.Forget(ctx, store, ref)
		if err == nil {
			_, err = fmt.Fprintf(p.stdout, "%s deleted\n", name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
