package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// A contestant is one way to make an archive of a commit.
type contestant struct {
	name string
	args func(dir string) []string // the command, which may use the empty directory dir
	lag  time.Duration             // of each answer of the server, as over a network
}

// A result holds what a contestant needed in each run.
type result struct {
	wall   []time.Duration
	cpu    []time.Duration // user and system, descendants included
	peak   []int64         // bytes of the largest process
	tree   int64           // bytes of all processes together, from a run of its own; 0 when unknown
	sent   int64           // bytes that the server sent in the last run
	asked  int64           // requests in the last run
	output string          // directory of the last run
}

func (r *result) median() time.Duration { return middle(r.wall) }
func (r *result) memory() int64         { return middle(r.peak) }

func middle[T int64 | time.Duration](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

type bench struct {
	temp, bin string
	dir       string // of the repositories
	server    *server
	repos     map[string]repo
	order     []string
	results   map[string]*result
	missing   []string // contestants that cannot run here, and why
}

func (b *bench) url(repo string) string { return b.server.url + "/" + b.repos[repo].name }

// contestants returns who takes part, in the order in which they take turns.
func (b *bench) contestants(only bool) []contestant {
	all := []contestant{
		b.headgate("headgate branch", "plain", "branch: main"),
		b.headgate("headgate branch, 500 tags", "tags", "branch: main"),
		b.headgate("headgate tag, 500 tags", "tags", "tag: v2.0.0"),
		b.headgate("headgate semver, 500 tags", "tags", `semver: ">=1.0.0"`),
		b.headgate("headgate pull request, 500 tags", "tags", "name: refs/pull/1/head"),
		b.headgate("headgate commit, 500 tags", "tags", "commit: "+b.repos["tags"].commit),
		b.headgate("headgate branch, twice the files", "double", "branch: main"),
	}
	if only {
		return all
	}
	clone := "git clone -q --bare --depth 1 --branch main " + b.url("plain") + " clone"
	all = append(all,
		shell("floor: bare clone", clone),
		shell("(b) clone, tar, gzip", "git clone -q --depth 1 --branch main "+b.url("plain")+" clone && tar -C clone --exclude=.git -cf - . | gzip >out.tar.gz"),
		contestant{name: "(c) reference", args: func(dir string) []string {
			return []string{filepath.Join(b.bin, "flux"), b.url("plain"), "branch", "main", dir}
		}})
	if _, err := exec.LookPath("pigz"); err != nil {
		b.missing = append(b.missing, "(a) bare clone, archive, pigz: pigz is not installed")
		return all
	}
	return append(all, shell("(a) bare clone, archive, pigz", clone+" && git -C clone archive HEAD | pigz >out.tar.gz"))
}

// headgate is the command, given a manifest with a ref and an empty store.
func (b *bench) headgate(name, repo, ref string) contestant {
	return contestant{name: name, args: func(dir string) []string {
		manifest := filepath.Join(dir, "manifest.yaml")
		text := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata:\n  name: bench\nspec:\n  interval: 1m\n  timeout: 5m\n  url: %s\n  ref:\n    %s\n", b.url(repo), ref)
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			panic(err)
		}
		return []string{filepath.Join(b.bin, "headgate"), "fetch", "-f", manifest, "--store", filepath.Join(dir, "store"), "-q"}
	}}
}

func shell(name, script string) contestant {
	return contestant{name: name, args: func(string) []string { return []string{"sh", "-ec", script} }}
}

// compete lets the contestants take turns: once to warm up and to measure the
// memory of all processes together, then runs times against the clock.
func (b *bench) compete(ctx context.Context, runs int, all []contestant) error {
	note := notes(os.Stderr)
	defer note("")
	for n := -1; n < runs; n++ {
		for _, c := range all {
			r := b.results[c.name]
			if r == nil {
				r = &result{output: filepath.Join(b.temp, fmt.Sprintf("out-%d", len(b.order)))}
				b.results[c.name], b.order = r, append(b.order, c.name)
			}
			if err := os.RemoveAll(r.output); err != nil {
				return err
			}
			if err := os.Mkdir(r.output, 0o755); err != nil {
				return err
			}
			note(fmt.Sprintf("run %d of %d: %s", n+1, runs, c.name))
			b.server.sent.Store(0)
			b.server.requests.Store(0)
			b.server.lag.Store(int64(c.lag))
			if err := r.run(ctx, c, n < 0); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			r.sent, r.asked = b.server.sent.Load(), b.server.requests.Load()
		}
	}
	return nil
}

// notes returns a function that shows one line at a time on a terminal, and
// does nothing elsewhere.
func notes(f *os.File) func(line string) {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func(string) {}
	}
	return func(line string) { fmt.Fprint(f, "\r\x1b[K", line) }
}

// run runs a contestant once; a watched run is not against the clock.
func (r *result) run(ctx context.Context, c contestant, watched bool) error {
	args := c.args(r.output)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = r.output, env()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	watcher := make(chan int64, 1)
	if watched {
		go func() { watcher <- watchTree(cmd.Process.Pid, done) }()
	}
	err := cmd.Wait()
	wall := time.Since(start)
	close(done)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, errs.Bytes())
	}
	if watched {
		r.tree = <-watcher
		return nil
	}
	r.wall = append(r.wall, wall)
	r.cpu = append(r.cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	r.peak = append(r.peak, maxRSS(cmd.ProcessState))
	return nil
}

// unchanged measures a fetch that finds nothing new.
func (b *bench) unchanged(ctx context.Context) error {
	first := b.results["headgate branch, 500 tags"]
	c := contestant{name: "headgate unchanged, 500 tags", args: func(dir string) []string {
		return []string{filepath.Join(b.bin, "headgate"), "fetch", "-f", filepath.Join(dir, "manifest.yaml"), "--store", filepath.Join(dir, "store"), "-q"}
	}}
	r := &result{output: first.output}
	b.results[c.name], b.order = r, append(b.order, c.name)
	b.server.requests.Store(0)
	b.server.sent.Store(0)
	for range first.wall {
		if err := r.run(ctx, c, false); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}
