// Git compares headgate with other ways to archive a commit of a remote
// repository, on one machine in one run.
//
// The repository is made from the source of the Go distribution, with nine
// commits and 500 tags, and served on loopback by git http-backend. Contestants
// take turns, so that other load on the machine affects all of them alike; the
// numbers are medians. See docs/benchmarks.md for how to read them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/headgate-io/headgate/bench/contest"
)

func main() {
	contest.Main("the repositories", func(ctx context.Context, o contest.Options) (int, error) {
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
		keep = filepath.Join(temp, "repositories")
	}
	if err := os.MkdirAll(keep, 0o755); err != nil {
		return 0, err
	}
	bin := filepath.Join(temp, "bin")
	if err := build(ctx, bin); err != nil {
		return 0, err
	}
	repos, err := repositories(ctx, keep)
	if err != nil {
		return 0, err
	}
	srv, err := serve(keep)
	if err != nil {
		return 0, err
	}
	defer srv.Close()
	b := &bench{bin: bin, url: srv.URL, repos: repos, Contest: contest.Contest{Temp: temp, Env: env()}}
	if err := b.Compete(ctx, runs, b.contestants(only)); err != nil {
		return 0, err
	}
	return b.report(os.Stdout), nil
}

// build builds headgate from this checkout, and the program for the reference.
func build(ctx context.Context, bin string) error {
	for _, args := range [][]string{
		{"build", "-C", "..", "-trimpath", "-o", filepath.Join(bin, "headgate"), "./cmd/headgate"},
		{"build", "-trimpath", "-o", filepath.Join(bin, "flux"), "./flux"},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build %s: %w", args[len(args)-1], err)
		}
	}
	return nil
}
