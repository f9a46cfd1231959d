package main

import (
	"bytes"
	"context"
	"errors"
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
	port         = flag.String("port", "0", "of the upstreams; 0 takes a free one")
	only         = flag.String("fleet", "", "measure this fleet alone: shared or apart")
)

// A fleet is one way to keep the objects.
type fleet struct {
	name  string
	dir   string
	args  []string // of headgate serve
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
	command, err := buildKeeper(ctx, temp)
	if err != nil {
		return 0, err
	}
	rows := []*fleet{{name: "shared", dir: "shared"}, {name: "each for itself", dir: "apart", args: []string{"--apart"}}}
	if *only != "" {
		rows = slices.DeleteFunc(rows, func(r *fleet) bool { return r.dir != *only })
	}
	for _, r := range rows {
		if err := r.measure(ctx, command, filepath.Join(temp, r.dir), o.Runs); err != nil {
			return 0, fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %+v, asked %+v; started again: %+v\n", r.name, r.tally, r.asked, r.fresh)
	}
	reportFleets(rows)
	return judgeFleets(rows), nil
}

// measure starts with nothing, waits until all are ready and one more interval,
// and measures some. Then it starts again.
func (r *fleet) measure(ctx context.Context, command, dir string, intervals int) error {
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
	if r.first, err = r.watch(ctx, command, dir, func(k *keeper) error {
		if err := sleep(ctx, *interval); err != nil {
			return err
		}
		return r.span(ctx, k, port, intervals)
	}); err != nil {
		return err
	}
	before, err := countsOf(port)
	if err != nil {
		return err
	}
	if r.again, err = r.watch(ctx, command, dir, func(*keeper) error { return nil }); err != nil {
		return err
	}
	after, err := countsOf(port)
	r.fresh = after.less(before)
	return err
}

// watch starts a keeper, tells how long it takes until all objects are ready,
// and does something then.
func (r *fleet) watch(ctx context.Context, command, dir string, then func(*keeper) error) (took time.Duration, err error) {
	start := time.Now()
	k, err := startKeeper(ctx, command, dir, r.args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, k.end()) }()
	if err := k.await(ctx, *objects); err != nil {
		return 0, err
	}
	took = time.Since(start)
	if err := then(k); err != nil {
		return 0, err
	}
	r.peak = max(r.peak, k.peak())
	return took, nil
}

// span measures some intervals.
func (r *fleet) span(ctx context.Context, k *keeper, port string, intervals int) error {
	before, err := countsOf(port)
	if err != nil {
		return err
	}
	begun, err := k.tally(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, time.Duration(intervals)**interval); err != nil {
		return err
	}
	ended, err := k.tally(ctx)
	if err != nil {
		return err
	}
	r.tally = ended.less(begun)
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
	return []string{fmt.Sprint("-objects=", *objects), fmt.Sprint("-repositories=", *repositories), fmt.Sprint("-hosts=", *hosts), fmt.Sprint("-interval=", *interval), "-port=" + *port}
}

// writeObjects writes the documents, a file for each namespace: objects of one
// repository have neither names nor namespaces in common.
func writeObjects(dir, port string) error {
	dir = filepath.Join(dir, "objects")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for first := 0; first < *objects; first += *repositories {
		var text bytes.Buffer
		for repository := range min(*repositories, *objects-first) {
			fmt.Fprintf(&text, "---\napiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata:\n  name: app-%05d\n  namespace: team-%02d\nspec:\n  interval: %s\n  url: http://%s:%s/%s\n  ref:\n    branch: main\n",
				first+repository, first / *repositories, *interval, hostOf(repository%*hosts), port, pathOf(repository))
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("team-%02d.yaml", first / *repositories)), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func reportFleets(rows []*fleet) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\tlate p50 s\tp99 s\tall s\tpeak MB\tpolls\tCPU µs a poll\tallocations\tbytes\trequests\tfirst s\tagain s\tpacks then")
	for _, r := range rows {
		polls := max(r.tally.Polls, 1)
		fmt.Fprintf(w, "%s\t≤ %v\t≤ %v\t≤ %v\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t%.3f\t%.1f\t%.2f\t%d\n", r.name,
			r.tally.late(0.5), r.tally.late(0.99), r.tally.late(1), float64(r.peak)/1e6, r.tally.Polls,
			1e6*r.tally.CPU/polls, r.tally.Mallocs/polls, r.tally.Bytes/polls,
			float64(r.asked.requests())/polls, r.first.Seconds(), r.again.Seconds(), r.fresh.Packs)
	}
	w.Flush()
}

// judgeFleets prints the goals and returns how many were missed.
func judgeFleets(rows []*fleet) (missed int) {
	var goals []contest.Goal
	for _, r := range rows {
		goals = append(goals,
			contest.Goal{What: r.name + ": 99th percentile of lateness", Number: r.tally.late(0.99), Limit: interval.Seconds() / 20, Unit: "s"},
			contest.Goal{What: r.name + ": peak memory", Number: float64(r.peak) / 1e6, Limit: 200, Unit: "MB"},
			contest.Goal{What: r.name + ": start from stored statuses", Number: r.again.Seconds(), Limit: 3, Unit: "s"},
			contest.Goal{What: r.name + ": packs fetched then", Number: float64(r.fresh.Packs), Limit: 0, Unit: "packs"},
			contest.Goal{What: r.name + ": failed checks", Number: r.tally.Failed, Limit: 0, Unit: "checks"})
	}
	return contest.Judge(os.Stdout, goals)
}
