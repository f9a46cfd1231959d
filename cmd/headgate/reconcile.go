package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// reconcileFlags say which sources are checked at once, and by whom.
type reconcileFlags struct {
	fetchFlags
	server serverFlags
	wait   bool
}

func (p *program) reconcile() *cobra.Command {
	f := new(reconcileFlags)
	c := &cobra.Command{
		Use:   "reconcile KIND/NAME...",
		Short: "Check sources at once, not when they are due",
		Long: `Reconcile has the server that keeps sources (headgate serve) check them now, waits until it has and prints what came
out, as fetch does. A source that is suspended is refused: resume it first.

When no server keeps the store it does it itself, as fetch does, with the documents of -f, or else those that the store has; then
Secrets are looked up in --secrets and the environment, for a store has none.

Exit codes: 0 everything is ready, or with --wait=false was asked for, 1 something failed, 2 usage or an invalid object, 3 a verification failed.`,
		Example: `  headgate reconcile gitrepository/app
  headgate reconcile pkgchart/shop/web --timeout 2m
  headgate reconcile gitrepository/app --wait=false`,
		Args: arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error { return asFailure(p.runReconcile(c.Context(), f, args)) },
	}
	f.register(c)
	c.Flags().BoolVar(&f.wait, "wait", true, "wait until the server has checked them")
	k := &keeperFlags{}
	c.ValidArgsFunction = func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		k.serverFlags, k.store = f.server, f.store
		return p.completeKept(k)(c, args, start)
	}
	return c
}

func (f *reconcileFlags) register(c *cobra.Command) {
	f.server.registerPlace(c, "the server, or unix:PATH of its socket; default whoever serves --store, or without it the variable HEADGATE_SERVER")
	registerFiles(c, &f.files)
	f.registerFrom(c)
	f.registerParallel(c)
	registerSecrets(c, &f.secrets)
	registerDocker(c, &f.docker)
	f.registerNetworks(c)
	f.registerOutput(c, "table", "wide", "json", "yaml", "name")
	f.registerWriting(c)
	f.cacheFlags.register(c)
}

func (p *program) runReconcile(ctx context.Context, f *reconcileFlags, args []string) error {
	refs, err := references(args, false)
	if err != nil {
		return err
	}
	k, err := p.serverOf(&keeperFlags{f.server, f.store})
	if err != nil {
		return err
	}
	if k, runs := k.(*keptServer); runs {
		return p.reconcileThere(ctx, f, k, refs)
	}
	if !f.quiet {
		fmt.Fprintf(p.stderr, "headgate: no server keeps %s: this command reconciles\n", f.store)
	}
	return p.reconcileHere(ctx, f, args, refs)
}

// reconcileHere does what the server would do.
func (p *program) reconcileHere(ctx context.Context, f *reconcileFlags, args []string, refs []source.Reference) error {
	s, err := p.open(&f.sourceFlags)
	if err != nil {
		return err
	}
	ledger := ledgerOf(f.store)
	if len(f.files) == 0 {
		saved, bad := ledger.List()
		if bad != nil {
			p.warn(bad)
		}
		s.set.Objects = saved.Objects
	}
	named, err := s.selected(args)
	if err != nil {
		return failed(err)
	}
	for _, obj := range named {
		hold, err := ledger.Suspension(source.ReferenceTo(obj))
		switch {
		case err != nil:
			return err
		case hold != nil:
			return fmt.Errorf("%s is %s: resume it first", argumentOf(obj), lastWord(api.Source{Suspension: hold}))
		case obj.Plan().Suspend:
			return fmt.Errorf("%s is suspended by its spec: set spec.suspend to false", argumentOf(obj))
		}
	}
	return p.bringUp(ctx, s, &f.fetchFlags, named)
}

