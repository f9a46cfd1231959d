package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
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
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/drive"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// askFlags say what a person asks of a rollout.
type askFlags struct {
	actor, reason  string
	skipGates, yes bool
}

func (f *askFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.reason, "reason", "", "`TEXT` that events, alerts and the result show")
	c.Flags().StringVar(&f.actor, "actor", "", "`NAME` that they show; default that of the user")
}

func (p *program) abortRollout() *cobra.Command {
	f, asking := new(runFlags), new(askFlags)
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
		RunE: func(c *cobra.Command, args []string) error { return p.runAbort(c.Context(), f, asking, args) },
	}
	f.manifestFlags.register(c)
	f.registerDrive(c)
	c.Flags().BoolVar(&f.none, "no-traffic", false, "nothing divides the traffic now")
	asking.register(c)
	c.ValidArgsFunction = completeCanaries(&f.manifestFlags)
	return c
}

func (p *program) promoteRollout() *cobra.Command {
	f, state := new(askFlags), new(stateFlags)
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
		RunE: func(c *cobra.Command, args []string) error {
			s, err := state.find(nil, args)
			if err != nil {
				return err
			}
			r, err := p.request(f, rollout.Promote, s)
			if err == nil && !f.yes {
				err = p.confirm(s)
			}
			if err != nil {
				return err
			}
			return p.ask(c.Context(), "", s, r, "the run that is under way skips the rest of the analysis at its next tick, or the next one does")
		},
	}
	state.register(c)
	c.Flags().BoolVar(&f.skipGates, "skip-gates", false, "ask no confirm and no rollback webhooks either")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask for a confirmation")
	f.register(c)
	return c
}

func (p *program) statusRollout() *cobra.Command {
	var state stateFlags
	var watch bool
	var output string
	c := &cobra.Command{
		Use:   "status {[NAMESPACE/]CANARY | --state FILE}",
		Short: "Print how far a rollout has come",
		Long: `Status prints the status file of a rollout, whether or not a run is under way, and what was asked of it. With
--watch it prints a line for each change until the rollout has ended.

Exit codes: 0 printed, 1 no rollout is known, 2 error or usage. With --watch those of rollout run: 0 promoted,
1 rolled back, 2 error, 3 interrupted.`,
		Example: `  headgate rollout status shop/checkout
  headgate rollout status --state app.json -o json
  headgate rollout status shop/checkout -w`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usage("-o %q: want text or json", output)
			}
			s, err := state.find(nil, args)
			switch {
			case err != nil:
				return err
			case watch:
				return p.watchStatus(c.Context(), output, s)
			}
			r, err := reportOf(s.path)
			switch {
			case err != nil:
				return err
			case output == "json":
				return printJSON(p.stdout, r)
			}
			return p.printReport(r)
		},
	}
	state.register(c)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print changes as they happen, until the rollout has ended")
	c.Flags().StringVarP(&output, "output", "o", "text", "what to print: text or json, with --watch one a line")
	complete(c, "output", "text", "json")
	return c
}

// A subject is the rollout that a command is about.
type subject struct {
	path   string // of its status
	canary *rollout.Canary
	status rollout.Status
}

// find returns the rollout that a manifest, the argument or the flag names. Of
// a canary that no manifest has only the name is known.
func (f *stateFlags) find(canary *rollout.Canary, args []string) (s subject, err error) {
	if s.canary = canary; canary == nil {
		s.canary = new(rollout.Canary)
		if len(args) > 0 {
			namespace, name, found := strings.Cut(f.named(args), "/")
			if !found {
				namespace, name = rollout.DefaultNamespace, args[0]
			}
			if namespace == "" || name == "" || strings.Contains(name, "/") {
				return s, usage("%q: want NAME or NAMESPACE/NAME", args[0])
			}
			s.canary.Metadata = rollout.Metadata{Name: name, Namespace: namespace}
		} else if f.state == "" {
			return s, usage("name a canary, or its status by --state")
		}
	}
	if s.path, err = f.statePath(s.canary); err != nil {
		return s, err
	}
	owner, status, err := drive.Read(s.path)
	switch found := (&rollout.Canary{Metadata: owner}); {
	case errors.Is(err, fs.ErrNotExist):
		return s, failed(fmt.Errorf("no rollout is known: %w", err))
	case err != nil:
		return s, asUsage(err)
	case s.canary.Metadata.Name == "":
		s.canary = found
	case nameOf(s.canary) != nameOf(found):
		return s, usage("status %s is that of canary %s, not of %s", s.path, nameOf(found), nameOf(s.canary))
	}
	s.status = status
	return s, nil
}

// request is what the flags ask of a rollout.
func (p *program) request(f *askFlags, action rollout.Action, s subject) (rollout.Request, error) {
	r := rollout.Request{
		ID: rand.Text(), Action: action, Revision: s.status.AppliedSpec, By: cmp.Or(f.actor, p.user(), "unknown"), Reason: f.reason,
		SkipGates: f.skipGates, Time: time.Now().UTC().Round(0),
	}
	const most = 1000
	if len(f.actor) > most || len(f.reason) > most {
		return r, usage("--actor or --reason: longer than %d bytes", most)
	}
	if err := s.status.Accepts(r); err != nil {
		return r, failed(fmt.Errorf("%s: %w", nameOf(s.canary), err))
	}
	return r, nil
}

