package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A part is a process of this program in some role, which is spoken to by lines.
type part struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startPart starts a process. It ends when its standard input does.
func startPart(ctx context.Context, role string, args ...string) (*part, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &part{cmd: exec.CommandContext(ctx, self, append([]string{role}, args...)...)}
	p.cmd.Stderr, p.cmd.WaitDelay = os.Stderr, 30*time.Second
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// line returns the next line of the process.
func (p *part) line() (string, error) {
	text, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.cmd.Path, errors.Join(err, p.end()))
	}
	return strings.TrimSuffix(text, "\n"), nil
}

// end ends the process.
func (p *part) end() error {
	p.in.Close()
	return p.cmd.Wait()
}

// countsOf returns what the upstreams at a port were asked for.
func countsOf(port string) (c counts, err error) {
	resp, err := http.Get("http://" + hostOf(0) + ":" + port + "/counts")
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	return c, json.NewDecoder(resp.Body).Decode(&c)
}
