package main

import (
	"github.com/spf13/cobra"
)

func (p *program) rollout() *cobra.Command {
	c := &cobra.Command{
		Use:   "rollout",
		Short: "Roll out a canary by webhooks, metrics and thresholds",
		Long: `A rollout is driven by the spec.analysis of a Canary object: see docs/rollout.md. Simulate tells what would
happen, run does it; status, abort and promote are for what is under way.`,
		Args: noCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.simulateRollout(), p.runRollout(), p.statusRollout(), p.abortRollout(), p.promoteRollout())
	return c
}