// reconcileThere has a server do it.
func (p *program) reconcileThere(ctx context.Context, f *reconcileFlags, k *keptServer, refs []source.Reference) error {
	if len(f.files) > 0 {
		return usage("-f: a server keeps the store, and has documents of its own")
	}
	s, err := p.open(&f.sourceFlags)
	if err != nil {
		return err
	}
	k.flags = &serverFlags{request: 0}
	ctx, cancel := s.within(ctx)
	defer cancel()
	found, err := k.sources(ctx, refs, false)
	if err := errors.Join(err, missing(refs, found)); err != nil {
		return err
	}
	objects := make([]source.Object, len(found))
	names := map[source.Object]api.Source{}
	for i, kept := range found {
		kept, err := k.client.Source(ctx, sourceRef(kept))
		if err != nil {
			return err
		}
		if objects[i], err = decoded(kept.Document); err != nil {
			return err
		}
		names[objects[i]] = kept
	}
	if !f.wait {
		return p.askFor(ctx, k, found, f.prints())
	}
	return p.finish(s, k.reconcile(ctx, objects, names), false, p.printObjects)
}

// reconcile has a server reconcile objects: each when those that it needs have
// ended, and otherwise all at once.
func (k *keptServer) reconcile(ctx context.Context, objects []source.Object, names map[source.Object]api.Source) []*row {
	rows, ended := make([]*row, len(objects)), make([]chan struct{}, len(objects))
	for i, obj := range objects {
		rows[i], ended[i] = &row{Result: headgate.Result{Object: obj, Index: i}}, make(chan struct{})
	}
	var runs sync.WaitGroup
	for i, before := range source.Order(objects) {
		runs.Go(func() {
			defer close(ended[i])
			for _, b := range before {
				<-ended[b]
			}
			rows[i].reconcileBy(ctx, k, sourceRef(names[objects[i]]))
		})
	}
	runs.Wait()
	return rows
}

// askFor asks for runs and does not wait for them.
func (p *program) askFor(ctx context.Context, k *keptServer, found []api.Source, print bool) error {
	var errs []error
	for _, s := range found {
		_, _, err := k.client.Reconcile(ctx, sourceRef(s), k.as, 0)
		if err == nil && print {
			_, err = fmt.Fprintf(p.stdout, "%s: asked for\n", argument(s))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reconcileBy has a server reconcile one object, and waits for it.
func (r *row) reconcileBy(ctx context.Context, k *keptServer, ref source.Reference) {
	s, err := k.run(ctx, ref)
	var refused *api.Problem
	if errors.As(err, &refused) {
		r.err, r.refused = &toldError{strings.TrimLeft(strings.TrimPrefix(refused.Error(), r.Object.Head().String()), ": "), nil}, true
		return
	}
	if err != nil {
		r.fail(err)
		return
	}
	if obj, err := decoded(s.Document); err != nil {
		r.fail(err)
	} else {
		r.Object = obj
	}
	if s.Last == nil {
		return
	}
	r.Outcome, r.Why = source.Outcome(s.Last.Outcome), s.Last.Why
	r.Changed = r.Outcome == source.Stored
	if s.Last.Error != "" {
		r.err = &toldError{s.Last.Error, kindOfFailure(s)}
	}
}

// run asks for a run and waits for its end.
func (k *keptServer) run(ctx context.Context, ref source.Reference) (api.Source, error) {
	s, ticket, err := k.client.Reconcile(ctx, ref, k.as, aWhile)
	if err != nil {
		return s, err
	}
	if s.Last != nil && s.Last.Number >= ticket.Run && s.Document != "" {
		return s, nil
	}
	errEnded := errors.New("it has ended")
	err = k.client.Watch(ctx, filterOf([]source.Reference{ref}), func(n api.Notice) error {
		switch {
		case n.Gone != nil:
			return fmt.Errorf("%s was removed", sourceName(ref))
		case n.Source != nil && n.Source.Last != nil && n.Source.Last.Number >= ticket.Run:
			return errEnded
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnded):
		return k.client.Source(ctx, ref)
	case ctx.Err() != nil:
		return s, context.Cause(ctx)
	}
	return s, err
}

// kindOfFailure returns what the error of a run that failed wraps.
func kindOfFailure(s api.Source) error {
	if s.Last.Outcome == string(source.Stalled) {
		return source.ErrInvalid
	}
	for _, c := range s.Conditions {
		if c.Type == source.SourceVerifiedCondition && c.Status == "False" && strings.Contains(s.Last.Error, c.Message) {
			return source.ErrVerification
		}
	}
	return nil
}

// A toldError is one that a server tells of.
type toldError struct {
	text string
	kind error
}

func (e *toldError) Error() string { return redact.String(e.text) }
func (e *toldError) Unwrap() error { return e.kind }
