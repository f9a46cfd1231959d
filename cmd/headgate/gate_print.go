package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// printGate prints one gate.
func (c *gateCall) printGate(g api.Gate) error {
	if c.output != "table" {
		return printValue(c.stdout, c.output, g)
	}
	return c.printGateTable([]api.Gate{g}, nil)
}

// printGates prints gates, as the API lists them; tests are those of wide output.
func (c *gateCall) printGates(gates []api.Gate, tests map[api.Key]string) error {
	switch c.output {
	case "table", "wide":
		return c.printGateTable(gates, tests)
	case "name":
		for _, g := range gates {
			fmt.Fprintln(c.stdout, redact.String(pathOf(g.Key)))
		}
		return nil
	}
	return printValue(c.stdout, c.output, map[string][]api.Gate{"gates": append([]api.Gate{}, gates...)})
}

// printGateTable prints gates; with tests also what callers say of the canaries that wait,
// and the tests of their revisions.
func (c *gateCall) printGateTable(gates []api.Gate, tests map[api.Key]string) error {
	t := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	columns := []string{"GATE", "STATE", "FOR", "UNTIL", "CHANGED", "BY", "WAITING", "REASON"}
	if tests != nil {
		columns = append(columns, "REVISION", "WEIGHT", "STEP", "FAILED", "RUNS")
	}
	tableRow(t, columns...)
	for _, g := range gates {
		about := api.About{}
		if g.Waiting != nil {
			about = g.Waiting.About
		}
		failed := about.Failures
		if about.Threshold != "" {
			failed += "/" + about.Threshold
		}
		cells := []string{pathOf(g.Key), stateOf(g), openFor(g), instant(g.Expires), instant(g.Changed), g.Actor, waiting(g), g.Reason,
			about.Revision, about.Weight, about.Step, failed, tests[g.Key]}
		tableRow(t, cells[:len(columns)]...)
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

// openFor says for which revisions a gate is open.
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
func (c *gateCall) printAudit(entries []api.Entry) error {
	if c.output != "table" {
		return printValue(c.stdout, c.output, map[string][]api.Entry{"entries": append([]api.Entry{}, entries...)})
	}
	t := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	tableRow(t, "ID", "TIME", "GATE", "ACTION", "MODE", "CHECKSUM", "BY", "REASON")
	for _, e := range entries {
		tableRow(t, fmt.Sprint(e.ID), instant(e.Time), pathOf(e.Key), e.Action, string(e.Mode), e.Checksum, e.Actor, e.Reason)
	}
	return t.Flush()
}
