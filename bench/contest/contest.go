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
}

// Shell is a contestant that runs a script.
func Shell(name, script string) Contestant {
	return Contestant{name, func(string) []string { return []string{"sh", "-ec", script} }}
}

// A Result holds what a contestant needed in each run, the first one to warm up aside.
type Result struct {
	Wall   []time.Duration
	CPU    []time.Duration // user and system, descendants included
	Peak   []int64         // bytes of the largest process
	Output string          // directory of the last run
}

// Median returns the middle one of values, 0 when there are none.
func Median[T int64 | float64 | time.Duration](values []T) (middle T) {
	if len(values) > 0 {
		middle = slices.Sorted(slices.Values(values))[len(values)/2]
	}
	return middle
}

// A Contest collects results.
type Contest struct {
	Temp   string             // where contestants work
	Env    []string           // their environment
	After  func(*Result)      // called after each run; may be nil
	Order  []string           // names, as they came first
	Result map[string]*Result // by name
}

// Compete lets the contestants take turns: once to warm up, then runs times against the clock.
func (c *Contest) Compete(ctx context.Context, runs int, all []Contestant) error {
	if c.Result == nil {
		c.Result = map[string]*Result{}
	}
	for n := -1; n < runs; n++ {
		for _, who := range all {
			r := c.Result[who.Name]
			if r == nil {
				r = &Result{Output: filepath.Join(c.Temp, fmt.Sprintf("out-%d", len(c.Order)))}
				c.Result[who.Name], c.Order = r, append(c.Order, who.Name)
			}
			if err := os.RemoveAll(r.Output); err != nil {
				return err
			}
			if err := os.Mkdir(r.Output, 0o755); err != nil {
				return err
			}
			if err := r.run(ctx, who, c.Env, n >= 0); err != nil {
				return fmt.Errorf("%s: %w", who.Name, err)
			}
			if c.After != nil {
				c.After(r)
			}
		}
	}
	return nil
}

func (r *Result) run(ctx context.Context, who Contestant, env []string, note bool) error {
	args := who.Args(r.Output)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = r.Output, env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, errs.Bytes())
	}
	if note {
		r.Wall = append(r.Wall, time.Since(start))
		r.CPU = append(r.CPU, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		r.Peak = append(r.Peak, maxRSS(cmd.ProcessState))
	}
	return nil
}
