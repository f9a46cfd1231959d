package command

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// How long those are waited for who inherited the output of a program that has exited.
const (
	settleTurns = 20
	settleTurn  = 50 * time.Millisecond
)

// Settle waits, when a program has exited, until done is closed: what it wrote
// to pipes has been read. Those who inherited its output it does not wait for
// longer than a second; then it closes pipes. That second is a number of turns:
// on a machine that stood still the readers have theirs, and nothing is lost.
func Settle(done <-chan struct{}, pipes ...*os.File) {
	for range settleTurns {
		select {
		case <-done:
			return
		case <-time.After(settleTurn):
		}
	}
	for _, r := range pipes {
		r.Close()
	}
	<-done
}

// start starts cmd. Its output is with stdout and stderr when settle, which is
// for when it has exited, returns.
func start(cmd *exec.Cmd, stdout, stderr io.Writer) (settle func(), err error) {
	var outR, outW, errR, errW *os.File
	defer func() {
		outW.Close()
		errW.Close()
		if err != nil {
			outR.Close()
			errR.Close()
		}
	}()
	if outR, outW, err = os.Pipe(); err != nil {
		return nil, err
	}
	if errR, errW, err = os.Pipe(); err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = outW, errW
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var copied sync.WaitGroup
	for r, to := range map[*os.File]io.Writer{outR: stdout, errR: stderr} {
		copied.Go(func() {
			defer r.Close()
			_, _ = io.Copy(to, r)
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); copied.Wait() }()
	return func() { Settle(done, outR, errR) }, nil
}
