package job_test

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

func init() {
	programs["burner"] = func() int {
		for i := 0; ; i++ {
			i *= i
		}
	}
	programs["hog"] = hog
	programs["bomb"] = bomb
	programs["opener"] = opener
	programs["nothing"] = func() int { time.Sleep(time.Minute); return 0 }
}

var held [][]byte

// hog uses as many MiB as MIB says, and stays.
func hog() int {
	mib, _ := strconv.Atoi(os.Getenv("MIB"))
	for range mib / 16 {
		b := make([]byte, 16<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	time.Sleep(time.Minute)
	return len(held)
}

// bomb starts processes, up to a bound.
func bomb() int {
	self, _ := os.Executable()
	for range 100 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "PROGRAM=nothing")
		if cmd.Start() != nil {
			return 1
		}
	}
	time.Sleep(time.Minute)
	return 0
}

func opener() int {
	for range 1000 {
		f, err := os.Open("/dev/null")
		if err != nil {
			os.Stderr.WriteString(err.Error())
			return 1
		}
		defer f.Close()
	}
	return 0
}

// Each limit ends what goes beyond it, with a reason that names it.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits job.Limits
		line   string
		want   string
	}{
		"CPU of a program":    {job.Limits{CPU: 1}, `PROGRAM=burner exec $SELF`, "CPU limit of 1s"},
		"CPU of a grandchild": {job.Limits{CPU: 1}, `PROGRAM=burner $SELF; exit $?`, "CPU limit of 1s"},
		"CPU of all":          {job.Limits{CPU: 1}, `for i in 1 2 3 4; do PROGRAM=burner $SELF & done; wait`, "killed: over its CPU limit of 1s"},
		"memory of a program": {job.Limits{Memory: 256 << 20}, `MIB=1024 PROGRAM=hog exec $SELF`, "memory limit of 268435456 bytes"},
		"memory of all":       {job.Limits{Memory: 400 << 20}, `for i in 1 2 3; do MIB=192 PROGRAM=hog $SELF & done; wait`, "killed: over its memory limit of 419430400 bytes"},
		"processes":           {job.Limits{Procs: 20}, `PROGRAM=bomb $SELF`, "killed: over its limit of 20 processes"},
		"size of a file":      {job.Limits{Size: 1 << 20}, `head -c 10000000 /dev/zero > file`, "limit of 1048576 bytes for a file"},
		"open files":          {job.Limits{Files: 64}, `PROGRAM=opener $SELF`, "limit of 64 open files"},
	} {
		t.Run(name, func(t *testing.T) {
			if raceDetector && c.limits.Memory > 0 {
				t.Skip("the race detector has memory of its own")
			}
			var out bytes.Buffer
			err := start(t, t.Context(), job.Job{Limits: c.limits, Dir: t.TempDir(), Out: &out}, c.line)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; %s", err, out.String())
			}
		})
	}
}

// What stays below its limits does not notice them.
func TestBelowLimits(t *testing.T) {
	var out bytes.Buffer
	limits := job.Limits{CPU: 60, Memory: 1 << 30, Files: 100, Size: 1 << 20, Procs: 50}
	err := start(t, t.Context(), job.Job{Limits: limits, Dir: t.TempDir(), Out: &out}, `echo a > file; ulimit -n; ulimit -t; cat file; exit 0`)
	if err != nil || out.String() != "100\n60\na\n" {
		t.Errorf("got %v, %q", err, out.String())
	}
}
