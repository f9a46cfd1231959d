// Entries reads the versions of one chart in an index with headgate's package
// chart/index, or checks the whole index, and writes the time that it took.
//
//	entries FILE [CHART]
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/headgate-io/headgate/bench/chart/result"
	"github.com/headgate-io/headgate/chart/index"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "entries:", err)
		os.Exit(1)
	}
}

func run(path string, charts []string) error {
	start := time.Now()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	versions := 0
	for _, chart := range charts {
		for _, err := range index.Entries(f, chart) {
			if err != nil {
				return err
			}
			versions++
		}
	}
	if len(charts) == 0 {
		summary, err := index.Check(f)
		if err != nil {
			return err
		}
		versions = summary.Versions / summary.Charts
	}
	taken := time.Since(start)
	return result.Write(taken, versions)
}
