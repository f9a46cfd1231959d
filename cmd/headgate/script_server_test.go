package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// A serverProcess is a server that a script has started.
type serverProcess struct {
	name string
	cmd  *exec.Cmd
	log  *os.File
}

type testerKey struct{}

// startTester starts headgate tester and sets $TESTER to its URL: tester FLAG…. It runs until the
// script ends, or until: tester end, or tester kill.
func startTester(ts *testscript.TestScript, _ bool, args []string) {
	runServer(ts, testerKey{}, "tester", "TESTER", args)
}

// runServer starts a headgate server on a free port, logs to NAME.log, and sets a variable to its
// URL. The end of the script stops the server that is stored under key. The argument end stops it
// and requires exit code 0; kill kills it; hangup sends SIGHUP.
func runServer(ts *testscript.TestScript, key any, name, variable string, args []string) {
	running := ts.Value(key).(**serverProcess)
	if len(args) == 1 && (args[0] == "end" || args[0] == "kill") {
		ts.Check((*running).end(args[0] == "kill"))
		*running = nil
		return
	}
	if len(args) == 1 && args[0] == "hangup" {
		ts.Check((*running).cmd.Process.Signal(syscall.SIGHUP))
		return
	}
	if *running != nil {
		ts.Fatalf("headgate %s is running", name)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // if this process ignores SIGHUP, the server would inherit that
	log, err := os.Create(ts.MkAbs(name + ".log"))
	ts.Check(err)
	p := &serverProcess{name, exec.Command("headgate", append([]string{name, "--addr", "127.0.0.1:0"}, args...)...), log}
	p.cmd.Dir, p.cmd.Stderr = ts.MkAbs("."), log
	p.cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"), "SystemRoot=" + os.Getenv("SystemRoot")}
	out, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	*running = p
	line, err := bufio.NewReader(out).ReadString('\n')
	ts.Check(err)
	_, url, found := strings.Cut(strings.TrimSpace(line), " at ")
	if !found || !strings.HasPrefix(url, "http") {
		ts.Fatalf("it printed %q", line)
	}
	ts.Setenv(variable, url)
}

// end stops the server and returns an error if it did not exit with code 0. If killed is set, it
// kills the server instead.
func (p *serverProcess) end(killed bool) error {
	defer p.log.Close()
	if killed || runtime.GOOS == "windows" {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(p.log.Name())
		return fmt.Errorf("headgate %s: %w\n%s", p.name, err, text)
	}
	return nil
}

// removeNotes removes the annotations about the run from documents that fetch printed: notes FILE….
func removeNotes(ts *testscript.TestScript, _ bool, args []string) {
	line := regexp.MustCompile(`(?m)^  annotations:\n(    source\.headgate\.dev/(outcome|why): .*\n)+`)
	for _, name := range args {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(line.ReplaceAllString(ts.ReadFile(name), "")), 0o666))
	}
}

type serveKey struct{}

// startServe starts headgate serve and sets $SOURCES to its URL: serving FLAG…. It runs until the
// script ends, or until: serving end.
func startServe(ts *testscript.TestScript, _ bool, args []string) {
	runServer(ts, serveKey{}, "serve", "SOURCES", args)
}
