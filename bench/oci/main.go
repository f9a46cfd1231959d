// Oci compares headgate with crane, tar and gzip at fetching a layer from a
// registry, on one machine in one run.
//
// Two layers of 200 MB compressed size are made from the source of the Go
// distribution and from noise, which represents images and programs, and served
// on loopback by the distribution registry. Contestants take turns, so that
// other load on the machine affects all of them alike; the numbers are medians.
// See docs/benchmarks.md for how to read them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/headgate-io/headgate/bench/contest"
)

func main() {
	making := flag.String("make", "", "make the layer of this `name` at standard output and do nothing else")
	contest.Main("registry and layers", func(ctx context.Context, o contest.Options) (int, error) {
		if *making != "" {
			return 0, layerTo(os.Stdout, *making)
		}
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
	bin := filepath.Join(temp, "bin")
	if err := build(ctx, bin); err != nil {
		return 0, err
	}
	srv, err := serve(ctx, bin, keep)
	if err != nil {
		return 0, err
	}
	defer srv.Close()
	b := &bench{Contest: contest.Contest{Temp: temp, Env: append(os.Environ(), "LC_ALL=C", "HOME="+temp)}, bin: bin, host: srv.host}
	for _, l := range layers {
		d, err := srv.layer(ctx, l)
		if err != nil {
			return 0, fmt.Errorf("layer of %s: %w", l.name, err)
		}
		b.layers = append(b.layers, d)
	}
	if err := b.Compete(ctx, runs, b.contestants(only)); err != nil {
		return 0, err
	}
	return b.report(os.Stdout), nil
}

// These are the other programs.
const (
	registryProgram = "github.com/distribution/distribution/v3/cmd/registry@v3.1.2"
	craneProgram    = "github.com/google/go-containerregistry/cmd/crane@v0.22.1"
)

// build builds headgate from this checkout, and the other programs.
func build(ctx context.Context, bin string) error {
	for _, args := range [][]string{
		{"build", "-C", "..", "-trimpath", "-o", filepath.Join(bin, "headgate"), "./cmd/headgate"},
		{"install", "-trimpath", registryProgram},
		{"install", "-trimpath", craneProgram},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "GOBIN="+bin, "CGO_ENABLED=0") // as in make build
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s %s: %w", args[0], args[len(args)-1], err)
		}
	}
	return nil
}

// report prints the results and returns how many goals were missed.
func (b *bench) report(out io.Writer) (missed int) {
	b.Print(out)
	return contest.Judge(out, b.goals())
}
