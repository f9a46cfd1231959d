// Package contest lets programs take turns at a piece of work, side by side on
// one machine, and compares what they need for it.
package contest

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

// A Contestant is one way to do the work.
type Contestant struct {
	Name string
	Args func(dir string) []string // the command, which may use the empty directory dir and runs in it
	Lag  time.Duration             // of each answer of the server, as over a network
}

// Shell is a contestant that runs a script.
func Shell(name, script string) Contestant {
	return Contestant{Name: name, Args: func(string) []string { return []string{"sh", "-ec", script} }}
}

// A Result holds what a contestant needed in each run.
type Result struct {
	Wall   []time.Duration
	CPU    []time.Duration // user and system, descendants included
	Peak   []int64         // bytes of the largest process
	Tree   int64           // bytes of all processes together, from a run of its own; 0 when unknown
	Sent   int64           // bytes that the server sent in the last run, where it is counted
	Asked  int64           // requests in the last run, likewise
	Output string          // directory of the last run
}

// Median returns the middle one of the wall times.
func (r *Result) Median() time.Duration { return middle(r.Wall) }

// Memory returns the middle one of the peaks, in bytes.
func (r *Result) Memory() int64 { return middle(r.Peak) }

func middle[T int64 | time.Duration](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// A Contest collects results.
type Contest struct {
	Temp   string             // where contestants work
	Env    []string           // their environment
	Before func(Contestant)   // called before each run; may be nil
	After  func(*Result)      // called after each; may be nil
	Order  []string           // names, as they came first
	Result map[string]*Result // by name
}

// Enter returns the result of a contestant, a new one with the output directory when it is the first.
func (c *Contest) Enter(name, output string) *Result {
	if r := c.Result[name]; r != nil {
		return r
	}
	if c.Result == nil {
		c.Result = map[string]*Result{}
	}
	r := &Result{Output: output}
	c.Result[name], c.Order = r, append(c.Order, name)
	return r
}

// Compete lets the contestants take turns: once to warm up and to measure the
// memory of all processes together, then runs times against the clock.
func (c *Contest) Compete(ctx context.Context, runs int, all []Contestant) error {
	note := notes(os.Stderr)
	defer note("")
	for n := -1; n < runs; n++ {
		for _, who := range all {
			r := c.Enter(who.Name, filepath.Join(c.Temp, fmt.Sprintf("out-%d", len(c.Order))))
			if err := os.RemoveAll(r.Output); err != nil {
				return err
			}
			if err := os.Mkdir(r.Output, 0o755); err != nil {
				return err
			}
			note(fmt.Sprintf("run %d of %d: %s", n+1, runs, who.Name))
			if err := c.Run(ctx, who, r, n < 0); err != nil {
				return err
			}
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

// Run runs a contestant once; a watched run is not against the clock.
func (c *Contest) Run(ctx context.Context, who Contestant, r *Result, watched bool) error {
	if c.Before != nil {
		c.Before(who)
	}
	if err := r.run(ctx, who, c.Env, watched); err != nil {
		return fmt.Errorf("%s: %w", who.Name, err)
	}
	if c.After != nil {
		c.After(r)
	}
	return nil
}

func (r *Result) run(ctx context.Context, who Contestant, env []string, watched bool) error {
	args := who.Args(r.Output)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = r.Output, env
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
		r.Tree = <-watcher
		return nil
	}
	r.Wall = append(r.Wall, wall)
	r.CPU = append(r.CPU, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	r.Peak = append(r.Peak, maxRSS(cmd.ProcessState))
	return nil
}
