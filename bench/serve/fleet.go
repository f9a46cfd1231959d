package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/headgate-io/headgate/bench/contest"
)

var (
	objects      = flag.Int("objects", 10_000, "`number` of GitRepository objects")
	repositories = flag.Int("repositories", 100, "`number` of repositories that they are of")
	hosts        = flag.Int("hosts", 20, "`number` of hosts that the repositories are on")
	interval     = flag.Duration("interval", time.Minute, "of the objects")
	profiles     = flag.String("profiles", "", "write profiles of what is measured to this `directory`")
	port         = flag.String("port", "0", "of the upstreams; 0 takes a free one")
	only         = flag.String("fleet", "", "measure this fleet alone: shared or apart")
)

// A fleet is one way to keep the objects.
type fleet struct {
	name  string
	role  string
	tally tally
	asked counts
	peak  int64 // bytes
	first time.Duration
	again time.Duration // from stored statuses
	fresh counts        // while it started again
}

// fleetRow measures continuous mode with many objects, none of which changes:
// how late checks begin, what the process needs at its peak and for an unchanged
// poll, what upstreams are asked for, and how long a start from stored statuses takes.
func fleetRow(ctx context.Context, o contest.Options) (missed int, err error) {
	temp := o.Keep
	if temp == "" {
		if temp, err = os.MkdirTemp("", "headgate-bench-"); err != nil {
			return 0, err
		}
		defer os.RemoveAll(temp)
	}
	rows := []*fleet{{name: "shared", role: "shared"}, {name: "each for itself", role: "apart"}}
	if *only != "" {
		rows = slices.DeleteFunc(rows, func(r *fleet) bool { return r.role != *only })
	}
	for _, r := range rows {
		if err := r.measure(ctx, filepath.Join(temp, r.role), o.Runs); err != nil {
			return 0, fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %+v, asked %+v; started again: %+v\n", r.name, r.tally, r.asked, r.fresh)
	}
	reportFleets(rows)
	return judgeFleets(rows), nil
}

// measure starts with nothing, waits until all are ready and one more interval,
// and measures some. Then it starts again.
func (r *fleet) measure(ctx context.Context, dir string, intervals int) error {
	up, err := startPart(ctx, "upstream", options()...)
	if err != nil {
		return err
	}
	defer up.end()
	port, err := up.line()
	if err != nil {
		return err
	}
	if err := writeObjects(dir, port); err != nil {
		return err
	}
	if r.first, err = r.watch(ctx, dir, func(p *part) error {
		if err := sleep(ctx, *interval); err != nil {
			return err
		}
		return r.span(ctx, p, port, intervals)
	}); err != nil {
		return err
	}
	before, err := countsOf(port)
	if err != nil {
		return err
	}
	if r.again, err = r.watch(ctx, dir, func(*part) error { return nil }); err != nil {
		return err
	}
	after, err := countsOf(port)
	r.fresh = after.less(before)
	return err
}

// watch starts a keeper, tells how long it takes until all objects are ready,
// and does something then.
func (r *fleet) watch(ctx context.Context, dir string, then func(*part) error) (took time.Duration, err error) {
	start := time.Now()
	p, err := startPart(ctx, r.role, append(options(), dir)...)
	if err != nil {
		return 0, err
	}
	defer p.end()
	if _, err := p.ask("ready"); err != nil {
		return 0, err
	}
	took = time.Since(start)
	if err := then(p); err != nil {
		return 0, err
	}
	r.peak = max(r.peak, p.peak())
	return took, nil
}

// span measures some intervals.
func (r *fleet) span(ctx context.Context, p *part, port string, intervals int) error {
	before, err := countsOf(port)
	if err != nil {
		return err
	}
	if _, err := p.ask("begin"); err != nil {
		return err
	}
	if err := sleep(ctx, time.Duration(intervals)**interval); err != nil {
		return err
	}
	if err := p.tally(&r.tally); err != nil {
		return err
	}
	after, err := countsOf(port)
	r.asked = after.less(before)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// options are the flags for the parts.
func options() []string {
	return []string{fmt.Sprint("-objects=", *objects), fmt.Sprint("-repositories=", *repositories), fmt.Sprint("-hosts=", *hosts), fmt.Sprint("-interval=", *interval), "-profiles=" + *profiles, "-port=" + *port}
}

// writeObjects writes the documents: objects of one repository have neither
// names nor namespaces in common.
func writeObjects(dir, port string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "objects.yaml"))
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range *objects {
		repository := i % *repositories
		fmt.Fprintf(f, "---\napiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata:\n  name: app-%05d\n  namespace: team-%02d\nspec:\n  interval: %s\n  url: http://%s:%s/%s\n  ref:\n    branch: main\n",
			i, i / *repositories, *interval, hostOf(repository%*hosts), port, pathOf(repository))
	}
	return f.Close()
}

func reportFleets(rows []*fleet) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\tlate p50 ms\tp99 ms\tmax ms\tpeak MB\tpolls\tCPU µs a poll\tallocations\tbytes\trequests\tfirst s\tagain s\tpacks then")
	for _, r := range rows {
		polls := float64(max(r.tally.Runs, 1))
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%.0f\t%.0f\t%.0f\t%.3f\t%.1f\t%.2f\t%d\n", r.name,
			ms(r.tally.Late[0]), ms(r.tally.Late[1]), ms(r.tally.Late[2]), float64(r.peak)/1e6, r.tally.Runs,
			float64(r.tally.CPU.Microseconds())/polls, float64(r.tally.Mallocs)/polls, float64(r.tally.Bytes)/polls,
			float64(r.asked.requests())/polls, r.first.Seconds(), r.again.Seconds(), r.fresh.Packs)
	}
	w.Flush()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// judgeFleets prints the goals and returns how many were missed.
func judgeFleets(rows []*fleet) (missed int) {
	var goals []contest.Goal
	for _, r := range rows {
		goals = append(goals,
			contest.Goal{What: r.name + ": 99th percentile of lateness", Number: r.tally.Late[1].Seconds(), Limit: interval.Seconds() / 20, Unit: "s"},
			contest.Goal{What: r.name + ": peak memory", Number: float64(r.peak) / 1e6, Limit: 200, Unit: "MB"},
			contest.Goal{What: r.name + ": start from stored statuses", Number: r.again.Seconds(), Limit: 3, Unit: "s"},
			contest.Goal{What: r.name + ": packs fetched then", Number: float64(r.fresh.Packs), Limit: 0, Unit: "packs"},
			contest.Goal{What: r.name + ": failed checks", Number: float64(r.tally.Failed), Limit: 0, Unit: "checks"})
	}
	return contest.Judge(os.Stdout, goals)
}
