package main

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// removeNotes removes what fetch says of a run from documents that it printed: notes FILE….
func removeNotes(ts *testscript.TestScript, _ bool, args []string) {
	line := regexp.MustCompile(`(?m)^  annotations:\n(    source\.headgate\.dev/(outcome|why): .*\n)+`)
	for _, name := range args {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(line.ReplaceAllString(ts.ReadFile(name), "")), 0o666))
	}
}

type keptKey struct{}

// startServe starts headgate serve on a free port and sets $SOURCES to its URL:
// serving FLAG…. It is ended with the script, or by: serving end.
func startServe(ts *testscript.TestScript, _ bool, args []string) {
	running := ts.Value(keptKey{}).(**testerProcess)
	if len(args) == 1 && args[0] == "end" {
		ts.Check((*running).end(false))
		*running = nil
		return
	}
	log, err := os.Create(ts.MkAbs("serve.log"))
	ts.Check(err)
	p := &testerProcess{exec.Command("headgate", append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...), log}
	p.cmd.Dir, p.cmd.Stderr = ts.MkAbs("."), log
	p.cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"), "SystemRoot=" + os.Getenv("SystemRoot")}
	out, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	*running = p
	line, err := bufio.NewReader(out).ReadString('\n')
	ts.Check(err)
	url, found := strings.CutPrefix(strings.TrimSpace(line), "serving sources at ")
	if !found {
		ts.Fatalf("it printed %q", line)
	}
	ts.Setenv("SOURCES", url)
}
