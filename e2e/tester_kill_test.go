package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

// findProcesses returns the processes that have a text in their environment or command line.
func findProcesses(t *testing.T, text string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
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

// lingeringCommands are commands that leave processes behind in their session. %s is a mark that identifies
// them.
var lingeringCommands = map[string]string{
	"a pipeline":                         "sleep 1000%s | cat | cat",
	"one in the background":              "sleep 1000%s & sleep 1000%s",
	"one of another group":               "timeout 2000 sleep 1000%s & set -m; sleep 1000%s & sleep 1000%s",
	"one that ignores SIGTERM":           "trap '' TERM; sleep 1000%s; while :; do sleep 1000%s; done",
	"one without its environment":        "env -i sleep 1000%s & sleep 1000%s",
	"one whose parent has ended at once": "(env -i sleep 1000%s &) ; sleep 1000%s",
	"a daemon that stays in the session": "((trap '' TERM HUP; while :; do sleep 1000%s; done) &); sleep 1000%s",
}

// TestTesterEndsUnderLoad checks that a test runner that is terminated leaves no processes behind
// and records the runs as stopped.
func TestTesterEndsUnderLoad(t *testing.T) {
	t.Parallel()
	s := startTester(t, "--shutdown-grace", "30s")
	mark := strconv.Itoa(10000 + rand.IntN(80000))
	commands := []string{}
	for _, command := range lingeringCommands {
		commands = append(commands, strings.ReplaceAll(command, "%s", "."+mark))
	}
	var waiting sync.WaitGroup
	answers := make(chan string, len(commands))
	for i, command := range commands {
		if status, body := ask(t, "POST", s.url+"/", encodedPayload(fmt.Sprint("background-", i), stringMap{"cmd": command})); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
		waiting.Go(func() {
			status, body, err := send(context.Background(), "POST", s.url+"/", encodedPayload(fmt.Sprint("waits-", i), stringMap{"type": "bash", "cmd": command}))
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
					send(context.Background(), "POST", s.url+"/gate/check", encodedPayload("load", nil))
				}
			}
		})
	}
	waitUntil(t, "all are running", func() bool {
		return len(findProcesses(t, "1000."+mark)) >= 2*len(commands) && countRunning(s.runs()) == 2*len(commands)
	})
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	waiting.Wait()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, s.log)
	}
	close(stop)
	load.Wait()
	if left := findProcesses(t, "1000."+mark); len(left) > 0 {
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
	testenv.Equal(t, len(runs), 2*len(commands), "runs are recorded")
}

func countRunning(runs []runItem) (n int) {
	for _, run := range runs {
		if run.State == "running" {
			n++
		}
	}
	return n
}

