// Serve measures the continuous mode in several rows. Names of rows on the
// command line select some of them. See docs/benchmarks.md for how to read them.
//
// Row fleet runs headgate serve with many GitRepository objects of a few repositories. The upstreams are another process
// with prepared answers, so that headgate is measured alone.
//
// Row artifact compares how fast artifacts are downloaded from headgate and from
// nginx, on one machine in one run.
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

// roles are the functions of child processes of this program.
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
