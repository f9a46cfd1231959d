package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/ledger"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// askFlags say what a person asks of a rollout, and of which.
type askFlags struct {
	runFlags
	actor     string
	reason    string
	skipGates bool
	yes       bool
}

func (f *askFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.reason, "reason", "", "`TEXT` that events, alerts and the result show")
	fl.StringVar(&f.actor, "actor", "", "`NAME` that they show; default that of the user")
}

func (p *program) abortRollout() *cobra.Command {
	f := new(askFlags)
	c := &cobra.Command{
		Use:   "abort {[NAMESPACE/]CANARY | --state FILE | -f FILE|DIR|- [[NAMESPACE/]CANARY]}",
		Short: "Roll a canary back that is being rolled out",
		Long: `Abort ends a rollout that is under way, the first one of a canary too: all traffic goes to the primary, the canary
is scaled down, and post-rollout webhooks are called.

A run that is under way is asked, beside its status file, and does that at its next tick; one that ends before
that does it when it is started again. Where no run is under way this command does it at once: it needs -f, and
how traffic is divided, as rollout run does (--exec set-routes=…, --request set-routes=…), or --no-traffic where
nothing divides it now, as after a run with --proxy.

Exit codes: 0 a run was asked, or it is rolled back, 1 there is no rollout to abort, 2 error or usage, 3 it was
interrupted before it was rolled back: the same command, or the run, goes on.`,
		Example: `  headgate rollout abort shop/checkout --reason "error rate"
  headgate rollout abort -f canary.yaml --exec "set-routes=./weight.sh {{.Canary}}"     # no run is under way`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error { return p.runAbort(c.Context(), f, args) },
	}
	f.manifestFlags.register(c)
	f.adapterFlags.register(c)
	f.runFlags.registerDrive(c)
	c.Flags().BoolVar(&f.none, "no-traffic", false, "nothing divides the traffic now")
	f.register(c)
	c.ValidArgsFunction = completeCanaries(&f.manifestFlags)
	return c
}

func (p *program) promoteRollout() *cobra.Command {
	f := new(askFlags)
	c := &cobra.Command{
		Use:   "promote {[NAMESPACE/]CANARY | --state FILE}",
		Short: "Promote a canary without the rest of its analysis",
		Long: `Promote asks the run that is under way, or the next one, beside its status file, to skip what is left of the
analysis: at its next tick no more weights, iterations, metrics, pre-rollout and rollout webhooks. The canary has
to be ready, and rollback, confirm-rollout and confirm-promotion webhooks are asked, unless --skip-gates is given.
It is for the revision that is being rolled out now, and for no other.

It asks for a confirmation on a terminal; without one --yes has to be given.

Exit codes: 0 it was asked, 1 there is no analysis to skip, or it was not confirmed, 2 error or usage.`,
		Example: `  headgate rollout promote shop/checkout --reason "hotfix CVE-2026-1"
  headgate rollout promote --state app.json --yes --skip-gates`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error { return p.runPromote(c.Context(), f, args) },
	}
	fl := c.Flags()
	stateVar(c, &f.state)
	fl.BoolVar(&f.skipGates, "skip-gates", false, "ask no confirm and no rollback webhooks either")
	fl.BoolVarP(&f.yes, "yes", "y", false, "do not ask for a confirmation")
	f.register(c)
	return c
}

// A subject is the rollout that a command is about.
type subject struct {
	path   string          // of its status
	canary *rollout.Canary // nil without -f
	book   *book
	name   string // NAMESPACE/NAME
	status rollout.Status
}

// rolloutOf finds the rollout that the flags and the argument name, and reads its status.
func (p *program) rolloutOf(ctx context.Context, f *runFlags, args []string) (s subject, err error) {
	of := new(rollout.Canary)
	switch {
	case len(f.files) > 0:
		if s.canary, s.book, err = p.chosenCanary(ctx, &f.manifestFlags, args); err != nil {
			return s, err
		}
		of = s.canary
	case len(args) > 0:
		namespace, name, found := strings.Cut(args[0], "/")
		if !found {
			namespace, name = rollout.DefaultNamespace, args[0]
		}
		if namespace == "" || name == "" || strings.Contains(name, "/") {
			return s, usage("%q: want NAME or NAMESPACE/NAME", args[0])
		}
		of.Metadata = rollout.Metadata{Name: name, Namespace: namespace}
	case f.state == "":
		return s, usage("name a canary, or its status by --state")
	}
	if s.path, err = f.statePath(of); err != nil {
		return s, err
	}
	owner, status, err := ledger.Read(s.path)
	switch found := owner.Namespace + "/" + owner.Name; {
	case errors.Is(err, fs.ErrNotExist):
		return s, failed(fmt.Errorf("no rollout is known: %w", err))
	case err != nil:
		return s, asUsage(err)
	case of.Metadata.Name != "" && nameOf(of) != found:
		return s, usage("status %s is that of canary %s, not of %s", s.path, found, nameOf(of))
	default:
		s.name, s.status = found, status
	}
	return s, nil
}

