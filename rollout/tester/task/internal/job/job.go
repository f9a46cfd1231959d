// Package job runs a program and ends it together with everything it started.
//
// A job leads a session and a process group of its own. It is over when its
// program has exited or, if it lasts, when the last process that the program
// started has; or when its context ends. Whoever is left then is asked to end
// (SIGTERM), and killed after a grace. On Linux those are
//
//   - the processes of its session and its group, and the descendants of all of
//     its processes,
//   - those that carry its mark in their environment, wherever they went,
//   - with a [Reaper] also those without it that were adopted by this process
//     and can be of no other job that is still under way.
//
// When this process is killed, so is the program of each job, but not what that
// had started.
//
// On other systems those are the processes of its group. Standard output and
// standard error are one stream. A process that cannot be ended does not hold up the job
// for longer than a few seconds.
package job

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/headgate-io/headgate/internal/command"
)

// DefaultGrace is that of a [Job].
const DefaultGrace = 5 * time.Second

const (
	killWait   = 5 * time.Second
	watchEvery = 100 * time.Millisecond // limits are looked at, and whether a job that lasts is over
	bufferSize = 64 << 10
	tailSize   = 64 << 10 // of output, where an error about a limit is looked for
)

// Mark is the variable in the environment of each process of a job that says which job it is.
const Mark = "HEADGATE_RUN"

// A Job is a program and what it runs with.
type Job struct {
	Args       []string      // the program and its arguments; a name without a slash is looked up in the PATH of Env
	Dir        string        // where it runs
	Env        []string      // all of its environment but the mark, as KEY=VALUE
	Out        io.Writer     // gets its output; when it returns an error the rest is dropped
	Grace      time.Duration // between asking it to end and killing it; default [DefaultGrace]
	Limits     Limits
	Lasts      bool // until the last process has ended, and not only the program
	Privileges bool // programs may gain some, as sudo does
	Reaper     *Reaper
}

// An ExitError is a program that ended with another code than zero.
type ExitError struct {
	Code  int    // -1 when a signal ended it
	State string // such as "exit status 1"
	Why   string // what may have led to it; "" when nothing is known
}

func (e *ExitError) Error() string {
	if e.Why != "" {
		return e.State + ": " + e.Why
	}
	return e.State
}

// ExitCode returns Code.
func (e *ExitError) ExitCode() int { return e.Code }

// Run runs the job. The error is the cause of ctx when that ended first; a
// [*LimitError]; an [*ExitError]; or why the program did not start.
func (j Job) Run(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	path, err := command.LookPath(j.Args[0], j.Env)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	mark := rand.Text()
	cmd := exec.Command(path, j.Args[1:]...)
	cmd.Args[0] = j.Args[0]
	cmd.Dir, cmd.Stdout, cmd.Stderr = j.Dir, w, w
	cmd.Env = append(slices.Clone(j.Env), Mark+"="+mark)
	p, err := start(&j, cmd, mark)
	w.Close()
	if err != nil {
		return err
	}
	tail := &command.Tail{}
	if j.Limits != (Limits{}) {
		tail.Limit = tailSize
	}
	copied := make(chan struct{})
	go func() { defer close(copied); j.copy(tail, r) }()
	cause := j.watch(ctx, p)
	left := j.end(p, cause)
	state := p.wait()
	command.Settle(copied, r) // someone who is left may have it
	switch {
	case cause != nil:
		return cause
	case state == nil:
		return errors.New("how it ended is not known: something else in this process waits for all children")
	case !state.Success():
		return &ExitError{state.ExitCode(), state.String(), j.Limits.why(state, string(tail.Kept))}
	case left > 0:
		return fmt.Errorf("%d processes that it started cannot be ended", left)
	}
	return nil
}

// watch waits until the job is over, and returns why if it is not by itself.
func (j *Job) watch(ctx context.Context, p *process) error {
	exited, every := p.exited, (<-chan time.Time)(nil)
	if j.Limits.watched() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		every = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-exited:
			if !j.Lasts || p.look().processes == 0 {
				return nil
			}
			if exited = nil; every == nil {
				ticker := time.NewTicker(watchEvery)
				defer ticker.Stop()
				every = ticker.C
			}
		case <-every:
			use := p.look()
			if err := j.Limits.check(use); err != nil {
				return err
			}
			if exited == nil && use.processes == 0 {
				return nil
			}
		}
	}
}

// end ends what is left of the job: with a grace, unless it used more than it
// may. It returns how many processes withstood that.
func (j *Job) end(p *process, cause error) (left int) {
	p.close()
	var over *LimitError
	if !errors.As(cause, &over) {
		if p.look().processes == 0 {
			return 0
		}
		p.terminate()
		if j.fades(p, j.grace()) == 0 {
			return 0
		}
	}
	for end := time.Now().Add(killWait); ; {
		late := time.Now().After(end)
		p.kill()
		if left = j.fades(p, 50*time.Millisecond); left == 0 || late {
			return left
		}
	}
}

// fades waits at most for d until nothing is left, and returns how much is. It
// looks once more after that time: this process may have stood still.
func (j *Job) fades(p *process, d time.Duration) (left int) {
	end := time.Now().Add(d)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		late := !time.Now().Before(end)
		if left = p.look().processes; left == 0 || late {
			return left
		}
		time.Sleep(min(pause, time.Until(end)))
	}
}

// copy writes the output of the job to Out until nobody has it any more.
func (j *Job) copy(tail *command.Tail, r io.Reader) {
	buf := make([]byte, bufferSize)
	deaf := j.Out == nil
	for {
		n, err := r.Read(buf)
		if n > 0 && !deaf {
			_, failed := j.Out.Write(buf[:n])
			deaf = failed != nil
		}
		tail.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

func (j *Job) grace() time.Duration {
	if j.Grace > 0 {
		return j.Grace
	}
	return DefaultGrace
}
