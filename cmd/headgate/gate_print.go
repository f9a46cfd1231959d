package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// printGates prints one gate.
func (p *program) printGates(format string, g api.Gate) error {
	if format != "table" {
		return printValue(p.stdout, format, g)
	}
	return p.printGateTable([]api.Gate{g})
}

// printGateList prints gates, as the API lists them.
func (p *program) printGateList(format string, gates []api.Gate) error {
	switch format {
	case "table":
		return p.printGateTable(gates)
	case "name":
		for _, g := range gates {
			fmt.Fprintln(p.stdout, redact.String(pathOf(g.Key)))
		}
		return nil
	}
	return printValue(p.stdout, format, struct {
		Gates []api.Gate `json:"gates"`
	}{append([]api.Gate{}, gates...)})
}

var gateColumns = []string{"GATE", "STATE", "FOR", "UNTIL", "CHANGED", "BY", "WAITING", "REASON"}

func gateCells(g api.Gate) []string {
	return []string{pathOf(g.Key), stateOf(g), openFor(g), instant(g.Expires), instant(g.Changed), g.Actor, waiting(g), g.Reason}
}

func (p *program) printGateTable(gates []api.Gate) error {
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	tableRow(t, gateColumns...)
	for _, g := range gates {
		tableRow(t, gateCells(g)...)
	}
	return t.Flush()
}

// printWideGates also prints what callers say of the canaries that wait, and the
// tests of their revisions.
func (p *program) printWideGates(gates []api.Gate, tests map[api.Key]string) error {
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	tableRow(t, slices.Concat(gateColumns, []string{"REVISION", "WEIGHT", "STEP", "FAILED", "RUNS"})...)
	for _, g := range gates {
		about := api.About{}
		if g.Waiting != nil {
			about = g.Waiting.About
		}
		failed := about.Failures
		if about.Threshold != "" {
			failed += "/" + about.Threshold
		}
		tableRow(t, append(gateCells(g), about.Revision, about.Weight, about.Step, failed, tests[g.Key])...)
	}
	return t.Flush()
}

// tableRow writes a line of a table; a cell that is empty gets a dash.
func tableRow(t *tabwriter.Writer, cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(redact.String(cell), "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

// pathOf is NAMESPACE/NAME, and /GATE when that is not the default one.
func pathOf(k api.Key) string {
	if k.Gate == api.DefaultGate {
		return k.Namespace + "/" + k.Name
	}
	return k.Namespace + "/" + k.Name + "/" + k.Gate
}

func stateOf(g api.Gate) string {
	if g.Open {
		return "open"
	}
	return "closed"
}

// openFor says for whom a gate is open.
func openFor(g api.Gate) string {
	switch {
	case !g.Open:
		return ""
	case g.Checksum != "":
		return g.Checksum
	case g.Mode == api.OneShot:
		return "the next"
	}
	return "all"
}

func instant(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// waiting says who waits.
func waiting(g api.Gate) string {
	if g.Waiting == nil {
		return ""
	}
	text := g.Waiting.Checksum + " " + g.Waiting.Phase + " since " + instant(g.Waiting.Since)
	if g.Waiting.Stale {
		text += ", asked last " + instant(g.Waiting.Last)
	}
	return strings.Join(strings.Fields(text), " ")
}

// printAudit prints entries, as the API lists them.
func (p *program) printAudit(format string, entries []api.Entry) error {
	if format != "table" {
		return printValue(p.stdout, format, struct {
			Entries []api.Entry `json:"entries"`
		}{append([]api.Entry{}, entries...)})
	}
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	tableRow(t, "ID", "TIME", "GATE", "ACTION", "MODE", "CHECKSUM", "BY", "REASON")
	for _, e := range entries {
		tableRow(t, fmt.Sprint(e.ID), instant(e.Time), pathOf(e.Key), e.Action, string(e.Mode), e.Checksum, e.Actor, e.Reason)
	}
	return t.Flush()
}
