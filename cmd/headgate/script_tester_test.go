package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// A testerProcess is a test runner that a script has started.
type testerProcess struct {
	cmd *exec.Cmd
	log *os.File
}

type testerKey struct{}

// startTester starts headgate tester on a free port and sets $TESTER to its
// URL: tester FLAG…. It is ended with the script, or by: tester end, which wants it to exit
// with 0, and puts its log into the file tester.log; tester kill does not ask it.
func startTester(ts *testscript.TestScript, _ bool, args []string) {
	running, _ := ts.Value(testerKey{}).(**testerProcess)
	if len(args) == 1 && (args[0] == "end" || args[0] == "kill") {
		ts.Check((*running).end(args[0] == "kill"))
		*running = nil
		return
	}
	if *running != nil {
		ts.Fatalf("a test runner is running")
	}
	log, err := os.Create(ts.MkAbs("tester.log"))
	ts.Check(err)
	p := &testerProcess{exec.Command("headgate", append([]string{"tester", "--addr", "127.0.0.1:0"}, args...)...), log}
	p.cmd.Dir, p.cmd.Stderr = ts.MkAbs("."), log
	p.cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"), "SystemRoot=" + os.Getenv("SystemRoot")}
	out, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	*running = p
	line, err := bufio.NewReader(out).ReadString('\n')
	ts.Check(err)
	_, url, found := strings.Cut(strings.TrimSpace(line), "serving webhooks at ")
	if !found {
		ts.Fatalf("it printed %q", line)
	}
	ts.Setenv("TESTER", url)
}

// end ends it, and says whether it ended well.
func (p *testerProcess) end(killed bool) error {
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
		return fmt.Errorf("headgate tester: %w\n%s", err, text)
	}
	return nil
}
