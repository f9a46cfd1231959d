package gate_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

const (
	crashDir  = "HEADGATE_TEST_GATES" // of the process that is killed
	crashFrom = "HEADGATE_TEST_FROM"  // number of its first operation
	canaries  = 4
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := victim(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// victim does operations until it is killed, those of each canary in order. It
// says when one begins, and what came of it: CANARY NUMBER [RESULT].
func victim(dir string) error {
	b, err := gate.Open(gate.Config{Dir: dir})
	if err != nil {
		return err
	}
	from, err := strconv.Atoi(os.Getenv(crashFrom))
	if err != nil {
		return err
	}
	for canary := range canaries {
		go func() {
			name := fmt.Sprint("web", canary)
			for i := from; ; i++ {
				fmt.Printf("%d %d\n", canary, i)
				fmt.Printf("%d %d %s\n", canary, i, random(name, i).do(b))
			}
		}()
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent ends
	return err
}

// TestCrash kills a process with SIGKILL while it changes gates, again and
// again, through 1,500 operations: what it acknowledged is there afterwards, and nothing
// else but, wholly or not at all, the one operation of each canary that was under way.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(7, 7))
	known := make([]model, canaries)
	for i := range known {
		known[i] = model{}
	}
	total, volume := 0, 1500
	if testing.Short() {
		volume /= 10
	}
	rounds, from := 0, 0
	for total < volume {
		acknowledged := 1 + r.IntN(400)
		total += acknowledged
		next := killed(t, dir, from, acknowledged, known)
		if t.Failed() {
			t.Fatalf("in round %d, after %d operations", rounds, total)
		}
		rounds, from = rounds+1, next
	}
	t.Logf("%d operations, killed %d times", total, rounds)
}

// killed runs a process from an operation on, kills it once it acknowledged so
// many, checks and updates what is known, and returns the number to go on with.
func killed(t *testing.T, dir string, from, acknowledged int, known []model) (next int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir, fmt.Sprint(crashFrom, "=", from))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	flying := make([]int, canaries) // number of the operation under way; -1 for none
	for i := range known {
		flying[i] = -1
	}
	next = from
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		canary, i, result, ok := parseLine(lines.Text())
		if !ok {
			break // cut off
		}
		next = max(next, i+1)
		if flying[canary] = i; result == "" {
			continue
		}
		flying[canary] = -1
		settle(t, known[canary], canary, i, result)
		if acknowledged--; acknowledged == 0 {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	b, err := gate.Open(gate.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for canary, m := range known {
		known[canary] = survived(t, b, m, canary, flying[canary])
	}
	return next
}

func parseLine(line string) (canary, i int, result string, ok bool) {
	fields := strings.SplitN(line, " ", 3)
	if len(fields) < 2 {
		return 0, 0, "", false
	}
	canary, err1 := strconv.Atoi(fields[0])
	i, err2 := strconv.Atoi(fields[1])
	if len(fields) == 3 {
		result = fields[2]
	}
	return canary, i, result, err1 == nil && err2 == nil
}

// settle does to the model what was acknowledged.
func settle(t *testing.T, m model, canary, i int, result string) {
	op := random(fmt.Sprint("web", canary), i)
	if want := m.do(op); result != want {
		t.Errorf("%+v: %s, want %s", op, result, want)
	}
}

// survived returns what the book holds of a canary: what is known, or that with
// the operation that was under way. Who waits may be forgotten, or remembered
// for too long.
func survived(t *testing.T, b *gate.Store, m model, canary, flying int) model {
	diff := m.differs(b, false)
	if diff != "" && flying < 0 {
		t.Errorf("acknowledged and lost, or invented: %s", diff)
	}
	if diff != "" && flying >= 0 {
		op := random(fmt.Sprint("web", canary), flying)
		m.do(op)
		if other := m.differs(b, false); other != "" {
			t.Errorf("neither what was acknowledged (%s) nor that with %+v (%s)", diff, op, other)
		}
	}
	for _, kind := range []api.Kind{api.KindGate, api.KindRollback} {
		for _, name := range []string{"default", "promotion"} {
			k := api.Key{Kind: kind, Namespace: "prod", Name: fmt.Sprint("web", canary), Gate: name}
			s := m[k]
			s.waits, s.waiting = b.Visit(k)
			m[k] = s
		}
	}
	return m
}
