package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// suspendFlags say who changes what, and why.
type suspendFlags struct {
	keeperFlags
	change api.Change
	output string
}

func (p *program) suspend() *cobra.Command {
	f := new(suspendFlags)
	c := &cobra.Command{
		Use:   "suspend KIND/NAME...",
		Short: "Have sources left alone until they are resumed",
		Long: `Suspend has the server leave sources alone: they are not checked, and requests and webhooks for them are refused. Their
artifacts stay. A run that is under way ends first. It is durable, and not the field spec.suspend of a document, which nobody but
its author changes. Suspending again changes who and why.

Without a server it is noted in the store, for the next one. headgate fetch, which is a command itself, does not heed it.

Exit codes: 0 done, 1 it was refused, or the server was not reached, 2 usage.`,
		Example: `  headgate suspend gitrepository/app --reason "release freeze"
  headgate suspend bucket/shop/assets bucket/shop/reports`,
		Args: arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			return asFailure(p.changeSources(c.Context(), f, args, func(ctx context.Context, k keeper, ref source.Reference) (api.Source, error) {
				return k.suspend(ctx, ref, f.change)
			}))
		},
	}
	f.registerChange(p, c)
	c.Flags().StringVar(&f.change.Reason, "reason", "", "`TEXT` that says why")
	c.Flags().StringVar(&f.change.By, "actor", "", "`NAME` of who does it, where callers need not say who they are; default that of the user")
	return c
}

func (p *program) resume() *cobra.Command {
	f := new(suspendFlags)
	c := &cobra.Command{
		Use:   "resume KIND/NAME...",
		Short: "End what suspend began",
		Long: `Resume ends what suspend began; the server checks the sources at once. One that its spec suspends stays so.

Exit codes: 0 done, 1 it was refused, or the server was not reached, 2 usage.`,
		Example: `  headgate resume gitrepository/app`,
		Args:    arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			return asFailure(p.changeSources(c.Context(), f, args, func(ctx context.Context, k keeper, ref source.Reference) (api.Source, error) {
				return k.resume(ctx, ref, f.change)
			}))
		},
	}
	f.registerChange(p, c)
	return c
}

func (f *suspendFlags) registerChange(p *program, c *cobra.Command) {
	f.keeperFlags.register(c)
	formats := []string{"table", "wide", "name"}
	c.Flags().StringVarP(&f.output, "output", "o", "table", "what to print: "+either(formats))
	complete(c, "output", formats...)
	c.ValidArgsFunction = p.completeKept(&f.keeperFlags)
}

// changeSources does something to each source of the arguments, and prints them
// as they are then. One that fails does not keep the others from it.
func (p *program) changeSources(ctx context.Context, f *suspendFlags, args []string, do func(context.Context, keeper, source.Reference) (api.Source, error)) error {
	if f.output != "table" && f.output != "wide" && f.output != "name" {
		return usage("-o %q: want table, wide or name", f.output)
	}
	if f.change.By == "" {
		f.change.By = p.caller().By
	}
	refs, err := references(args, false)
	if err != nil {
		return err
	}
	k, err := p.openKeeper(&f.keeperFlags)
	if err != nil {
		return err
	}
	var changed []api.Source
	var errs []error
	for _, ref := range refs {
		s, err := do(ctx, k, ref)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changed = append(changed, s)
	}
	if len(changed) > 0 {
		if err := p.printSources(f.output, changed); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