// request is what the flags ask of a rollout that has come as far as s.
func (p *program) request(f *askFlags, action rollout.Action, s subject) (rollout.Request, error) {
	r := rollout.Request{
		ID: rand.Text(), Action: action, Revision: s.status.AppliedSpec, By: cmp.Or(f.actor, p.user(), "unknown"), Reason: f.reason,
		SkipGates: f.skipGates, Time: time.Now().UTC().Round(0),
	}
	for flag, text := range map[string]string{"actor": f.actor, "reason": f.reason} {
		if len(text) > maxAskText {
			return r, usage("--%s: longer than %d bytes", flag, maxAskText)
		}
	}
	if err := s.status.Accepts(r); err != nil {
		return r, failed(fmt.Errorf("%s: %w", s.name, err))
	}
	return r, nil
}

// maxAskText is how long name and reason may be, in bytes.
const maxAskText = 1000

func (p *program) runAbort(ctx context.Context, f *askFlags, args []string) error {
	if err := f.checkOutput(); err != nil {
		return err
	}
	s, err := p.rolloutOf(ctx, &f.runFlags, args)
	if err != nil {
		return err
	}
	r, err := p.request(f, rollout.Abort, s)
	if err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(s.name, "/")
	file, err := ledger.Open(s.path, rollout.Metadata{Name: name, Namespace: namespace})
	if errors.Is(err, ledger.ErrInUse) {
		return p.ask(ctx, f, s, r, "the run that is under way rolls back at its next tick, or the next one when it ends before")
	}
	if err != nil {
		return asUsage(err)
	}
	defer file.Close()
	if s.canary == nil || f.none == f.adapterFlags.has(traffic.SetRoutes) {
		return usage("no run of %s is under way, so this command has to roll it back: give its Canary by -f, and how traffic is divided by --exec set-routes=… or --request set-routes=…, or --no-traffic where nothing divides it now", s.name)
	}
	if s.status, err = file.Load(); err != nil { // nothing changes it any more
		return asUsage(err)
	}
	if r, err = p.request(f, rollout.Abort, s); err != nil {
		return err
	}
	if s.status.Phase == "" {
		return failed(fmt.Errorf("%s: abort: no rollout has begun", s.name))
	}
	s.status.Request = &r // which the first step takes up
	f.revision = s.status.AppliedSpec
	ctx, stop := f.bound(ctx)
	defer stop(nil)
	err = (&drive{program: p, flags: &f.runFlags, canary: s.canary, book: s.book, file: file, stop: stop, aborting: true}).run(ctx, s.status)
	if e := new(exitError); errors.As(err, &e) && e.code == exitRolledBack {
		return nil
	}
	return err
}

func (p *program) runPromote(ctx context.Context, f *askFlags, args []string) error {
	s, err := p.rolloutOf(ctx, &f.runFlags, args)
	if err != nil {
		return err
	}
	r, err := p.request(f, rollout.Promote, s)
	if err != nil {
		return err
	}
	if !f.yes {
		if err := p.confirm(s); err != nil {
			return err
		}
	}
	return p.ask(ctx, f, s, r, "the run that is under way skips the rest of the analysis at its next tick, or the next one does")
}

// ask leaves a request for a run, and says so.
func (p *program) ask(ctx context.Context, f *askFlags, s subject, r rollout.Request, then string) error {
	if err := ledger.Ask(ctx, s.path, r); err != nil {
		return asUsage(err)
	}
	if f.output == "json" {
		return printJSON(p.stdout, r)
	}
	_, err := fmt.Fprintf(p.stdout, "%s %s asked for: revision %s: %s\n", s.name, r.Action, redact.String(cmp.Or(r.Revision, "not known yet")), then)
	return err
}

// confirm asks on a terminal whether a promotion is meant.
func (p *program) confirm(s subject) error {
	in, ok := p.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usage("there is no terminal to ask for a confirmation: give --yes")
	}
	fmt.Fprintf(p.stderr, "%s\nPromote revision %s without the rest of its analysis? [y/N] ", progressOf(s.name, s.status), redact.String(s.status.AppliedSpec))
	line, _ := bufio.NewReader(in).ReadString('\n')
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
		return failed(errors.New("it was not confirmed: nothing was asked"))
	}
	return nil
}

// request returns what a person asks of the rollout that has come as far as s,
// and forgets what was taken up, or cannot be.
func (d *drive) request(ctx context.Context, s rollout.Status) *rollout.Request {
	r, err := ledger.Asked(d.file.Path())
	id := ""
	switch {
	case r == nil && err == nil:
		return nil
	case r != nil && s.Request != nil && s.Request.ID == r.ID:
		id = r.ID
	case r != nil:
		if err = s.Accepts(*r); err == nil {
			return r
		}
		id, err = r.ID, fmt.Errorf("what %s asked for is not done: %w", r.By, err)
	}
	if err := errors.Join(err, d.file.Forget(ctx, id)); err != nil {
		d.view.warn(err)
	}
	return nil
}
