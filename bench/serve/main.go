// Serve measures the continuous mode in rows, each a part of it; names of rows
// on the command line choose some. See docs/benchmarks.md for how to read them.
//
// Row fleet keeps many GitRepository objects of a few repositories by headgate serve. The upstreams are a process of their
// own, which has its answers ready, so that headgate is measured alone.
//
// Row artifact compares how fast artifacts are downloaded from headgate and from
// nginx, side by side on one machine in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/headgate-io/headgate/bench/contest"
)

// rows are the parts of the benchmark.
var rows = []struct {
	name string
	run  func(context.Context, contest.Options) (missed int, err error)
}{
	{"fleet", fleetRow},
	{"artifact", artifactRow},
}

// roles are what a process of this program does that another has started.
var roles = map[string]func() error{
	"artifact-server": artifactServer,
	"upstream":        runUpstream,
}

func main() {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](); err != nil {
			fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
			os.Exit(1)
		}
		return
	}
	contest.Main("stores and documents of row fleet", func(ctx context.Context, o contest.Options) (missed int, err error) {
		for _, row := range rows {
			if chosen := flag.Args(); len(chosen) > 0 && !slices.Contains(chosen, row.name) {
				continue
			}
			n, err := row.run(ctx, o)
			if missed += n; err != nil {
				return missed, errors.Join(fmt.Errorf("row %s: %w", row.name, err), ctx.Err())
			}
		}
		return missed, nil
	})
}
