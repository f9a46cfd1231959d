package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// eventFlags are the flags of headgate events.
type eventFlags struct {
	statusStoreFlags
	query api.EventQuery
	since string
}

// maxEvents is the maximum number of events that one request to the server returns.
const maxEvents = 1000

func (p *program) events() *cobra.Command {
	f := new(eventFlags)
	c := &cobra.Command{
		Use:   "events [KIND | KIND/NAME | KIND/NAMESPACE/NAME]...",
		Short: "Print what happened to sources",
		Long: `Events prints the events of sources, oldest first: new artifacts, failures, recoveries. It asks the server (headgate
serve), which must be running. For several objects or kinds it looks through the newest 1000 events. With -w it goes on
with new events until it is interrupted, even if the server restarts.

Exit codes: 0 the events were printed, 1 the server refused or cannot be reached, 2 usage.`,
		Example: `  headgate events gitrepository/app --since 1h --severity error`,
		RunE:    func(c *cobra.Command, args []string) error { return p.runEvents(c.Context(), f, args) },
	}
	f.statusStoreFlags.register(p, c)
	f.registerFormat(c, "table", "wide", "json", "yaml")
	fl := c.Flags()
	fl.BoolVarP(&f.watch, "watch", "w", false, "print new events as they happen")
	choiceVar(c, &f.query.Severity, "severity", "info", "least severe events that are printed: trace, info or error", "trace", "info", "error")
	fl.StringVar(&f.since, "since", "", "only events since `TIME`: a duration before now such as 2h, or a date such as 2026-01-02T15:04:05Z")
	fl.IntVar(&f.query.Limit, "limit", 100, "maximum number of events, the newest ones; up to 1000")
	return c
}

// eventQuery returns the query for the flags. A query selects by at most one reference; the caller
// filters by several.
func (f *eventFlags) eventQuery(now time.Time) (q api.EventQuery, err error) {
	q = f.query
	q.Filter = f.filter()
	if len(f.refs) > 1 {
		q.Limit = maxEvents // the query also selects events of other objects
	}
	switch {
	case f.query.Limit < 1 || f.query.Limit > maxEvents:
		return q, usage("--limit %d: want 1 to %d", f.query.Limit, maxEvents)
	case f.selector != "":
		return q, usage("-l: events have no labels: name an object, or give a namespace with -n")
	case f.since == "":
		return q, nil
	}
	before, err := time.ParseDuration(f.since)
	if q.Since = now.Add(-before); err != nil {
		q.Since, err = time.Parse(time.RFC3339, f.since)
	}
	if err != nil || before < 0 {
		return q, usage("--since %q: want a duration such as 2h, or a date as 2026-01-02T15:04:05Z", f.since)
	}
	return q, nil
}

