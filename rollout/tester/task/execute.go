package task

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/headgate-io/headgate/internal/command"
)

const (
	killWait  = 5 * time.Second        // for a process that was killed to be gone
	lookEvery = 100 * time.Millisecond // whether a session that lasts is over
)

// execute runs a program, and ends what is left of its session. The error is the
// cause of ctx when that ended first, an [exec.ExitError], or why the program did not
// start. A process that cannot be ended does not hold it up for longer than some
// seconds.
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
	t.Reaper.enter()
	defer t.Reaper.leave()
	exited, err := start(cmd, t.Privileges)
	w.Close()
	if err != nil {
		return err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(out, r)
		io.Copy(io.Discard, r) // the program goes on when nobody takes its output
	}()
	var ended error
	select {
	case ended = <-exited:
		exited = nil
	case <-ctx.Done():
	}
	session := session{leader: cmd.Process.Pid, exited: exited, ended: ended}
	for p.lasts && ctx.Err() == nil && session.alive() {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
	cause := context.Cause(ctx)
	left := session.end(cmp.Or(t.Grace, defaultGrace))
	command.Settle(copied, r) // a process that is left may have it
	switch {
	case cause != nil:
		return cause
	case session.ended != nil:
		return session.ended
	case left:
		return fmt.Errorf("processes that it started cannot be ended")
	}
	return nil
}

// A session is the processes of one program.
type session struct {
	leader int
	exited <-chan error // of the leader; nil when it has been waited for
	ended  error        // how it did
}

// alive reports whether a process of the session is.
func (s *session) alive() bool {
	if s.exited != nil {
		select {
		case s.ended = <-s.exited:
			s.exited = nil
		default:
			return true
		}
	}
	return members(s.leader, true) != nil
}

// end ends what is left: it is asked to, and killed after a grace. It reports
// whether something withstood that.
func (s *session) end(grace time.Duration) (left bool) {
	if !s.alive() {
		return false
	}
	for _, pid := range members(s.leader, s.exited == nil) {
		terminate(pid)
	}
	if s.gone(grace) {
		return false
	}
	for killing := time.Now().Add(killWait); time.Now().Before(killing); {
		for _, pid := range members(s.leader, s.exited == nil) {
			kill(pid)
		}
		if s.gone(50 * time.Millisecond) {
			return false
		}
	}
	return true
}

// gone waits at most for d until nothing is left. It looks once more after that
// time: this process may have stood still.
func (s *session) gone(d time.Duration) bool {
	end := time.Now().Add(d)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		late := !time.Now().Before(end)
		if !s.alive() {
			return true
		}
		if late {
			return false
		}
		time.Sleep(min(pause, time.Until(end)))
	}
}
