package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A server is the process of a contestant.
type server struct {
	name string
	args []string
	addr string
	cmd  *exec.Cmd
	log  *os.File
}

// start starts the process on a processor that the client does not use, and waits until it listens.
func (s *server) start(ctx context.Context, temp string) (err error) {
	if s.log, err = os.CreateTemp(temp, "log-"); err != nil {
		return err
	}
	args := append([]string{"-c", "1"}, s.args...)
	if out, err := exec.CommandContext(ctx, "taskset", "-c", "1", "true").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "one processor for all: %s", out)
		args[1] = "0"
	}
	s.cmd = exec.CommandContext(ctx, "taskset", args...)
	s.cmd.Env = append(os.Environ(), "HOME="+temp)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for range 1000 {
		if conn, err := net.Dial("tcp", s.addr); err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(fmt.Errorf("%s does not listen: %s", s.name, s.logTail()), s.stop())
}

// logTail returns the end of the log.
func (s *server) logTail() string {
	text, _ := os.ReadFile(s.log.Name())
	return string(text[max(0, len(text)-2000):])
}

// stop stops the process. It kills the reference, which would wait a minute for idle connections.
func (s *server) stop() error {
	defer s.log.Close()
	if strings.HasPrefix(s.name, theirs) {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		return nil
	}
	late := time.AfterFunc(time.Minute, func() { s.cmd.Process.Kill() })
	defer late.Stop()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", s.name, err, s.logTail())
	}
	return nil
}

// post sends a request, which must succeed.
func (s *server) post(path, body string) error {
	resp, err := http.Post("http://"+s.addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode > http.StatusAccepted {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return err
}
