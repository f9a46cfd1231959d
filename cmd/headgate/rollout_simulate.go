package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/simulate"
)

// simulateFlags say what is simulated.
type simulateFlags struct {
	manifestFlags
	outcomes map[simulate.Subject]*[]string
	ticks    int
	output   string
}

// outcomeFlags are the flags that script outcomes.
var outcomeFlags = []struct {
	name    string
	subject simulate.Subject
	usage   string
}{
	{"hook", simulate.Hook, "`NAME|TYPE=VALUE[@TICKS],…` that webhooks answer: a status, timeout or refused; repeatable"},
	{"metric", simulate.Metric, "`NAME=VALUE[@TICKS],…` of a metric: a number, none or error; repeatable"},
	{"target", simulate.Target, "`METHOD=VALUE[@TICKS],…` of scale-up, scale-down, promote or revision: ok or error; repeatable"},
	{"canary", simulate.Canary, "`VALUE[@TICKS],…` of the canary: ready, not-ready or stuck"},
	{"primary", simulate.Primary, "`VALUE[@TICKS],…` of the primary: ready, not-ready or stuck"},
	{"traffic", simulate.Traffic, "`VALUE[@TICKS],…` of the routes: ok, error or set-error (reading works)"},
	{"revision", simulate.Revision, "`TEXT[@TICKS],…` of the revision of the target, from that tick on"},
	{"suspend", simulate.Suspend, "`VALUE[@TICKS],…` of spec.suspend: on or off"},
}

func (p *program) simulateRollout() *cobra.Command {
	f := &simulateFlags{outcomes: map[simulate.Subject]*[]string{}}
	c := &cobra.Command{
		Use:   "simulate -f FILE|DIR|- [[NAMESPACE/]CANARY]",
		Short: "Tell tick by tick what a rollout would do",
		Long: `Simulate runs the analysis of a Canary with a clock of its own, and calls nobody. Tick 0 is the first sight of
the canary; from tick 1 on there is a second revision. Each tick is printed with what is called in it and what
comes of that.

Everything goes well unless flags say otherwise. A value may have ticks: 403@4 is in tick 4, 403@1-4 in ticks 1
to 4, 403@4- from tick 4 on; without ticks it is for all others. Of several values for a tick the last counts.

Exit codes: 0 the simulation is told, however the rollout ends, 2 usage or an invalid object.`,
		Example: `  headgate rollout simulate -f canary.yaml
  headgate rollout simulate -f canary.yaml --hook load-test=500@3-5
  headgate rollout simulate -f canary.yaml --hook confirm-promotion=403@1-20 --metric request-success-rate=98@4,none@5
  headgate rollout simulate -f canary.yaml --revision v3@6 --canary not-ready@2-3 -o json`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error { return p.runSimulate(c.Context(), f, args) },
	}
	f.manifestFlags.register(c)
	for _, o := range outcomeFlags {
		values := new([]string)
		c.Flags().StringArrayVar(values, o.name, nil, o.usage)
		f.outcomes[o.subject] = values
	}
	c.Flags().IntVar(&f.ticks, "ticks", 0, "most `NUMBER` of ticks; default 1000")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "what to print: text, or json with one step a line")
	complete(c, "output", "text", "json")
	c.ValidArgsFunction = completeCanaries(&f.manifestFlags)
	return c
}

func (p *program) runSimulate(ctx context.Context, f *simulateFlags, args []string) error {
	if f.output != "text" && f.output != "json" {
		return usage("-o %q: want text or json", f.output)
	}
	if f.ticks < 0 {
		return usage("--ticks %d: want a positive number", f.ticks)
	}
	script, err := f.script()
	if err != nil {
		return err
	}
	canary, _, err := p.chosenCanary(ctx, &f.manifestFlags, args)
	if err != nil {
		return err
	}
	if err := script.Check(canary); err != nil {
		return &exitError{exitUsage, err}
	}
	ticks := (&simulate.Simulation{Canary: canary, Script: script, Ticks: f.ticks}).Run(ctx)
	if f.output == "text" {
		return asUsage(simulate.WriteTrace(p.stdout, ticks))
	}
	enc := json.NewEncoder(p.stdout)
	enc.SetEscapeHTML(false)
	for tick, err := range ticks {
		if err == nil {
			err = enc.Encode(tick)
		}
		if err != nil {
			return asUsage(err)
		}
	}
	return nil
}

// script is what the flags say.
func (f *simulateFlags) script() (simulate.Script, error) {
	var script simulate.Script
	var errs []error
	for _, o := range outcomeFlags {
		for _, text := range *f.outcomes[o.subject] {
			outcome, err := simulate.ParseOutcome(o.subject, text)
			if err != nil {
				errs = append(errs, err)
			}
			script = append(script, outcome)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return script, nil
}

// chosenCanary reads the manifests and returns the canary that is named, if an
// analysis runs with it.
func (p *program) chosenCanary(ctx context.Context, f *manifestFlags, args []string) (*rollout.Canary, *book, error) {
	b, err := p.readBook(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	canary, err := b.find(name)
	if err == nil {
		err = asUsage(b.refusal(canary))
	}
	p.tellWarnings(b)
	return canary, b, err
}

// asUsage gives err the exit code 2, which is that of every error of a rollout.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}
