package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// eventsDir is where a store has the journal of its server.
const eventsDir = ".events"

// eventFlags say which events are shown, and how.
type eventFlags struct {
	keeperFlags
	watch    bool
	severity string
	since    string
	limit    int
	output   string
}

var (
	eventFormats    = []string{"table", "json", "yaml"}
	eventSeverities = []string{"trace", "info", "error"}
)

func (p *program) events() *cobra.Command {
	f := new(eventFlags)
	c := &cobra.Command{
		Use:   "events [KIND | KIND/NAME | KIND/NAMESPACE/NAME]...",
		Short: "Print what happened to sources",
		Long: `Events prints the events of sources, the oldest first: new artifacts, failures, recoveries. They are those of the
server that keeps the sources (headgate serve), or of the last one, as the files of the store have them, when none runs.

With -w those that come follow until it is interrupted; when the server is lost it waits until it is back.

Exit codes: 0 the events were printed, 1 the server was not reached or refused, 2 usage.`,
		Example: `  headgate events -w
  headgate events gitrepository/app --since 1h --severity error
  headgate events -o json --limit 10`,
		RunE: func(c *cobra.Command, args []string) error { return asFailure(p.runEvents(c.Context(), f, args)) },
	}
	f.register(c)
	fl := c.Flags()
	fl.BoolVarP(&f.watch, "watch", "w", false, "print events as they come")
	fl.StringVar(&f.severity, "severity", "info", "the least that is printed: trace, info or error")
	fl.StringVar(&f.since, "since", "", "`TIME` of the first: a duration such as 2h, before now, or a date as 2026-01-02T15:04:05Z")
	fl.IntVar(&f.limit, "limit", 100, "the newest so many, up to 1000")
	fl.StringVarP(&f.output, "output", "o", "table", "what to print: "+either(eventFormats))
	complete(c, "severity", eventSeverities...)
	complete(c, "output", eventFormats...)
	c.ValidArgsFunction = p.completeKept(&f.keeperFlags)
	return c
}

// mostEvents is how many events a server is asked for at once.
const mostEvents = 1000

// An eventQuery selects events.
type eventQuery struct {
	refs     []source.Reference // none: of all objects
	severity string
	since    time.Time
	after    int64
	limit    int // the newest
}

// query checks the flags.
func (f *eventFlags) query(args []string, now time.Time) (q eventQuery, err error) {
	q = eventQuery{severity: f.severity, limit: f.limit}
	switch {
	case !slices.Contains(eventFormats, f.output):
		return q, usage("-o %q: want %s", f.output, either(eventFormats))
	case !slices.Contains(eventSeverities, f.severity):
		return q, usage("--severity %q: want %s", f.severity, either(eventSeverities))
	case f.limit < 1 || f.limit > mostEvents:
		return q, usage("--limit %d: want 1 to %d", f.limit, mostEvents)
	}
	if f.since != "" {
		before, err := time.ParseDuration(f.since)
		if q.since = now.Add(-before); err != nil {
			q.since, err = time.Parse(time.RFC3339, f.since)
		}
		if err != nil || before < 0 {
			return q, usage("--since %q: want a duration such as 2h, or a date as 2026-01-02T15:04:05Z", f.since)
		}
	}
	q.refs, err = references(args, true)
	return q, err
}

// ref is what one query of a journal can select by.
func (q eventQuery) ref() (ref source.Reference) {
	if len(q.refs) == 1 {
		ref = q.refs[0]
	}
	return ref
}

// most is how many one query of a journal is asked for.
func (q eventQuery) most() int {
	if len(q.refs) > 1 {
		return mostEvents // some of them will not do
	}
	return q.limit
}

func (q eventQuery) api() api.EventQuery {
	ref := q.ref()
	return api.EventQuery{Filter: api.Filter{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}, Severity: q.severity, Since: q.since, After: q.after, Limit: q.most()}
}

// selects reports whether an event is of an object that is asked for.
func (q eventQuery) selects(e source.Event) bool { return selects(q.refs, involved(e)) }

// involved returns the object of an event, of which documents of the other group
// have other names.
func involved(e source.Event) source.Reference {
	ref := source.Reference{Kind: e.InvolvedObject.Kind, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
	if known, err := source.ParseReference(ref.Kind); err == nil {
		ref.Kind = known.Kind
	}
	return ref
}

// last returns as many of the newest as are asked for.
func (q eventQuery) last(events []api.Event) []api.Event {
	if len(events) > q.limit {
		return events[len(events)-q.limit:]
	}
	return events
}

func (p *program) runEvents(ctx context.Context, f *eventFlags, args []string) error {
	q, err := f.query(args, time.Now())
	if err != nil {
		return err
	}
	k, err := p.openKeeper(&f.keeperFlags)
	if err != nil {
		return err
	}
	if f.watch {
		return k.follow(ctx, q, func(e api.Event) error { return printEvent(p.stdout, f.output, e) })
	}
	events, err := k.events(ctx, q)
	if err != nil {
		return err
	}
	if f.output != "table" {
		return printValue(p.stdout, f.output, struct {
			Events []api.Event `json:"events"`
		}{append([]api.Event{}, events...)})
	}
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	tableRow(t, "TIME", "SEVERITY", "REASON", "OBJECT", "MESSAGE")
	for _, e := range events {
		tableRow(t, eventCells(e)...)
	}
	return t.Flush()
}

func eventCells(e api.Event) []string {
	o := e.InvolvedObject
	return []string{instant(e.Timestamp), e.Severity, e.Reason, o.Kind + "/" + o.Namespace + "/" + o.Name, e.Message}
}

// printEvent prints one event of those that come: a line, or a document.
func printEvent(w io.Writer, format string, e api.Event) error {
	switch format {
	case "json":
		return printLine(w, e)
	case "yaml":
		text, err := yaml.Marshal(e)
		if err == nil {
			_, err = fmt.Fprintf(w, "---\n%s", text)
		}
		return err
	}
	cells := eventCells(e)
	for i := range cells {
		cells[i] = redact.String(cells[i])
	}
	_, err := fmt.Fprintln(w, strings.Join(cells, " "))
	return err
}