func (p *program) runAbort(ctx context.Context, f *runFlags, asking *askFlags, args []string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	var canary *rollout.Canary
	var b *book
	if len(f.files) > 0 {
		if canary, b, err = p.chosenCanary(&f.manifestFlags, f.named(args)); err != nil {
			return err
		}
	}
	s, err := f.find(canary, args)
	if err != nil {
		return err
	}
	file, err := drive.Open(s.path, s.canary.Metadata)
	running := errors.Is(err, drive.ErrInUse)
	if err == nil {
		defer file.Close()
		s.status, err = file.Load() // nothing changes it any more
	}
	if err != nil && !running {
		return asUsage(err)
	}
	r, err := p.request(asking, rollout.Abort, s)
	switch {
	case err != nil:
		return err
	case running:
		return p.ask(ctx, f.output, s, r, "the run that is under way rolls back at its next tick, or the next one when it ends before")
	case canary == nil || f.none == (f.Actions[traffic.SetRoutes] != nil):
		return usage("no run of %s is under way, so this command has to roll it back: give its Canary by -f, and how traffic is divided by --exec set-routes=… or --request set-routes=…, or --no-traffic where nothing divides it now", nameOf(s.canary))
	case s.status.Phase == "":
		return failed(fmt.Errorf("%s: abort: no rollout has begun", nameOf(s.canary)))
	}
	f.Revision, f.Request = s.status.AppliedSpec, &r
	err = p.drive(ctx, f, canary, b, file)
	if e := new(exitError); errors.As(err, &e) && e.code == exitRolledBack {
		return nil
	}
	return err
}

// ask leaves a request for a run, and says so.
func (p *program) ask(ctx context.Context, output string, s subject, r rollout.Request, then string) error {
	if err := drive.Ask(ctx, s.path, r); err != nil {
		return asUsage(err)
	}
	if output == "json" {
		return printJSON(p.stdout, r)
	}
	_, err := fmt.Fprintf(p.stdout, "%s %s asked for: revision %s: %s\n", nameOf(s.canary), r.Action, redact.String(cmp.Or(r.Revision, "not known yet")), then)
	return err
}

// confirm asks on a terminal whether a promotion is meant.
func (p *program) confirm(s subject) error {
	in, ok := p.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usage("there is no terminal to ask for a confirmation: give --yes")
	}
	fmt.Fprintf(p.stderr, "%s\nPromote revision %s without the rest of its analysis? [y/N] ", progressOf(s.canary, s.status, time.Now()), redact.String(s.status.AppliedSpec))
	line, _ := bufio.NewReader(in).ReadString('\n')
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
		return failed(errors.New("it was not confirmed: nothing was asked"))
	}
	return nil
}

// A report is what rollout status prints.
type report struct {
	Name      string           `json:"name"`
	Namespace string           `json:"namespace"`
	File      string           `json:"file"`
	Request   *rollout.Request `json:"request,omitempty"` // that no run has taken up yet
	Status    rollout.Status   `json:"status"`
}

func reportOf(path string) (r report, err error) {
	owner, status, err := drive.Read(path)
	asked, err1 := drive.Asked(path)
	if asked != nil && status.Request != nil && asked.ID == status.Request.ID {
		asked = nil
	}
	return report{owner.Name, owner.Namespace, path, asked, status}, asUsage(errors.Join(err, err1))
}

// lookTime is the time between two looks at a status that is watched.
const lookTime = 500 * time.Millisecond

// watchStatus prints a status when it has changed, until the rollout has ended.
func (p *program) watchStatus(ctx context.Context, output string, s subject) error {
	var last []byte
	for {
		r, err := reportOf(s.path)
		if err != nil {
			return err
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, last) {
			last = text
			line := string(text)
			if output == "text" {
				line = instant(time.Now()) + " " + progressOf(s.canary, r.Status, time.Now())
				if r.Request != nil {
					line += redact.String(fmt.Sprintf("  %s asked for by %s", r.Request.Action, r.Request.By))
				}
			}
			if _, err := fmt.Fprintln(p.stdout, line); err != nil {
				return err
			}
		}
		switch {
		case r.Status.Ended() && r.Status.Phase == rollout.Succeeded:
			return nil
		case r.Status.Ended():
			return &exitError{exitRolledBack, nil}
		case retry.Sleep(ctx, lookTime) != nil:
			return &exitError{exitNotOver, nil}
		}
	}
}

// printReport prints a report for people.
func (p *program) printReport(r report) error {
	s := r.Status
	primary, share := s.PromotedSpec, fmt.Sprintf("%d%% to the canary", s.CanaryWeight)
	if s.PromotedURL != "" {
		primary += " at " + s.PromotedURL
	}
	if s.Mirrored {
		share += ", which gets copies of the rest"
	}
	rows := [][2]string{
		{"canary", r.Namespace + "/" + r.Name}, {"phase", cmp.Or(string(s.Phase), "new")}, {"revision", s.AppliedSpec}, {"primary", primary},
		{"traffic", share}, {"failed checks", fmt.Sprint(s.FailedChecks)},
	}
	if g := s.Gate; g != nil {
		rows = append(rows, [2]string{"waits on", fmt.Sprintf("%s (%s) since %s: %s", g.Name, g.Type, instant(g.Since), g.Reason)})
	}
	for _, q := range []*rollout.Request{s.Request, r.Request} {
		if q != nil {
			text := fmt.Sprintf("%s by %s at %s: %s", q.Action, q.By, instant(q.Time), q.Reason)
			rows = append(rows, [2]string{"asked", strings.TrimSuffix(text, ": ")})
		}
	}
	rows = append(rows, [2]string{"reason", s.Reason}, [2]string{"last step", instant(s.LastStep)}, [2]string{"file", r.File})
	for _, row := range rows {
		if row[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(p.stdout, "%-14s %s\n", row[0], redact.String(row[1])); err != nil {
			return err
		}
	}
	return nil
}
