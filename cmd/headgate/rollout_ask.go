package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/drive"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// requestFlags are the flags of rollout abort and rollout promote.
type requestFlags struct {
	runFlags
	request   rollout.Request
	confirmed bool
}

func (f *requestFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.request.Reason, "reason", "", "`TEXT` for events, alerts and the result")
	c.Flags().StringVar(&f.request.By, "actor", "", "your `NAME` for events, alerts and the result; default the user name")
}

func (p *program) abortRollout() *cobra.Command {
	f := &requestFlags{request: rollout.Request{Action: rollout.Abort}}
	c := &cobra.Command{
		Use:   "abort {[NAMESPACE/]CANARY | --state FILE | -f FILE|DIR|- [[NAMESPACE/]CANARY]}",
		Short: "End a rollout, and roll it back",
		Long: `Abort ends a rollout, even the first one of a canary: all traffic goes to the primary, the canary is scaled down, and
post-rollout webhooks are called. If a run is active, abort leaves a request beside its status file, and the run rolls back
at its next tick, or when it is started again. If none is active, this command rolls back itself: it needs -f, and flags
that divide traffic, as rollout run does, or --no-traffic if nothing divides it now, as after a run with --proxy.

Exit codes: 0 requested or rolled back, 1 there is no rollout to abort, 2 error or usage, 3 interrupted before the end:
repeat the command.`,
		Example: `  headgate rollout abort shop/checkout --reason "error rate"`,
		Args:    rangeArgs(0, 1),
		RunE:    func(c *cobra.Command, args []string) error { return p.abort(c.Context(), f, args) },
	}
	f.runFlags.register(c, "nothing divides the traffic now")
	f.register(c)
	return c
}

func (p *program) abort(ctx context.Context, f *requestFlags, args []string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	var canary *rollout.Canary
	var b *rolloutDocuments
	if len(f.files) > 0 {
		if canary, b, err = p.readCanary(&f.manifestFlags, f.canaryArgument(args)); err != nil {
			return err
		}
	}
	s, err := f.findState(canary, args)
	if err != nil {
		return err
	}
	file, err := drive.Open(s.File, s.canary.Metadata)
	running := errors.Is(err, drive.ErrInUse)
	if err == nil {
		defer file.Close()
		s.Status, err = file.Load() // no other process can change it now
	}
	if err != nil && !running {
		return err
	}
	if err := p.fillRequest(f, s); err != nil {
		return err
	}
	switch {
	case running:
		return p.leaveRequest(ctx, f, s, "the active run, or the next one, rolls back at its next tick")
	case canary == nil || f.noTraffic == (f.Actions[traffic.SetRoutes] != nil):
		return usage("no run of %s is active, so this command rolls back itself: give its Canary with -f, and how traffic is divided with --exec set-routes=… or --request set-routes=…, or --no-traffic if nothing divides it now", canaryName(s.canary))
	case s.Status.Phase == "":
		return failure(fmt.Errorf("%s: abort: no rollout has begun", canaryName(s.canary)))
	}
	f.Revision, f.Request = s.Status.AppliedSpec, &f.request
	err = p.drive(ctx, &f.runFlags, canary, b, file)
	if e := new(exitError); errors.As(err, &e) && e.code == exitRolledBack {
		return nil
	}
	return err
}

func (p *program) promoteRollout() *cobra.Command {
	f := &requestFlags{request: rollout.Request{Action: rollout.Promote}}
	c := &cobra.Command{
		Use:   "promote {[NAMESPACE/]CANARY | --state FILE}",
		Short: "Promote a canary, and skip the rest of its analysis",
		Long: `Promote leaves a request beside the status file. At its next tick the active run, or the next one, skips the rest of the
analysis: no more weights, iterations, metrics, pre-rollout and rollout webhooks. The canary must still be ready, and
rollback, confirm-rollout and confirm-promotion webhooks are still called, unless --skip-gates is given. The request
applies to the current revision only. On a terminal the command asks for confirmation.

Exit codes: 0 requested, 1 there is no analysis to skip, or it was not confirmed, 2 error or usage.`,
		Example: `  headgate rollout promote shop/checkout --reason "hotfix CVE-2026-1" --yes`,
		Args:    rangeArgs(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.findState(nil, args)
			if err == nil {
				err = p.fillRequest(f, s)
			}
			if err == nil && !f.confirmed {
				err = p.confirm(s)
			}
			if err != nil {
				return err
			}
			return p.leaveRequest(c.Context(), f, s, "the active run, or the next one, skips the rest of the analysis at its next tick")
		},
	}
	f.stateFlags.register(c)
	c.Flags().BoolVar(&f.request.SkipGates, "skip-gates", false, "do not call confirm and rollback webhooks either")
	c.Flags().BoolVarP(&f.confirmed, "yes", "y", false, "do not ask for confirmation")
	f.register(c)
	return c
}

