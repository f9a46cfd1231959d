package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestMain puts this program into PATH as headgate and as session, and is one of
// them where it is started by that name.
func TestMain(m *testing.M) {
	switch strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") {
	case "headgate":
		main()
	case "session":
		serveSession()
	default:
		os.Exit(withPrograms(m))
	}
}

func withPrograms(m *testing.M) int {
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
	os.Setenv("GOGC", "400") // the commands collect to save memory, which takes a third of the time of most
	defer testenv.InMemory()()
	return m.Run()
}

// A commandSession is a process that executes the commands of a script, one after the
// other: to start a process for each of them takes longer than the commands.
type commandSession struct {
	process *exec.Cmd // nil until there is a command
	in      io.Closer
	calls   *json.Encoder
	answers *json.Decoder
	errs    bytes.Buffer
}

type sessionKey struct{}

type call struct {
	Dir       string
	Env, Args []string
}

type answer struct {
	Code      int
	Out, Errs []byte
}

// serveSession executes the calls on standard input.
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
		var out, errs bytes.Buffer
		code := run(context.Background(), c.Args, strings.NewReader(""), &out, &errs, os.LookupEnv)
		if err := answers.Encode(answer{code, out.Bytes(), errs.Bytes()}); err != nil {
			panic(err)
		}
	}
}

// execute has a command executed by the session of a script, and returns its exit code.
func execute(ts *testscript.TestScript, args []string) int {
	s := ts.Value(sessionKey{}).(*commandSession)
	c := call{Dir: ts.MkAbs("."), Args: args}
	env := reflect.ValueOf(ts).Elem().FieldByName("env") // which testscript shows to processes alone
	for i := range env.Len() {
		c.Env = append(c.Env, env.Index(i).String())
	}
	c.Env = append(c.Env, "PWD="+c.Dir)
	var a answer
	err := s.begin(c.Env)
	if err == nil {
		err = errors.Join(s.calls.Encode(c), s.answers.Decode(&a))
	}
	if err != nil {
		ts.Fatalf("%v\n%s", err, &s.errs)
	}
	ts.Stdout().Write(a.Out)
	ts.Stderr().Write(a.Errs)
	return a.Code
}

// begin starts the process, unless it is there.
func (s *commandSession) begin(env []string) error {
	if s.process != nil {
		return nil
	}
	s.process = exec.Command("session")
	s.process.Env, s.process.Stderr = env, &s.errs
	in, err := s.process.StdinPipe()
	out, err2 := s.process.StdoutPipe()
	s.in, s.calls, s.answers = in, json.NewEncoder(in), json.NewDecoder(out)
	return errors.Join(err, err2, s.process.Start())
}

// end ends the process. The error says that it ended badly, for example for a data race.
func (s *commandSession) end() error {
	if s.process == nil {
		return nil
	}
	s.in.Close()
	if err := s.process.Wait(); err != nil {
		return fmt.Errorf("session: %w\n%s", err, &s.errs)
	}
	return nil
}
