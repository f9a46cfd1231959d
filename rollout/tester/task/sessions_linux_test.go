package task_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate-io/headgate/rollout/tester/task"
)

func init() {
	programs["orphans"] = orphans
	programs["crowd"] = runReaper
	programs["alone"] = runDeaf
}

// orphans leaves processes that end at once, half of them in sessions of their own.
func orphans() int {
	for i := range 10 {
		cmd := exec.Command("true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: i%2 == 0}
		if err := cmd.Start(); err != nil {
			return 1
		}
	}
	return 0
}

// runReaper runs many jobs that leave orphans, in a process with a reaper. It prints the exit
// codes of the jobs, and the children that are left.
func runReaper() int {
	reaper := new(task.Reaper)
	reaper.Adopt()
	self, _ := os.Executable()
	tools := &task.Tools{Reaper: reaper, Env: []string{"SELF=" + self}}
	codes := make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				todo, _, err := tools.Task("cmd", map[string]string{"cmd": `PROGRAM=orphans $SELF && exit 7`})
				if err == nil {
					err = todo.Run(context.Background(), &bytes.Buffer{})
				}
				mu.Lock()
				codes[fmt.Sprint(err)]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	left := "none"
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); errors.Is(err, unix.ECHILD) {
			break
		}
		if time.Now().After(deadline) {
			left = "some"
			break
		}
		if todo, _, err := tools.Task("cmd", map[string]string{"cmd": "true"}); err == nil {
			todo.Run(context.Background(), &bytes.Buffer{}) // children that have exited are reaped while no run is under way
		}
	}
	inherits, _, err := tools.Task("cmd", map[string]string{"cmd": "test ! -e /proc/self/fd/3"}) // this process has that file
	if err == nil {
		err = inherits.Run(context.Background(), &bytes.Buffer{})
	}
	fmt.Println(codes)
	fmt.Println("children:", left, "files:", err)
	return 0
}

// runDeaf runs a program that ignores SIGTERM.
func runDeaf() int {
	self, _ := os.Executable()
	tools := &task.Tools{Env: []string{"PROGRAM=deaf", "ADDR=" + os.Getenv("ADDR")}}
	todo, _, err := tools.Task("cmd", map[string]string{"cmd": self, "shell": "false"})
	if err == nil {
		err = todo.Run(context.Background(), &bytes.Buffer{})
	}
	fmt.Println(err)
	return 0
}

// The reaper reaps orphans without losing exit codes, and programs inherit no files that
// this process inherited; also if this process is the first in a PID namespace.
func TestReaper(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	for _, wrap := range [][]string{nil, {"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"}} {
		if wrap != nil && exec.Command(wrap[0], append(wrap[1:], "true")...).Run() != nil {
			continue
		}
		args := append(wrap, self)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env, cmd.ExtraFiles = []string{"PROGRAM=crowd"}, []*os.File{os.Stdin}
		if out, err := cmd.Output(); err != nil || string(out) != "map[exit status 7:20]\nchildren: none files: <nil>\n" {
			t.Errorf("%v: got %q, %v", wrap, out, err)
		}
	}
}

// A process with a group of its own, as the command timeout makes, ends with the session.
func TestGroupOfItsOwn(t *testing.T) {
	if _, err := exec.LookPath("timeout"); err != nil {
		t.Skip(err)
	}
	checkAllEnd(t, 1, job{waits: true}, `PROGRAM=hold timeout 1000 $SELF; true`)
}

// The program is killed with this process, however that ends.
func TestProgramIsKilledWithParent(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	addr, up, ended := processReports(t)
	cmd := exec.Command(self)
	cmd.Env = []string{"PROGRAM=alone", "ADDR=" + addr}
	must(t, cmd.Start())
	receivePID(t, up)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	receivePID(t, ended)
}

func TestNoNewPrivileges(t *testing.T) {
	for privileges, want := range map[bool]string{false: "NoNewPrivs:\t1", true: "NoNewPrivs:\t0"} {
		out, err := run(t, &task.Tools{Privileges: privileges}, "cmd", map[string]string{"cmd": "cat /proc/self/status"})
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("privileges %v: %v, %s", privileges, err, out)
		}
	}
	if text, err := os.ReadFile("/proc/thread-self/status"); err != nil || !strings.Contains(string(text), "NoNewPrivs:\t0") {
		t.Error("this thread has lost privileges", err)
	}
}