// fillRequest completes the request, and returns an error if the rollout cannot accept it.
func (p *program) fillRequest(f *requestFlags, s rolloutState) error {
	r := &f.request
	r.ID, r.Revision, r.By, r.Time = rand.Text(), s.Status.AppliedSpec, cmp.Or(r.By, p.user(), "unknown"), time.Now().UTC().Round(0)
	if err := s.Status.Accepts(*r); err != nil {
		return failure(fmt.Errorf("%s: %w", canaryName(s.canary), err))
	}
	return nil
}

// leaveRequest leaves the request for a run beside the status file, and prints that it did.
func (p *program) leaveRequest(ctx context.Context, f *requestFlags, s rolloutState, then string) error {
	r := f.request
	if err := drive.Ask(ctx, s.File, r); err != nil {
		return err
	}
	text := fmt.Sprintf("%s %s asked for: revision %s: %s", canaryName(s.canary), r.Action, cmp.Or(r.Revision, "not known yet"), then)
	return p.printResult(&f.outputFlags, r, nil, [][]string{{text}})
}

// confirm asks on the terminal for confirmation of a promotion.
func (p *program) confirm(s rolloutState) error {
	if !isTerminal(p.stdin) {
		return usage("there is no terminal to ask for a confirmation: give --yes")
	}
	fmt.Fprintf(p.stderr, "%s\nPromote revision %s without the rest of its analysis? [y/N] ", progressOf(s.canary, s.Status), redact.String(s.Status.AppliedSpec))
	line, _ := bufio.NewReader(p.stdin).ReadString('\n')
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
		return failure(errors.New("it was not confirmed: nothing was asked"))
	}
	return nil
}

// A rolloutState is the state of a rollout as rollout status prints it. Without a
// manifest, only the name of the canary is known.
type rolloutState struct {
	Name      string           `json:"name"`
	Namespace string           `json:"namespace"`
	File      string           `json:"file"`
	Request   *rollout.Request `json:"request,omitempty"` // that no run has accepted yet
	Status    rollout.Status   `json:"status"`
	canary    *rollout.Canary
}

// findState returns the rollout that the manifest, the argument or a flag names.
func (f *stateFlags) findState(canary *rollout.Canary, args []string) (s rolloutState, err error) {
	if s.canary = canary; canary == nil {
		s.canary = new(rollout.Canary)
		of := &s.canary.Metadata
		namespace, name, found := strings.Cut(f.canaryArgument(args), "/")
		if of.Namespace, of.Name = namespace, name; !found {
			of.Namespace, of.Name = rollout.DefaultNamespace, namespace
		}
		switch {
		case len(args) == 0 && f.state == "":
			return s, usage("name a canary, or its status file with --state")
		case len(args) > 0 && (of.Namespace == "" || of.Name == "" || strings.Contains(of.Name, "/")):
			return s, usage("%q: want NAME or NAMESPACE/NAME", args[0])
		}
	}
	if s.File, err = f.statePath(s.canary); err != nil {
		return s, err
	}
	owner, status, err := drive.Read(s.File)
	switch found := (&rollout.Canary{Metadata: owner}); {
	case errors.Is(err, fs.ErrNotExist):
		return s, failure(fmt.Errorf("no rollout is known: there is no file %s: start one with headgate rollout run, or name its status with --state", s.File))
	case err != nil:
		return s, err
	case s.canary.Metadata.Name == "":
		s.canary = found
	case canaryName(s.canary) != canaryName(found):
		return s, usage("status %s belongs to canary %s, not to %s", s.File, canaryName(found), canaryName(s.canary))
	}
	s.Name, s.Namespace, s.Status = owner.Name, owner.Namespace, status
	return s, nil
}

