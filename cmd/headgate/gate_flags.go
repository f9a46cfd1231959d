package main

import (
	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

var (
	gateFormats = []string{"table", "json", "yaml"}
	listFormats = []string{"table", "wide", "json", "yaml", "name"}
)

func printFlags(f *gateFlags, c *cobra.Command) {
	c.Flags().StringVar(&f.gate, "gate", api.DefaultGate, "`NAME` of the one of several of the canary, as in NAMESPACE/NAME/GATE")
	outputFlag(f, c, gateFormats)
}

func outputFlag(f *gateFlags, c *cobra.Command, formats []string) {
	f.formats = formats
	c.Flags().StringVarP(&f.output, "output", "o", "table", "what to print: "+either(formats))
	complete(c, "output", formats...)
}

func reasonFlags(f *gateFlags, c *cobra.Command) {
	printFlags(f, c)
	c.Flags().StringVar(&f.change.Reason, "reason", "", "`TEXT` for the audit trail")
	c.Flags().StringVar(&f.change.Actor, "actor", "", "`NAME` for the audit trail, where callers need not say who they are; default that of the user")
}

func ttlFlag(f *gateFlags, c *cobra.Command, usage string) {
	c.Flags().StringVar(&f.change.TTL, "ttl", "", usage)
}

func checksumFlag(f *gateFlags, c *cobra.Command, usage string) {
	c.Flags().StringVar(&f.change.Checksum, "checksum", "", usage)
}

func openFlags(f *gateFlags, c *cobra.Command) {
	reasonFlags(f, c)
	c.Flags().StringVar((*string)(&f.change.Mode), "mode", "", "`MODE` of the opening: sticky, one-shot or checksum; default sticky, with --checksum checksum")
	checksumFlag(f, c, "`CHECKSUM` of the revision that it is open for")
	ttlFlag(f, c, "`TIME` after which it closes by itself: seconds, or a duration such as 2h; default never")
	complete(c, "mode", string(api.Sticky), string(api.OneShot), string(api.Bound))
}

func rejectFlags(f *gateFlags, c *cobra.Command) {
	reasonFlags(f, c)
	checksumFlag(f, c, "`CHECKSUM` of the revision that is rejected; default the one that waits")
	ttlFlag(f, c, "`TIME` after which the rollback switch closes by itself: seconds, or a duration such as 2h; default never")
}

func linkFlags(f *gateFlags, c *cobra.Command) {
	printFlags(f, c)
	ttlFlag(f, c, "`TIME` that the links are good for: seconds, or a duration such as 8h; default 24h")
}

func waitFlags(f *gateFlags, c *cobra.Command) {
	printFlags(f, c)
	spanVar(c, &f.timeout, "for", 0, "how long to wait; 0 is without end")
	checksumFlag(f, c, "`CHECKSUM` of the revision that it has to be open for; default the one that waits")
}

func selectFlags(f *gateFlags, c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.namespace, "namespace", "", "`NAMESPACE` of the canaries; default all")
	fl.StringVar(&f.name, "name", "", "`NAME` of the canary; default all")
	fl.StringVar(&f.gate, "gate", "", "`NAME` of the ones of several of a canary; default all")
}

func watchFlags(f *gateFlags, c *cobra.Command) {
	selectFlags(f, c)
	outputFlag(f, c, gateFormats)
}

func listFlags(f *gateFlags, c *cobra.Command) {
	selectFlags(f, c)
	outputFlag(f, c, listFormats)
	if f.kind == api.KindGate {
		c.Flags().BoolVar(&f.waiting, "waiting", false, "only those that somebody waits at, and asked for within two of its intervals")
	}
	limitFlag(f, c)
}

func auditFlags(f *gateFlags, c *cobra.Command) {
	selectFlags(f, c)
	outputFlag(f, c, gateFormats)
	limitFlag(f, c)
	c.Flags().StringVar(&f.before, "before", "", "`ID` of the entry to go on from")
}

func limitFlag(f *gateFlags, c *cobra.Command) {
	c.Flags().IntVar(&f.limit, "limit", 1000, "most to print, up to 1000")
}

// filter is what the flags select.
func (f *gateFlags) filter() api.Filter {
	return api.Filter{Kind: f.kind, Namespace: f.namespace, Name: f.name, Gate: f.gate, Waiting: f.waiting, Limit: f.limit, Before: f.before}
}
