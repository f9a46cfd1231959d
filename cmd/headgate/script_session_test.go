package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestMain adds this program to PATH as headgate and as session. If it was started under one of
// these names, it acts as that program.
func TestMain(m *testing.M) {
	switch strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") {
	case "headgate":
		main()
	case "session":
		serveSession()
	default:
		os.Exit(runWithPrograms(m))
	}
}

func runWithPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headgate-test")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"headgate", "session"} {
		if filepath.Ext(os.Args[0]) == ".exe" {
			name += ".exe"
		}
		self, err := os.Executable()
		if err == nil && os.Link(self, filepath.Join(dir, name)) != nil {
			var program []byte
			program, err = os.ReadFile(self)
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), program, 0o755))
		}
		if err != nil {
			panic(err)
		}
	}
	os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	os.Setenv("GOGC", fmt.Sprint(commandGOGC)) // the collector of the commands saves memory, but takes a third of the time of most
	defer testenv.InMemory()()
	return m.Run()
}

// commandGOGC is the GOGC value of commands.
const commandGOGC = 400

// maxSessionCalls is the number of calls that a session executes before it ends. The limit bounds its
// memory, because cobra keeps data about the flags of each call.
const maxSessionCalls = 200

// A commandSession is a process that executes commands of scripts one after the other. Starting a
// process for each command takes longer than the commands.
type commandSession struct {
	process *exec.Cmd
	in      io.Closer
	calls   *json.Encoder
	answers *json.Decoder
	errs    bytes.Buffer
	count   int // number of calls
}

// commandSessions are the sessions of all scripts. A new one is started if none is idle.
type commandSessions struct {
	mu        sync.Mutex
	all, idle []*commandSession
}

type sessionsKey struct{}

type call struct {
	Dir       string
	Env, Args []string
	In        string
	Together  bool // standard error is written to standard output
}

type answer struct {
	Code      int
	Out, Errs []byte
}

// An outputBuffer is the output of a call. It is safe for concurrent use: commands report progress
// concurrently.
type outputBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (p *outputBuffer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Buffer.Write(text)
}

// serveSession executes the calls that it reads from standard input.
func serveSession() {
	calls, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var c call
		err := calls.Decode(&c)
		if err == io.EOF {
			return
		}
		os.Clearenv()
		for _, kv := range c.Env {
			name, value, _ := strings.Cut(kv, "=")
			os.Setenv(name, value)
		}
		if err := errors.Join(err, os.Chdir(c.Dir)); err != nil {
			panic(err)
		}
		var out, errs outputBuffer
		stderr := &errs
		if c.Together {
			stderr = &out
		}
		code := run(context.Background(), c.Args, strings.NewReader(c.In), &out, stderr, os.LookupEnv)
		debug.SetGCPercent(commandGOGC) // headgate tester changes it
		debug.SetMemoryLimit(math.MaxInt64)
		if err := answers.Encode(answer{code, out.Bytes(), errs.Bytes()}); err != nil {
			panic(err)
		}
	}
}

// execute runs a command of a script in a session and returns its exit code.
func execute(ts *testscript.TestScript, args []string) int {
	sessions := ts.Value(sessionsKey{}).(*commandSessions)
	script := reflect.ValueOf(ts).Elem() // testscript exposes these fields to processes only
	c := call{Dir: ts.MkAbs("."), Args: args, In: script.FieldByName("stdin").String()}
	env := script.FieldByName("env")
	for i := range env.Len() {
		c.Env = append(c.Env, env.Index(i).String())
	}
	c.Env = append(c.Env, "PWD="+c.Dir)
	a, err := sessions.execute(c)
	ts.Check(err)
	ts.Stdout().Write(a.Out)
	ts.Stderr().Write(a.Errs)
	return a.Code
}

// execute runs a call in a session that has no other call.
func (p *commandSessions) execute(c call) (a answer, err error) {
	s, err := p.take()
	if err != nil {
		return a, err
	}
	if err := errors.Join(s.calls.Encode(c), s.answers.Decode(&a)); err != nil {
		return a, fmt.Errorf("%w\n%s", err, &s.errs)
	}
	p.give(s)
	return a, nil
}

// take returns an idle session, or a new one.
func (p *commandSessions) take() (*commandSession, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s, nil
	}
	s := &commandSession{process: exec.Command("session")}
	s.process.Env, s.process.Stderr = append(os.Environ(), "GORACE=atexit_sleep_ms=0", testenv.NamesVariable+"="+scriptNames), &s.errs
	in, err := s.process.StdinPipe()
	out, err2 := s.process.StdoutPipe()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	s.in, s.calls, s.answers = in, json.NewEncoder(in), json.NewDecoder(out)
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	p.all = append(p.all, s)
	return s, nil
}

// give returns a session to the idle ones, or ends it after maxSessionCalls calls.
func (p *commandSessions) give(s *commandSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.count++; s.count == maxSessionCalls {
		s.in.Close()
		return
	}
	p.idle = append(p.idle, s)
}

// end ends the sessions. The error reports processes that failed, for example because of a data
// race.
func (p *commandSessions) end() (err error) {
	for _, s := range p.all {
		s.in.Close()
		if e := s.process.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("session: %w\n%s", e, &s.errs))
		}
	}
	return err
}
