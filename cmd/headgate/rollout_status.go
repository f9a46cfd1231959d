package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/ledger"
)

// statusFlags say whose status is printed, and how.
type statusFlags struct {
	runFlags
	watch bool
}

func (p *program) statusRollout() *cobra.Command {
	f := new(statusFlags)
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
		RunE: func(c *cobra.Command, args []string) error { return p.runStatus(c.Context(), f, args) },
	}
	stateVar(c, &f.state)
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "print changes as they happen, until the rollout has ended")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "what to print: text or json, with --watch one a line")
	complete(c, "output", "text", "json")
	return c
}

// A report is what rollout status prints.
type report struct {
	Name      string           `json:"name"`
	Namespace string           `json:"namespace"`
	File      string           `json:"file"`
	Request   *rollout.Request `json:"request,omitempty"` // that no run has taken up yet
	Status    rollout.Status   `json:"status"`
}

func (p *program) runStatus(ctx context.Context, f *statusFlags, args []string) error {
	if err := f.checkOutput(); err != nil {
		return err
	}
	s, err := p.rolloutOf(ctx, &f.runFlags, args)
	if err != nil {
		return err
	}
	if !f.watch {
		r, err := reportOf(s)
		if err != nil {
			return asUsage(err)
		}
		if f.output == "json" {
			return printJSON(p.stdout, r)
		}
		return r.print(p)
	}
	return p.watchStatus(ctx, f, s)
}

// lookTime is the time between two looks at a status that is watched.
const lookTime = 500 * time.Millisecond

// watchStatus prints a status when it has changed, until the rollout has ended.
func (p *program) watchStatus(ctx context.Context, f *statusFlags, s subject) error {
	var last []byte
	for {
		r, err := reportOf(s)
		if err != nil {
			return asUsage(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, last) {
			last = text
			line := string(text)
			if f.output == "text" {
				line = instant(time.Now()) + " " + progressOf(s.name, r.Status) + r.asked()
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

func reportOf(s subject) (r report, err error) {
	owner, status, err := ledger.Read(s.path)
	asked, err1 := ledger.Asked(s.path)
	if err := errors.Join(err, err1); err != nil {
		return r, err
	}
	if asked != nil && status.Request != nil && asked.ID == status.Request.ID {
		asked = nil
	}
	return report{Name: owner.Name, Namespace: owner.Namespace, File: s.path, Request: asked, Status: status}, nil
}

// asked is what was asked, for the end of a line.
func (r report) asked() string {
	if r.Request == nil {
		return ""
	}
	return redact.String(fmt.Sprintf("  %s asked for by %s", r.Request.Action, r.Request.By))
}

// print prints a report for people.
func (r report) print(p *program) error {
	s := r.Status
	primary := s.PromotedSpec
	if s.PromotedURL != "" {
		primary += " at " + s.PromotedURL
	}
	rows := [][2]string{
		{"canary", r.Namespace + "/" + r.Name}, {"phase", cmp.Or(string(s.Phase), "new")}, {"revision", s.AppliedSpec}, {"primary", primary},
		{"traffic", trafficOf(s)}, {"failed checks", fmt.Sprint(s.FailedChecks)},
	}
	if g := s.Gate; g != nil {
		rows = append(rows, [2]string{"waits on", fmt.Sprintf("%s (%s) since %s: %s", g.Name, g.Type, instant(g.Since), g.Reason)})
	}
	for _, q := range []*rollout.Request{s.Request, r.Request} {
		if q != nil {
			text := fmt.Sprintf("%s by %s at %s", q.Action, q.By, instant(q.Time))
			if q.Reason != "" {
				text += ": " + q.Reason
			}
			rows = append(rows, [2]string{"asked", text})
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

func trafficOf(s rollout.Status) string {
	text := fmt.Sprintf("%d%% to the canary", s.CanaryWeight)
	if s.Mirrored {
		text += ", which gets copies of the rest"
	}
	return text
}

// progressOf is where a rollout is, on one line, without its manifest.
func progressOf(name string, s rollout.Status) string {
	parts := []string{name, cmp.Or(string(s.Phase), "new"), fmt.Sprintf("%s %d%% of the traffic", bar(s.CanaryWeight, 100), s.CanaryWeight)}
	if s.Iterations > 0 {
		parts = append(parts, fmt.Sprintf("iteration %d", s.Iterations))
	}
	if s.FailedChecks > 0 {
		parts = append(parts, fmt.Sprintf("failed checks %d", s.FailedChecks))
	}
	if s.Gate != nil {
		parts = append(parts, "waits on "+s.Gate.Name)
	}
	return redact.String(strings.Join(parts, "  "))
}
