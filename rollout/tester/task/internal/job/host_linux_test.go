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
	"strconv"
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
	programs["captain"] = func() int { spawn("major", []string{"CLEAN=1"}, &syscall.SysProcAttr{Setsid: true}); return hold() }
	programs["major"] = func() int { spawn("minor", []string{"CLEAN=1"}, nil); return hold() }
	programs["minor"] = func() int { spawn("hold", []string{"CLEAN=1"}, &syscall.SysProcAttr{Setpgid: true}); return 0 }
	programs["orphans"] = orphans
	programs["widow"] = func() int { spawn("headless", nil, &syscall.SysProcAttr{Setsid: true}); return hold() }
	programs["headless"] = headless
	programs["ends"] = func() int { return 0 }
	programs["host"] = host
	programs["crowd"] = crowd
	programs["alone"] = alone
	programs["family"] = family
	programs["twins"] = twin
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

// headless ends its first thread, and lives on with the others.
func headless() int {
	for range 100 { // goroutines that each hold a thread, until one holds the first
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == os.Getpid() {
				_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
			}
			select {}
		}()
	}
	done := make(chan int)
	go func() {
		for zombie := false; !zombie; runtime.Gosched() {
			text, _ := os.ReadFile("/proc/" + strconv.Itoa(os.Getpid()) + "/stat")
			zombie = bytes.Contains(text, []byte(") Z"))
		}
		done <- hold()
	}()
	return <-done
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
	deadline := time.Now().Add(patience)
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
		take(t, up)
	}
	if n > 0 {
		terminate(t, cmd.Process.Pid)
	}
	err := cmd.Wait()
	for range n {
		take(t, gone)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	return out.String()
}

const twins = 4

// twin runs jobs that all end at once, each with two daemons that might be of any.
func twin() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	r, stop := reaper()
	defer stop()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() { <-asked; cancel(errOver) }()
	var all sync.WaitGroup
	for range twins {
		all.Go(func() {
			_ = runLine(ctx, r, `CLEAN=1 PROGRAM=daemon $SELF; CLEAN=1 PROGRAM=daemon $SELF; PROGRAM=hold $SELF`)
		})
	}
	all.Wait()
	return 0
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
