package job_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

// A process that left its session and has lost its parents is found by its mark.
func TestDaemonEndsWithContext(t *testing.T) {
	ends(t, 2, job.Job{}, `PROGRAM=daemon $SELF; PROGRAM=hold $SELF`)
}

// Without a mark it is found by its parent, or by another process of its session.
func TestSessionOfDescendant(t *testing.T) {
	ends(t, 3, job.Job{}, `PROGRAM=captain $SELF; true`)
}

// A process whose first thread has ended is no zombie, though it looks like one.
func TestEndedFirstThread(t *testing.T) {
	ends(t, 2, job.Job{}, `PROGRAM=widow $SELF; true`)
}

func TestDaemonLeftBehind(t *testing.T) {
	addr, up, gone := desk(t)
	j := job.Job{Env: []string{"ADDR=" + addr}}
	if err := start(t, t.Context(), j, `PROGRAM=daemon $SELF; PROGRAM=await $SELF`); err != nil {
		t.Error(err)
	}
	take(t, up)
	take(t, gone)
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
	terminate(t, take(t, up))
	take(t, gone)
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

// Of two jobs that end at once, one ends what may be of either.
func TestDaemonOfTwoJobs(t *testing.T) {
	addr, up, gone := desk(t)
	cmd := exec.Command(self(t))
	cmd.Env = []string{"PROGRAM=twins", "ADDR=" + addr}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 3 * twins {
		take(t, up)
	}
	terminate(t, cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for range 3 * twins {
		take(t, gone)
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
	take(t, up)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	take(t, gone)
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
