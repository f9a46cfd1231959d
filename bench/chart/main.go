// Chart compares package chart/index with helm's pkg/repo at finding the
// versions of one chart in an index, on one machine in one run.
//
// Indexes of 120 charts with 160 versions each, of 20 MB and 50 MB in YAML and in
// JSON, are generated and written with helm's own package. Contestants are small
// programs that link one of the two libraries. They take turns, so that other
// load on the machine affects all of them alike; the numbers are medians. See
// docs/benchmarks.md for how to read them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/headgate-io/headgate/bench/chart/result"
	"github.com/headgate-io/headgate/bench/contest"
)

func main() {
	contest.Main("indexes", func(ctx context.Context, o contest.Options) (int, error) {
		return run(ctx, o.Runs, o.Keep, o.OnlyHeadgate)
	})
}

func run(ctx context.Context, runs int, keep string, only bool) (missed int, err error) {
	temp, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temp)
	if keep == "" {
		keep = filepath.Join(temp, "kept")
	}
	b := &bench{bin: filepath.Join(temp, "bin"), results: map[*contest.Result][]result.Result{}}
	if err := b.build(ctx); err != nil {
		return 0, err
	}
	if err := b.make(ctx, keep); err != nil {
		return 0, err
	}
	b.Contest = contest.Contest{Temp: temp, Env: append(os.Environ(), "LC_ALL=C", "HOME="+temp), After: b.readResult}
	if err := b.Compete(ctx, runs, b.contestants(only)); err != nil {
		return 0, err
	}
	return b.report(os.Stdout), nil
}

// An index is a file that contestants read.
type index struct{ name, path string }

type bench struct {
	contest.Contest
	bin     string
	indexes []index
	results map[*contest.Result][]result.Result
	err     error // error of note
}

// build builds the contestants.
func (b *bench) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.bin+"/", "./chart/entries", "./chart/helm")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as in make build
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// make generates the indexes that do not exist in keep.
func (b *bench) make(ctx context.Context, keep string) error {
	if err := os.MkdirAll(keep, 0o755); err != nil {
		return err
	}
	for _, mb := range []int{20, 50} {
		for _, format := range []string{"yaml", "json"} {
			i := index{fmt.Sprintf("%d MB of %s", mb, strings.ToUpper(format)), filepath.Join(keep, fmt.Sprintf("index-%d.%s", mb, format))}
			b.indexes = append(b.indexes, i)
			if _, err := os.Stat(i.path); err == nil {
				continue
			}
			cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "helm"), "-make", strconv.Itoa(mb*1e6), i.path)
			cmd.Stderr = os.Stderr
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("make %s: %w", i.path, err)
			}
		}
	}
	return nil
}

// These are the names of the contestants, followed by the name of the index.
const (
	headgateIndex = "chart/index, "
	headgateCheck = "chart/index Check, "
	helmLoad      = "helm LoadIndexFile, "
)

const chartName = "chart-077"

// contestants returns the contestants in the order of their turns.
func (b *bench) contestants(only bool) (all []contest.Contestant) {
	for _, i := range b.indexes {
		all = append(all, b.reader(headgateIndex+i.name, "entries", i.path, chartName), b.reader(headgateCheck+i.name, "entries", i.path))
		if !only {
			all = append(all, b.reader(helmLoad+i.name, "helm", i.path, chartName))
		}
	}
	return all
}

func (b *bench) reader(name, program string, args ...string) contest.Contestant {
	return contest.Contestant{Name: name, Args: func(string) []string { return append([]string{filepath.Join(b.bin, program)}, args...) }}
}

// readResult reads the result that a contestant wrote.
func (b *bench) readResult(r *contest.Result) {
	said, err := result.Read(r.Output)
	if err == nil && said.Versions != 160 {
		err = fmt.Errorf("%s: %d versions were found", r.Output, said.Versions)
	}
	b.err = errors.Join(b.err, err)
	b.results[r] = append(b.results[r], said)
}

// report prints the results and returns how many goals were missed.
func (b *bench) report(out io.Writer) (missed int) {
	b.Print(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\twithin the process, ms\tits own memory, MB\t")
	for _, name := range b.Order {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t\n", name, b.medianTime(name)/1e6, b.medianPeak(name)/1e6)
	}
	w.Flush()
	fmt.Fprintln(out)
	if b.err != nil {
		fmt.Fprintln(out, "MISSED  ", b.err)
		missed++
	}
	return missed + contest.Judge(out, b.goals())
}