// TestTesterKilled checks that a killed test runner keeps all acknowledged changes of gates and
// records the lost runs.
func TestTesterKilled(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	want := map[string]bool{}   // last acknowledged state, by canary
	unsure := map[string]bool{} // requested but not acknowledged state, by canary
	for round := range 10 {
		s := startTester(t, "--state", state)
		for _, canary := range []string{"a", "b", "c"} {
			status, _ := ask(t, "POST", s.url+"/gate/check", encodedPayload(canary, nil))
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
		if status, body := ask(t, "POST", s.url+"/", encodedPayload(fmt.Sprint("run-", round), stringMap{"cmd": "sleep " + mark + " | cat"})); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
		waitUntil(t, "it runs", func() bool { return len(findProcesses(t, mark)) >= 2 })
		time.AfterFunc(rand.N(200*time.Millisecond), func() { s.cmd.Process.Kill() })
		for {
			canary := string(rune('a' + rand.IntN(3)))
			open := rand.IntN(2) == 0
			path := map[bool]string{true: "/gate/open", false: "/gate/close"}[open]
			unsure[canary] = open
			if status, _, err := send(t.Context(), "POST", s.url+path, encodedPayload(canary, nil)); err != nil || status != 202 {
				break
			}
			want[canary] = open
			delete(unsure, canary)
		}
		s.cmd.Wait()
		for _, left := range findProcesses(t, mark) { // the killed server does not stop them
			pid, err := strconv.Atoi(strings.Fields(left)[0])
			must(t, err)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestTesterReaps checks that the test runner, as process 1 of a container, reaps orphaned
// processes of tests.
func TestTesterReaps(t *testing.T) {
	t.Parallel()
	s := startTesterBy(t, []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"})
	const orphans = `for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.01' &); (env -i setsid sleep 0.02 &); done; sleep 0.2`
	for i := range 20 {
		if status, body := ask(t, "POST", s.url+"/", encodedPayload(fmt.Sprint("orphans-", i), stringMap{"type": "bash", "cmd": orphans})); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	const zombies = `echo "process $(cat /proc/1/comm)"; cat /proc/[0-9]*/stat | grep -c ') Z ' || true`
	waitUntil(t, "no zombies", func() bool {
		status, body := ask(t, "POST", s.url+"/", encodedPayload("count", stringMap{"type": "bash", "cmd": zombies, "returnCmdOutput": "true"}))
		return status == 200 && body == "process headgate\n0\n"
	})
	testenv.Equal(t, countRunning(s.runs()), 0, "runs")
}

// TestTesterManyConnections opens 1,000 idle connections, then sends 300 bodies of 1 MB at once, then opens
// and drops 500 streams.
func TestTesterManyConnections(t *testing.T) {
	t.Parallel()
	s := startTester(t)
	address := strings.TrimPrefix(s.url, "http://")
	metric := func(name string) string {
		_, text := ask(t, "GET", s.url+"/metrics", "")
		found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("there is no %s", name)
		}
		return found[1]
	}
	dial := func(head string) net.Conn {
		c, err := net.Dial("tcp", address)
		must(t, err)
		fmt.Fprint(c, head+"\r\nHost: 127.0.0.1\r\n")
		return c
	}
	// These connections send an incomplete request head and then nothing.
	var slow []net.Conn
	for range 1000 {
		c := dial("POST / HTTP/1.1")
		defer c.Close()
		slow = append(slow, c)
	}
	longest := time.Duration(0)
	for range 50 {
		at := time.Now()
		if status, _ := ask(t, "GET", s.url+"/healthz", ""); status != 200 {
			t.Fatalf("a probe: %d", status)
		}
		longest = max(longest, time.Since(at))
	}
	t.Logf("beside 1,000 slow connections a probe took at most %s", longest)
	// Long bodies beyond the limit are refused, and each body costs only its own size.
	long := encodedPayload("long", stringMap{"type": "bash", "cmd": "true", "text": strings.Repeat("x", 1<<20-1000)})
	statuses := runConcurrently(300, func(int) int { status, _, _ := send(t.Context(), "POST", s.url, long); return status })
	if statuses[200]+statuses[503] != 300 || statuses[200] == 0 {
		t.Errorf("bodies of 1 MB: %v", statuses)
	}
	if peak := s.peakMemory(); peak > 400<<10 {
		t.Errorf("it took %d kB of memory", peak)
	}
	check4000 := encodedPayload("many", stringMap{})
	if statuses := runConcurrently(4000, func(int) int {
		status, _, _ := send(t.Context(), "POST", s.url+"/gate/check", check4000)
		return status
	}); statuses[403] != 4000 {
		t.Errorf("4,000 requests at a time: %v", statuses)
	}
	// These clients disconnect from their streams.
	for range 500 {
		c := dial("GET /api/v1/watch HTTP/1.1")
		fmt.Fprint(c, "\r\n")
		_, err := c.Read(make([]byte, 1))
		must(t, err)
		must(t, c.Close())
	}
	waitUntil(t, "the end of dropped streams", func() bool { return metric("headgate_tester_http_requests_in_flight") == "1" })
	for _, c := range slow {
		c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatalf("a slow connection is not cut off: %v", err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	waitUntil(t, "the end of all connections", func() bool { n, _ := strconv.Atoi(metric("go_goroutines")); return n < 50 })
}

// peakMemory returns the peak memory of the process in kB.
func (s *testRunner) peakMemory() int {
	s.t.Helper()
	_, peak, _ := strings.Cut(read(s.t, fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(peak)[0])
	must(s.t, err)
	return kb
}

// runConcurrently runs n calls of do concurrently and counts their results.
func runConcurrently(n int, do func(int) int) map[int]int {
	var mu sync.Mutex
	var group sync.WaitGroup
	counts := map[int]int{}
	for i := range n {
		group.Go(func() {
			got := do(i)
			mu.Lock()
			defer mu.Unlock()
			counts[got]++
		})
	}
	group.Wait()
	return counts
}
