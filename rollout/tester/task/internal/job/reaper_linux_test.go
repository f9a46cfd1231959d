package job_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

func init() {
	programs["daemon"] = func() int { return fork("daemon-2") }
	programs["daemon-2"] = func() int { return fork("hold") }
	programs["orphans"] = orphans
	programs["ends"] = func() int { return 0 }
	programs["host"] = host
	programs["crowd"] = crowd
	programs["alone"] = alone
	programs["family"] = family
	programs["many"] = many
}

// fork leaves its session, and what it starts: with CLEAN nothing of its
// environment, the mark of the job included.
func fork(program string) int {
	env := os.Environ()
	if os.Getenv("CLEAN") != "" {
		env = []string{"CLEAN=1", "LOUD=" + os.Getenv("LOUD")}
	}
	spawn(program, env, &syscall.SysProcAttr{Setsid: true})
	return 0
}

// orphans leaves processes that end at once.
func orphans() int {
	for range 20 {
		spawn("ends", []string{"CLEAN=1"}, &syscall.SysProcAttr{Setsid: true})
	}
	return 0
}

// host runs its argument as a job with a reaper until it is asked to end, says
// how that ended, and how many children it has left.
func host() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	r, stop := reaper()
	defer stop()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() { <-asked; cancel(errOver) }()
	var others sync.WaitGroup
	for _, line := range os.Args[2:] {
		others.Go(func() { fmt.Println("other:", runLine(context.Background(), r, line)) })
	}
	err := runLine(ctx, r, os.Args[1])
	others.Wait()
	fmt.Println(err)
	fmt.Println("children:", childless())
	return 0
}

// crowd runs many jobs that leave orphans, and says which codes they ended with.
func crowd() int {
	r, stop := reaper()
	defer stop()
	codes := make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				err := runLine(context.Background(), r, `PROGRAM=orphans $SELF; exit 7`)
				mu.Lock()
				codes[fmt.Sprint(err)]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	fmt.Println(codes)
	fmt.Println("children:", childless())
	return 0
}

// alone runs a job without a reaper, whose program dies with this process.
func alone() int {
	self, _ := os.Executable()
	fmt.Println(job.Job{Args: []string{self}, Env: []string{"PROGRAM=deaf", "ADDR=" + os.Getenv("ADDR")}}.Run(context.Background()))
	return 0
}

// many runs a job of several processes without a reaper.
func many() int {
	fmt.Println(runLine(context.Background(), nil, `PROGRAM=deaf $SELF & PROGRAM=daemon $SELF; PROGRAM=deaf $SELF`))
	return 0
}

func reaper() (r *job.Reaper, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	r = new(job.Reaper)
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			panic(err)
		}
	})
	for adopts := int32(0); adopts == 0; runtime.Gosched() {
		_ = unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&adopts)), 0, 0, 0)
	}
	return r, func() { cancel(); running.Wait() }
}

func runLine(ctx context.Context, r *job.Reaper, line string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return job.Job{
		Args: []string{"/bin/sh", "-c", line}, Reaper: r, Grace: time.Second,
		Env: []string{"SELF=" + self, "ADDR=" + os.Getenv("ADDR")},
	}.Run(ctx)
}

// childless waits until this process has no child, and says so.
func childless() string {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			return "none"
		}
		if time.Now().After(deadline) {
			return "some"
		}
		time.Sleep(time.Millisecond)
	}
}

