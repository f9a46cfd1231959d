// Bucket compares headgate with s5cmd, tar and gzip at fetching a bucket,
// and with minio-go's own loop at listing one, on one machine in one run.
//
// MinIO serves 10,000 objects of 4 KB and 200 of 5 MB on loopback; half of the
// large ones are compressible. A server in another process generates the listing
// of a bucket with 1,000,000 keys. Contestants take turns, so that other load on
// the machine affects all of them alike; the numbers are medians.
// See docs/benchmarks.md for how to read them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headgate-io/headgate/bench/contest"
)

func main() {
	filling := flag.String("fill", "", "put the objects into the bucket of the server at this `address` and do nothing else")
	serving := flag.Bool("serve", false, "serve the bucket of 1,000,000 keys and do nothing else")
	listing := flag.String("list", "", "list the bucket of 1,000,000 keys at this `address` by minio-go and do nothing else")
	contest.Main("what MinIO holds", func(ctx context.Context, o contest.Options) (int, error) {
		switch {
		case *filling != "":
			return 0, fill(ctx, *filling)
		case *serving:
			return 0, serveKeys(os.Stdout)
		case *listing != "":
			return 0, list(ctx, *listing)
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
	b := &bench{temp: temp}
	if b.tools, err = tools(ctx, temp); err != nil {
		return 0, err
	}
	if b.store, err = serveMinIO(ctx, b.tools, keep); err != nil {
		return 0, err
	}
	defer b.store.Close()
	if b.keys, err = startKeys(ctx, b.tools.self); err != nil {
		return 0, err
	}
	defer b.keys.Close()
	b.Contest = contest.Contest{Temp: temp, Env: append(os.Environ(), "LC_ALL=C", "HOME="+temp, "AWS_ACCESS_KEY_ID="+user, "AWS_SECRET_ACCESS_KEY="+password, "AWS_REGION="+region)}
	if err := b.compete(ctx, runs, only); err != nil {
		return 0, err
	}
	return b.report(os.Stdout), nil
}

// programs has the paths of the programs.
type programs struct{ self, headgate, minio, s5cmd string }

// tools builds headgate from this checkout and finds the programs that
// .ci/servers built.
func tools(ctx context.Context, temp string) (p programs, err error) {
	if p.self, err = os.Executable(); err != nil {
		return p, err
	}
	p.headgate = filepath.Join(temp, "headgate")
	cmd := exec.CommandContext(ctx, "go", "build", "-C", "..", "-trimpath", "-o", p.headgate, "./cmd/headgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as in make build
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return p, fmt.Errorf("build headgate: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return p, err
	}
	pins, err := os.ReadFile(filepath.Join("..", ".ci", "versions"))
	if err != nil {
		return p, err
	}
	for name, path := range map[string]*string{"minio": &p.minio, "s5cmd": &p.s5cmd} {
		_, pin, _ := strings.Cut(string(pins), "\n"+strings.ToUpper(name)+"=")
		pin, _, _ = strings.Cut(pin, "\n")
		_, version, _ := strings.Cut(pin, "@")
		*path = filepath.Join(cache, "headgate", "e2e", "bin", name+"@"+version)
		if _, err := os.Stat(*path); err != nil {
			return p, fmt.Errorf("%w: run make bench-bucket, which builds it", err)
		}
	}
	return p, nil
}
