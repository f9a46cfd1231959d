package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/bench/contest"
)

var (
	objects      = flag.Int("objects", 10_000, "`number` of GitRepository objects")
	repositories = flag.Int("repositories", 100, "`number` of repositories that they are of")
	hosts        = flag.Int("hosts", 20, "`number` of hosts that the repositories are on")
	interval     = flag.Duration("interval", time.Minute, "of the objects")
)

// fleetRow measures the continuous mode with many objects that do not change: the
// lateness of checks and the peak memory of the process. It waits until all
// objects are ready, then one interval, and then measures several intervals.
func fleetRow(ctx context.Context, o contest.Options) (missed int, err error) {
	temp := o.Keep
	if temp == "" {
		if temp, err = os.MkdirTemp("", "headgate-bench-"); err != nil {
			return 0, err
		}
		defer os.RemoveAll(temp)
	}
	command, err := buildCommand(ctx, temp)
	if err != nil {
		return 0, err
	}
	up, err := startUpstream(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, up.end()) }()
	if err := writeObjects(temp, up.port); err != nil {
		return 0, err
	}
	k, err := startServe(ctx, command, temp)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, k.end()) }()
	if err := errors.Join(k.await(ctx, *objects), sleep(ctx, *interval)); err != nil {
		return 0, err
	}
	begun, err := k.metrics(ctx)
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, time.Duration(o.Runs)**interval); err != nil {
		return 0, err
	}
	ended, err := k.metrics(ctx)
	if err != nil {
		return 0, err
	}
	t, peak := ended.since(begun), float64(k.peak())/1e6
	fmt.Printf("%.0f checks, late p50 ≤ %v s, p99 ≤ %v s, all ≤ %v s, peak %.1f MB\n", t.Polls, t.latenessQuantile(0.5), t.latenessQuantile(0.99), t.latenessQuantile(1), peak)
	return contest.Judge(os.Stdout, []contest.Goal{
		{What: "99th percentile of lateness", Number: t.latenessQuantile(0.99), Limit: interval.Seconds() / 20, Unit: "s"},
		{What: "peak memory", Number: peak, Limit: 260, Unit: "MB"},
		{What: "failed checks", Number: t.Failed, Limit: 0, Unit: "checks"},
	}), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeObjects writes the documents, one file per namespace. Objects of the same
// repository have different names and namespaces.
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
