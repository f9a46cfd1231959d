package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// marked returns the processes whose environment or command line has a text.
func marked(t *testing.T, text string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	check(t, err)
	for _, dir := range all {
		for _, name := range []string{"environ", "cmdline"} {
			if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil && bytes.Contains(content, []byte(text)) && filepath.Base(dir) != strconv.Itoa(os.Getpid()) {
				pids = append(pids, filepath.Base(dir)+" "+strings.ReplaceAll(string(content[:min(len(content), 200)]), "\x00", " "))
				break
			}
		}
	}
	return pids
}

// stubborn are commands that leave processes behind in their session: %s is a text by which they are known.
var stubborn = map[string]string{
	"a pipeline":                         "sleep 1000%s | cat | cat",
	"one in the background":              "sleep 1000%s & sleep 1000%s",
	"one of another group":               "timeout 2000 sleep 1000%s & set -m; sleep 1000%s & sleep 1000%s",
	"one that ignores SIGTERM":           "trap '' TERM; sleep 1000%s; while :; do sleep 1000%s; done",
	"one without its environment":        "env -i sleep 1000%s & sleep 1000%s",
	"one whose parent has ended at once": "(env -i sleep 1000%s &) ; sleep 1000%s",
	"a daemon that stays in the session": "((trap '' TERM HUP; while :; do sleep 1000%s; done) &); sleep 1000%s",
}

// A test runner that is told to end leaves nothing of what it started, and
// records what it was.
func TestTesterEndsUnderLoad(t *testing.T) {
	s := startTester(t, "--shutdown-grace", "30s")
	mark := strconv.Itoa(10000 + rand.IntN(80000))
	commands := []string{}
	for _, command := range stubborn {
		commands = append(commands, strings.ReplaceAll(command, "%s", "."+mark))
	}
	var waiting sync.WaitGroup
	answers := make(chan string, len(commands))
	for i, command := range commands {
		if status, body := ask(t, "POST", s.url+"/", payload(fmt.Sprint("background-", i), keys{"cmd": command})); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
		waiting.Go(func() {
			status, body, err := send(context.Background(), "POST", s.url+"/", payload(fmt.Sprint("waits-", i), keys{"type": "bash", "cmd": command}))
			answers <- fmt.Sprint(status, " ", body, " ", err)
		})
	}
	stop := make(chan struct{})
	load := sync.WaitGroup{}
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					send(context.Background(), "POST", s.url+"/gate/check", payload("load", nil))
				}
			}
		})
	}
	until(t, "all are running", func() bool {
		return len(marked(t, "1000."+mark)) >= 2*len(commands) && running(s.runs()) == 2*len(commands)
	})
	check(t, s.cmd.Process.Signal(syscall.SIGTERM))
	waiting.Wait()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, s.log)
	}
	close(stop)
	load.Wait()
	if left := marked(t, "1000."+mark); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
	close(answers)
	for answer := range answers {
		if !strings.HasPrefix(answer, "503 ") {
			t.Errorf("who waited got %s", answer)
		}
	}
	again := startTester(t, "--state", s.state)
	runs := again.runs()
	for _, run := range runs {
		if run.State != "stopped" {
			t.Errorf("%s %s: %s %s", run.Name, run.Type, run.State, run.Reason)
		}
	}
	if len(runs) != 2*len(commands) {
		t.Errorf("%d runs are recorded", len(runs))
	}
}

func running(runs []ran) (n int) {
	for _, run := range runs {
		if run.State == "running" {
			n++
		}
	}
	return n
}

// A test runner that is killed has all changes of gates that it acknowledged, and
// knows what it lost.
func TestTesterKilled(t *testing.T) {
	state := t.TempDir()
	want := map[string]bool{}   // what was acknowledged last, by canary
	unsure := map[string]bool{} // what was asked for and not acknowledged, likewise
	for round := range 10 {
		s := startTester(t, "--state", state)
		for _, canary := range []string{"a", "b", "c"} {
			status, _ := ask(t, "POST", s.url+"/gate/check", payload(canary, nil))
			open := status == 200
			if maybe, known := unsure[canary]; open != want[canary] && (!known || open != maybe) {
				t.Errorf("round %d: gate %s is open: %t, acknowledged %t", round, canary, open, want[canary])
			}
			want[canary] = open
		}
		clear(unsure)
		if lost := s.runs(); round > 0 && (len(lost) != round || lost[0].State != "lost") {
			t.Errorf("round %d: runs %+v", round, lost)
		}
		mark := fmt.Sprintf("1000.%d%d", round, 10000+rand.IntN(80000))
		if status, body := ask(t, "POST", s.url+"/", payload(fmt.Sprint("run-", round), keys{"cmd": "sleep " + mark + " | cat"})); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
		until(t, "it runs", func() bool { return len(marked(t, mark)) >= 2 })
		time.AfterFunc(rand.N(200*time.Millisecond), func() { s.cmd.Process.Kill() })
		for {
			canary := string(rune('a' + rand.IntN(3)))
			open := rand.IntN(2) == 0
			path := map[bool]string{true: "/gate/open", false: "/gate/close"}[open]
			unsure[canary] = open
			if status, _, err := send(t.Context(), "POST", s.url+path, payload(canary, nil)); err != nil || status != 202 {
				break
			}
			want[canary] = open
			delete(unsure, canary)
		}
		s.cmd.Wait()
		for _, left := range marked(t, mark) { // nobody is there to end them
			pid, err := strconv.Atoi(strings.Fields(left)[0])
			check(t, err)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// As process 1 of a container it reaps what tests leave behind.
func TestTesterReaps(t *testing.T) {
	s := startTesterBy(t, []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"})
	const orphans = `for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.01' &); (env -i setsid sleep 0.02 &); done; sleep 0.2`
	for i := range 20 {
		if status, body := ask(t, "POST", s.url+"/", payload(fmt.Sprint("orphans-", i), keys{"type": "bash", "cmd": orphans})); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	const zombies = `echo "process $(cat /proc/1/comm)"; cat /proc/[0-9]*/stat | grep -c ') Z ' || true`
	until(t, "no zombies", func() bool {
		status, body := ask(t, "POST", s.url+"/", payload("count", keys{"type": "bash", "cmd": zombies, "returnCmdOutput": "true"}))
		return status == 200 && body == "process headgate\n0\n"
	})
	if got := running(s.runs()); got != 0 {
		t.Errorf("%d runs", got)
	}
}

// 1 GB of output fills neither memory nor disk, nor the answer.
func TestTesterOutput(t *testing.T) {
	s := startTester(t)
	status, body := ask(t, "POST", s.url+"/", payload("loud", keys{"type": "bash", "cmd": "head -c 1G /dev/zero | tr '\\0' x; echo; echo the end", "returnCmdOutput": "true"}))
	if status != 200 || len(body) > 1<<20 || !strings.HasPrefix(body, "xxx") || !strings.HasSuffix(body, "the end\n") {
		t.Errorf("%d, %d bytes, %q … %q", status, len(body), body[:min(20, len(body))], body[max(0, len(body)-20):])
	}
	text := read(t, fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	_, peak, _ := strings.Cut(text, "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(peak)[0])
	if err != nil || kb > 200<<10 {
		t.Errorf("it took %d kB of memory, %v", kb, err)
	}
	if out, err := exec.Command("du", "-sk", s.state).Output(); err != nil || strings.TrimSpace(string(out)) == "" {
		t.Error(err)
	} else if kb, _ := strconv.Atoi(strings.Fields(string(out))[0]); kb > 10<<10 {
		t.Errorf("its state takes %d kB", kb)
	}
}
