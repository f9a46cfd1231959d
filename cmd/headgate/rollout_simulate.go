package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout/simulate"
)

// outcomeFlags are the flags that script outcomes.
var outcomeFlags = []struct {
	subject simulate.Subject
	usage   string
}{
	{simulate.Hook, "`NAME|TYPE=VALUE[@TICKS],…`: what webhooks answer: a status, timeout or refused; repeatable"},
	{simulate.Metric, "`NAME=VALUE[@TICKS],…` of a metric: a number, none or error; repeatable"},
	{simulate.Target, "`METHOD=VALUE[@TICKS],…`: the result of scale-up, scale-down, promote or revision: ok or error; repeatable"},
	{simulate.Canary, "`VALUE[@TICKS],…`: the canary is ready, not-ready or stuck"},
	{simulate.Primary, "`VALUE[@TICKS],…`: the primary is ready, not-ready or stuck"},
	{simulate.Traffic, "`VALUE[@TICKS],…`: routes are ok, error, or set-error (reading works)"},
	{simulate.Revision, "`TEXT[@TICKS],…`: the revision of the target, from that tick on"},
	{simulate.Suspend, "`VALUE[@TICKS],…`: spec.suspend is on or off"},
}

// simulateFlags say what is simulated.
type simulateFlags struct {
	manifestFlags
	outputFlags
	outcomes [][]string // of each of outcomeFlags
	ticks    int
}

func (p *program) simulateRollout() *cobra.Command {
	f := &simulateFlags{outcomes: make([][]string, len(outcomeFlags))}
	c := &cobra.Command{
		Use:   "simulate -f FILE|DIR|- [[NAMESPACE/]CANARY]",
		Short: "Print tick by tick what a rollout would do",
		Long: `Simulate runs the analysis of a Canary with a clock of its own, and calls nothing. The canary appears at tick 0, and gets
a new revision at tick 1. Each tick is printed with what a rollout would call. Everything succeeds unless a flag says
otherwise. A value can be limited to ticks: 403@4 is for tick 4, 403@1-4 for ticks 1 to 4, 403@4- from tick 4 on; without
ticks it is for all others. If a tick has several values, the last one counts.

Exit codes: 0 the simulation was printed, however the rollout ends, 2 usage or an invalid object.`,
		Example: `  headgate rollout simulate -f canary.yaml --hook load-test=500@3-5
  headgate rollout simulate -f canary.yaml --revision v3@6 --canary not-ready@2-3 -o json`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error { return p.simulate(c.Context(), f, strings.Join(args, "")) },
	}
	f.manifestFlags.register(c)
	f.registerFormat(c, "text", "json")
	for i, o := range outcomeFlags {
		c.Flags().StringArrayVar(&f.outcomes[i], string(o.subject), nil, o.usage)
	}
	c.Flags().IntVar(&f.ticks, "ticks", 0, "maximum `NUMBER` of ticks; default 1000")
	c.ValidArgsFunction = completeCanaries(&f.manifestFlags)
	return c
}

func (p *program) simulate(ctx context.Context, f *simulateFlags, name string) error {
	if f.ticks < 0 {
		return usage("--ticks %d: want a positive number", f.ticks)
	}
	var script simulate.Script
	var errs []error
	for i, texts := range f.outcomes {
		for _, text := range texts {
			outcome, err := simulate.ParseOutcome(outcomeFlags[i].subject, text)
			script, errs = append(script, outcome), append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	canary, _, err := p.chosenCanary(&f.manifestFlags, name)
	if err != nil {
		return err
	}
	all := (&simulate.Simulation{Canary: canary, Script: script, Ticks: f.ticks}).Run(ctx)
	if !f.documents() {
		return simulate.WriteTrace(p.stdout, all)
	}
	for tick, err := range all {
		if err == nil {
			err = printItem(p.stdout, f.output, tick)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