// statusFlags are the flags of rollout status.
type statusFlags struct {
	stateFlags
	outputFlags
	watch bool
}

func (p *program) statusRollout() *cobra.Command {
	f := new(statusFlags)
	c := &cobra.Command{
		Use:   "status {[NAMESPACE/]CANARY | --state FILE}",
		Short: "Print the status of a rollout",
		Long: `Status prints the status file of a rollout and requests to it, whether or not a run is active. With --watch it prints a
line for each change until the rollout has ended.

Exit codes: 0 printed, 1 no rollout is known, 2 error or usage. With --watch: 0 promoted, 1 rolled back, 2 error,
3 interrupted.`,
		Example: `  headgate rollout status shop/checkout -w`,
		Args:    rangeArgs(0, 1),
		RunE:    func(c *cobra.Command, args []string) error { return p.status(c.Context(), f, args) },
	}
	f.stateFlags.register(c)
	f.registerFormat(c, "text", "json")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "print changes as they happen, until the rollout has ended")
	return c
}

// status prints the state of a rollout or, with --watch, each change until it has ended.
func (p *program) status(ctx context.Context, f *statusFlags, args []string) error {
	var last rolloutState
	for {
		s, err := f.findState(nil, args)
		if err == nil {
			s.Request, err = drive.Asked(s.File)
		}
		if err != nil {
			return err
		}
		if received := s.Status.Request; s.Request != nil && received != nil && s.Request.ID == received.ID {
			s.Request = nil
		}
		switch {
		case !f.watch:
			return p.printResult(&f.outputFlags, s, nil, s.rows())
		case reflect.DeepEqual(s, last):
		case f.machineReadable():
			err = printItem(p.stdout, f.output, s)
		default:
			line := formatTime(time.Now()) + " " + progressOf(s.canary, s.Status)
			if s.Request != nil {
				line += redact.String(fmt.Sprintf("  %s asked for by %s", s.Request.Action, s.Request.By))
			}
			_, err = fmt.Fprintln(p.stdout, line)
		}
		last = s
		const look = 500 * time.Millisecond
		switch {
		case err != nil:
			return err
		case s.Status.Phase == rollout.Succeeded:
			return nil
		case s.Status.Ended():
			return &exitError{exitRolledBack, nil}
		case retry.Sleep(ctx, look) != nil:
			return &exitError{exitNotOver, nil}
		}
	}
}

// rows returns the state as rows of text.
func (r rolloutState) rows() [][]string {
	s := r.Status
	primary, share := s.PromotedSpec, fmt.Sprintf("%d%% to the canary", s.CanaryWeight)
	if s.PromotedURL != "" {
		primary += " at " + s.PromotedURL
	}
	if s.Mirrored {
		share += ", which gets copies of the rest"
	}
	rows := [][]string{
		{"canary", r.Namespace + "/" + r.Name}, {"phase", cmp.Or(string(s.Phase), "new")}, {"revision", s.AppliedSpec}, {"primary", primary},
		{"traffic", share}, {"failed checks", fmt.Sprint(s.FailedChecks)},
	}
	if g := s.Gate; g != nil {
		rows = append(rows, []string{"waits on", fmt.Sprintf("%s (%s) since %s: %s", g.Name, g.Type, formatTime(g.Since), g.Reason)})
	}
	for _, q := range []*rollout.Request{s.Request, r.Request} {
		if q != nil {
			text := fmt.Sprintf("%s by %s at %s: %s", q.Action, q.By, formatTime(q.Time), q.Reason)
			rows = append(rows, []string{"asked", strings.TrimSuffix(text, ": ")})
		}
	}
	rows = append(rows, []string{"reason", s.Reason}, []string{"last step", formatTime(s.LastStep)}, []string{"file", r.File})
	return slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
}