// outside runs a program of the test binary as a process of its own, by way of
// wrap, and asks it to end when n processes of it are up. It returns what the program says.
func outside(t *testing.T, n int, wrap []string, program string, env []string, lines ...string) string {
	t.Helper()
	addr, up, gone := desk(t)
	args := append(append(wrap, self(t)), lines...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(env, "PROGRAM="+program, "ADDR="+addr)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range n {
		<-up
	}
	if n > 0 {
		terminate(t, cmd.Process.Pid)
	}
	err := cmd.Wait()
	for range n {
		<-gone
	}
	if err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	return out.String()
}

// A process that left its session and has lost its parents is found by its mark.
func TestDaemonEndsWithContext(t *testing.T) {
	ends(t, 2, job.Job{}, `PROGRAM=daemon $SELF; PROGRAM=hold $SELF`)
}

func TestDaemonLeftBehind(t *testing.T) {
	addr, up, gone := desk(t)
	j := job.Job{Env: []string{"ADDR=" + addr}}
	if err := start(t, t.Context(), j, `PROGRAM=daemon $SELF; PROGRAM=await $SELF`); err != nil {
		t.Error(err)
	}
	<-up
	<-gone
}

// A process with a group of its own, as of the command timeout, is in the session.
func TestGroupOfItsOwn(t *testing.T) {
	if _, err := exec.LookPath("timeout"); err != nil {
		t.Skip(err)
	}
	ends(t, 1, job.Job{}, `PROGRAM=hold env -u `+job.Mark+` timeout 1000 $SELF; true`)
}

// With a reaper one that has cleaned its environment is found as well.
func TestDaemonWithoutMark(t *testing.T) {
	out := outside(t, 2, nil, "host", nil, `CLEAN=1 PROGRAM=daemon $SELF; PROGRAM=hold $SELF`)
	if want := errOver.Error() + "\nchildren: none\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// Without a reaper such a process gets away. It does not hold up the job, though
// it has its output.
func TestOutputOfWhoGotAway(t *testing.T) {
	addr, up, gone := desk(t)
	j := job.Job{Env: []string{"ADDR=" + addr}}
	if err := start(t, t.Context(), j, `LOUD=1 CLEAN=1 PROGRAM=daemon $SELF; PROGRAM=await $SELF; exit 0`); err != nil {
		t.Error(err)
	}
	terminate(t, <-up)
	<-gone
}

// The end of one job is not that of another's daemon.
func TestDaemonOfAnotherJob(t *testing.T) {
	for _, clean := range []string{"", "CLEAN=1 "} {
		out := outside(t, 2, nil, "host", nil,
			clean+`PROGRAM=daemon $SELF; PROGRAM=hold $SELF`,
			`PROGRAM=await $SELF`)
		if want := "other: <nil>\n" + errOver.Error() + "\nchildren: none\n"; out != want {
			t.Errorf("got %q, want %q", out, want)
		}
	}
}

// Orphans are reaped, and the codes of programs are not lost by it.
func TestReaperTakesOrphansAlone(t *testing.T) {
	if out := outside(t, 0, nil, "crowd", nil); out != "map[exit status 7:40]\nchildren: none\n" {
		t.Errorf("got %q", out)
	}
}

// As the first process of its own table of processes.
func TestFirstProcess(t *testing.T) {
	wrap := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"}
	if err := exec.Command(wrap[0], append(wrap[1:], "true")...).Run(); err != nil {
		t.Skip("unshare: ", err)
	}
	if out := outside(t, 0, wrap, "crowd", nil); out != "map[exit status 7:40]\nchildren: none\n" {
		t.Errorf("got %q", out)
	}
}

// The program dies with this process, however that ends.
func TestProgramDiesWithUs(t *testing.T) {
	addr, up, gone := desk(t)
	cmd := exec.Command(self(t))
	cmd.Env = []string{"PROGRAM=alone", "ADDR=" + addr}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-up
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	<-gone
}

// What it had started is ended by the next one, and not by that what belongs to one that lives.
func TestNextEndsWhatWasLeft(t *testing.T) {
	type one struct {
		cmd      *exec.Cmd
		up, gone <-chan int
	}
	var testers []one
	for range 2 {
		addr, up, gone := desk(t)
		cmd := exec.Command(self(t))
		cmd.Env = []string{"PROGRAM=many", "ADDR=" + addr}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		for range 3 {
			<-up
		}
		testers = append(testers, one{cmd, up, gone})
	}
	_ = testers[0].cmd.Process.Kill()
	_ = testers[0].cmd.Wait()
	outside(t, 0, nil, "host", nil, "true")
	for range 3 {
		<-testers[0].gone
	}
	select {
	case <-testers[1].gone:
		t.Error("a process of one that lives is gone")
	default:
	}
	_ = testers[1].cmd.Process.Kill()
	_ = testers[1].cmd.Wait()
	outside(t, 0, nil, "host", nil, "true")
	for range 3 {
		<-testers[1].gone
	}
}

func TestNoNewPrivileges(t *testing.T) {
	for privileges, want := range map[bool]string{false: "NoNewPrivs:\t1", true: "NoNewPrivs:\t0"} {
		var out bytes.Buffer
		err := start(t, t.Context(), job.Job{Out: &out, Privileges: privileges}, `cat /proc/self/status`)
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("privileges %v: %v, %s", privileges, err, out.String())
		}
	}
	if text, err := os.ReadFile("/proc/thread-self/status"); err != nil || !strings.Contains(string(text), "NoNewPrivs:\t0") {
		t.Error("this thread has lost privileges", err)
	}
}

// What this process starts otherwise is left alone.
func TestReaperLeavesOtherChildren(t *testing.T) {
	if out := outside(t, 0, nil, "family", nil); out != "exit status 5\nchildren: none\n" {
		t.Errorf("got %q", out)
	}
}

// family starts a child that ends at once, and waits for it much later.
func family() int {
	r, stop := reaper()
	defer stop()
	cmd := exec.Command("/bin/sh", "-c", "exit 5")
	if err := cmd.Start(); err != nil {
		return 1
	}
	_ = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	for range 10 {
		_ = runLine(context.Background(), r, `PROGRAM=orphans $SELF`)
	}
	fmt.Println(cmd.Wait())
	fmt.Println("children:", childless())
	return 0
}
