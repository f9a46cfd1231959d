// Package contest runs programs for the same work in turn, on one machine, and compares their
// resource usage.
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
	Args func(dir string) []string // the command, which runs in the empty directory dir
}

// Shell returns a contestant that runs a shell script.
func Shell(name, script string) Contestant {
	return Contestant{name, func(string) []string { return []string{"sh", "-ec", script} }}
}

// A Result holds the resource usage of a contestant in each run after the warm-up.
type Result struct {
	Wall   []time.Duration
	CPU    []time.Duration // user and system, including descendants
	Peak   []int64         // peak bytes of the largest process
	Output string          // directory of the last run
}

// Median returns the median of values, or 0 if there are none.
func Median[T int64 | float64 | time.Duration](values []T) (middle T) {
	if len(values) > 0 {
		middle = slices.Sorted(slices.Values(values))[len(values)/2]
	}
	return middle
}

// A Contest runs contestants and collects their results.
type Contest struct {
	Temp   string             // directory for the output of contestants
	Env    []string           // their environment
	After  func(*Result)      // called after each run; may be nil
	Order  []string           // names in the order of their first runs
	Result map[string]*Result // by name
}

// Compete runs the contestants in turn: once as a warm-up, then runs times with measurement.
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
