package task

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/headgate-io/headgate/internal/command"
)

const (
	killWait     = 5 * time.Second        // limit of the wait for a killed process to be gone
	pollInterval = 100 * time.Millisecond // interval of looking whether a session is over

	// How long to wait for the output of a program that has exited. It is a number of turns: even
	// on a machine that stood still, the reader gets its turns, and no output is lost.
	drainTurns = 20
	drainTurn  = 50 * time.Millisecond
)

// execute runs a program, and then ends the processes left in its session. The error is
// the cause of ctx if that ended first, an [exec.ExitError], or the reason why the program
// did not start. A process that cannot be killed delays it by a few seconds at most.
func (p *program) execute(ctx context.Context, args []string, dir string, out io.Writer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := p.tools
	env := t.environment(p.env, dir)
	path, err := command.LookPath(args[0], env)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := &exec.Cmd{Path: path, Args: args, Dir: cmp.Or(t.Dir, dir), Env: env, Stdout: w, Stderr: w}
	t.Reaper.addRuns(1)
	defer t.Reaper.addRuns(-1)
	exited, err := start(cmd, t.Privileges)
	w.Close()
	if err != nil {
		return err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(out, r)
		io.Copy(io.Discard, r) // the program must not block if writing to out fails
	}()
	leaderExited := false
	select {
	case err = <-exited:
		leaderExited = true
	case <-ctx.Done():
	}
	leader := cmd.Process.Pid
	for p.awaitSession && ctx.Err() == nil && sessionProcesses(leader, leaderExited) != nil {
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	endSession(leader, exited, leaderExited, cmp.Or(t.Grace, defaultGrace))
	drainOutput(copied, r)
	return err
}

// drainOutput waits until the output of a program that has exited was read from r. After a second it
// closes r: a process that is left over may keep the other end open.
func drainOutput(copied <-chan struct{}, r *os.File) {
	for range drainTurns {
		select {
		case <-copied:
			return
		case <-time.After(drainTurn):
		}
	}
	r.Close()
	<-copied
}

// endSession terminates the processes left in a session, and kills them after a grace. leaderExited says
// that the leader has exited; otherwise exited receives a value when it does.
func endSession(leader int, exited <-chan error, leaderExited bool, grace time.Duration) {
	alive := sessionProcesses(leader, leaderExited)
	for _, pid := range alive {
		terminate(pid)
	}
	terminated := time.Now()
	for pause := time.Millisecond; !leaderExited || alive != nil; pause = min(2*pause, 50*time.Millisecond) {
		late := time.Since(terminated) - grace
		if late > 0 {
			for _, pid := range alive {
				kill(pid)
			}
		}
		if late > killWait {
			return
		}
		time.Sleep(pause)
		select {
		case <-exited:
			leaderExited = true
		default:
		}
		alive = sessionProcesses(leader, leaderExited)
	}
}
