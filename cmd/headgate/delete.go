package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// deleteFlags say from which store objects are deleted.
type deleteFlags struct {
	keeperFlags
	namespace string
	force     bool
}

func (p *program) delete() *cobra.Command {
	f := new(deleteFlags)
	c := &cobra.Command{
		Use:   "delete KIND/NAME...",
		Short: "Forget objects of a store, with their artifacts",
		Long: `Delete removes from the store what it has of objects: artifacts, the URLs of their newest ones, status and suspension.
Nothing is removed at their origins, nor from documents.

While a server keeps the store it is refused. With --force it is done all the same: the server fetches again what is in
its documents, and has a suspension in force until it is started again.

Exit codes: 0 done, 1 it was refused or failed, or there is no such object, 2 usage.`,
		Example: `  headgate delete gitrepository/app
  headgate delete bucket/assets bucket/reports -n shop`,
		Args: arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error { return asFailure(p.runDelete(c.Context(), f, args)) },
	}
	registerStore(c, &f.store)
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of objects that are written as KIND/NAME")
	c.Flags().BoolVar(&f.force, "force", false, "also while a server keeps the store")
	c.ValidArgsFunction = p.completeKept(&f.keeperFlags)
	return c
}

func (p *program) runDelete(ctx context.Context, f *deleteFlags, args []string) error {
	refs, err := references(args, false)
	if err != nil {
		return err
	}
	if err := isStore(f.store); err != nil {
		return err
	}
	if !f.force {
		note, err := keeperOf(f.store)
		switch {
		case err != nil:
			return fmt.Errorf("--store %s: %w", f.store, err)
		case note != nil:
			return fmt.Errorf("a server keeps the store %s%s: end it first, or delete with --force", f.store, note)
		}
		lock, err := lockStore(f.store)
		if err != nil {
			return err
		}
		defer lock.release()
	}
	store, err := openExisting(f.store)
	if err != nil {
		return err
	}
	defer store.Close()
	var errs []error
	for _, ref := range refs {
		if ref.Namespace == "" {
			ref.Namespace = f.namespace
		}
		errs = append(errs, p.forget(ctx, store, ledgerOf(f.store), ref))
	}
	return errors.Join(errs...)
}

// forget removes all that a store has of the one object that ref selects. The
// status goes first: it never names an artifact that is not there.
func (p *program) forget(ctx context.Context, store *artifact.Store, ledger *source.Ledger, ref source.Reference) error {
	saved, err := ledger.References()
	if err != nil {
		return err
	}
	var found []source.Reference
	for _, other := range saved {
		if ref.Selects(other) {
			found = append(found, other)
		}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("%s: no such object in the store", sourceName(ref))
	case 1:
		ref = found[0]
	default:
		return usage("%s names %d objects: write KIND/NAMESPACE/NAME, or give their namespace with -n", sourceName(ref), len(found))
	}
	dir := sourceName(ref)
	unlock, err := store.Lock(ctx, dir)
	if err != nil {
		return err
	}
	err = ledger.Remove(ref)
	if err == nil {
		err = store.Remove(dir)
	}
	unlock()
	if err == nil {
		err = store.Tidy(dir)
	}
	if err == nil {
		_, err = fmt.Fprintf(p.stdout, "%s deleted\n", dir)
	}
	return err
}