func (p *program) runEvents(ctx context.Context, f *eventFlags, args []string) error {
	if err := f.parseArguments(args, false); err != nil {
		return err
	}
	q, err := f.eventQuery(time.Now())
	if err != nil {
		return err
	}
	k, err := p.openStatusStore(&f.statusStoreFlags, nil, false, true)
	if err != nil {
		return err
	}
	of := func(e api.Event) api.Source {
		return api.Source{Kind: e.InvolvedObject.Kind, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
	}
	cells := func(e api.Event) []string {
		o := e.InvolvedObject
		return []string{formatTime(e.Timestamp), e.Severity, e.Reason, o.Kind + "/" + o.Namespace + "/" + o.Name, e.Message}
	}
	if f.watch {
		t := p.table(f.output == "wide")
		return k.client.FollowEvents(ctx, q, func(e api.Event) error {
			switch {
			case !f.selectsName(sourceRef(of(e))):
				return nil
			case f.machineReadable():
				return printItem(p.stdout, f.output, e)
			}
			return t.print(cells(e))
		})
	}
	ctx, cancel := k.requestContext(ctx)
	defer cancel()
	events, err := k.client.Events(ctx, q)
	if err != nil {
		return err
	}
	events = slices.DeleteFunc(events, func(e api.Event) bool { return !f.selectsName(sourceRef(of(e))) })
	events = events[max(0, len(events)-f.query.Limit):]
	lines := append([][]string{{"TIME", "SEVERITY", "REASON", "OBJECT", "MESSAGE"}}, mapSlice(events, cells)...)
	return p.printResult(&f.outputFlags, map[string][]api.Event{"events": append([]api.Event{}, events...)}, nil, lines)
}

func (p *program) reconcile() *cobra.Command {
	f, wait := new(statusStoreFlags), false
	c := &cobra.Command{
		Use:   "reconcile {KIND/NAME... | --all | -n NAMESPACE | -l LABELS}",
		Short: "Check sources now, not at their next interval",
		Long: `Reconcile asks the server (headgate serve), which must be running, to check sources now, waits for the end, and prints the
result as fetch does. A suspended source is refused: resume it first. Without a server, use headgate fetch.

Exit codes: 0 all sources are ready, or with --wait=false requested, 1 something failed, 2 usage or an invalid object, 3 a verification failed.`,
		Example: `  headgate reconcile gitrepository/app --timeout 2m`,
		RunE:    func(c *cobra.Command, args []string) error { return p.runReconcile(c.Context(), f, args, wait) },
	}
	f.register(p, c)
	f.outputFlags.register(c, "table", "wide", "json", "yaml", "name")
	c.Flags().BoolVar(&wait, "wait", true, "wait until the server has checked them")
	return c
}

func (p *program) runReconcile(ctx context.Context, f *statusStoreFlags, args []string, wait bool) error {
	k, err := p.openStatusStore(f, args, true, true)
	if err != nil {
		return err
	}
	found, _, err := k.sources(ctx, wait)
	if err := errors.Join(err, k.checkFound(mapSlice(found, sourceRef), false)); err != nil {
		return err
	}
	if !wait {
		var errs []error
		for _, s := range found {
			_, _, err := k.client.Reconcile(ctx, sourceRef(s), api.Change{By: p.user()}, 0)
			if err == nil && f.prints() {
				_, err = fmt.Fprintf(p.stdout, "%s: asked for\n", argumentOfSource(s))
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	rows, err := k.reconcileAll(ctx, found)
	if err != nil {
		return err
	}
	s := &session{program: p, flags: &sourceFlags{outputFlags: f.outputFlags}, set: new(source.Set)}
	return s.printObjects(rows, false)
}

// reconcileAll makes the server reconcile sources concurrently, each after the sources that it needs.
func (k *statusStore) reconcileAll(ctx context.Context, found []api.Source) ([]*objectResult, error) {
	objects, rows, ended := make([]source.Object, len(found)), make([]*objectResult, len(found)), make([]chan struct{}, len(found))
	for i, s := range found {
		obj, err := decodeObject(s.Document)
		if err != nil {
			return nil, err
		}
		objects[i], rows[i], ended[i] = obj, &objectResult{Result: headgate.Result{Object: obj, Index: i}}, make(chan struct{})
	}
	var runs sync.WaitGroup
	for i, before := range source.Order(objects) {
		runs.Go(func() {
			defer close(ended[i])
			for _, b := range before {
				<-ended[b]
			}
			k.reconcileOne(ctx, sourceRef(found[i]), rows[i])
		})
	}
	runs.Wait()
	return rows, nil
}

// reconcileOne makes the server reconcile a source, waits for the end of its run, and puts the result into r.
func (k *statusStore) reconcileOne(ctx context.Context, ref source.Reference, r *objectResult) {
	s, ticket, err := k.client.Reconcile(ctx, ref, api.Change{By: k.user()}, time.Minute)
	for err == nil && (s.Last == nil || s.Last.Number < ticket.Run || s.Document == "") {
		if err = retry.Sleep(ctx, time.Second); err == nil {
			s, err = k.client.Source(ctx, ref)
		}
	}
	if refused, ok := errors.AsType[*api.Problem](err); ok {
		r.err, r.refused = errors.New(strings.TrimLeft(strings.TrimPrefix(refused.Error(), r.Object.Head().String()), ": ")), true
		return
	}
	var obj source.Object
	if err == nil {
		obj, err = decodeObject(s.Document)
	}
	if err != nil {
		r.err, r.Outcome = err, source.Failed
		return
	}
	r.Object, r.Outcome, r.Why = obj, source.Outcome(s.Last.Outcome), s.Last.Why
	r.Changed = r.Outcome == source.Stored
	if s.Last.Error == "" {
		return
	}
	code, verified := exitFailed, obj.Common().Condition(source.SourceVerifiedCondition)
	switch {
	case r.Outcome == source.Stalled:
		code = exitUsage
	case verified.Status == "False" && strings.Contains(s.Last.Error, verified.Message):
		code = exitVerify
	}
	r.err = &exitError{code, errors.New(s.Last.Error)}
}
