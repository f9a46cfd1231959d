package run_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// crashDir is set for the process that TestCrash kills.
const crashDir = "HEADGATE_TEST_CRASH"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		crash(dir)
	}
	os.Exit(m.Run())
}

// settled is how many rounds of crash are on disk for certain.
const settled = 5

// crash starts and ends runs, and says what it did, until it is killed.
func crash(dir string) {
	c := run.Config{Dir: dir, Keep: 100_000, Concurrency: 100_000}
	d, err := run.Open(c)
	forever := task(func(ctx context.Context, _ io.Writer) error { <-ctx.Done(); return nil })
	for i := 0; err == nil; i++ {
		if i == settled {
			err = d.Shutdown(context.Background())
			d, _ = run.Open(c)
		}
		under, err1 := d.Start(request(fmt.Sprint("load ", i)), forever)
		owed, err2 := d.Wait(context.Background(), request(fmt.Sprint("test ", i)), &work{err: exit(1)})
		if i%2 == 1 {
			d.Deliver(owed.ID)
		}
		err = errors.Join(err, err1, err2)
		fmt.Println(under.ID, owed.ID)
		time.Sleep(time.Millisecond)
	}
	fmt.Println("error", err)
	os.Exit(1)
}

// said starts a process of crash, and kills it after it said what it did in so
// many rounds: the IDs of a run under way and of one that ended.
func said(t *testing.T, dir string, rounds int) (all [][2]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for lines := bufio.NewScanner(out); len(all) < rounds && lines.Scan(); {
		under, owed, ok := strings.Cut(lines.Text(), " ")
		if !ok || under == "error" {
			t.Fatal(lines.Text())
		}
		all = append(all, [2]string{under, owed})
	}
	return all
}

// A process that is killed loses what it did in its last moments, and nothing
// else: what was under way is lost, what was owed is owed.
func TestCrash(t *testing.T) {
	for round := range 3 {
		dir := t.TempDir()
		all := said(t, dir, 20+round*20)
		d := open(t, run.Config{Dir: dir, Keep: 100_000})
		lost := 0
		for i, ids := range all {
			want := api.Lost
			if i < settled {
				want = api.Stopped
			}
			under, err := d.Run(ids[0])
			owed, err2 := d.Run(ids[1])
			switch {
			case err != nil || err2 != nil || owed.State == api.Lost:
				lost++
			case lost > 0:
				t.Errorf("round %d of %d is there, one before it is not", i, len(all))
			case under.State != want || under.Reason == "" || under.Ended.IsZero():
				t.Errorf("under way: %+v", under)
			case owed.State != api.Failed || owed.Output != "working\n":
				t.Errorf("owed: %+v", owed)
			}
		}
		if lost > len(all)-settled {
			t.Errorf("%d of %d rounds are not found", lost, len(all))
		}
		w := &work{}
		if got := wait(t, d, request("test 0"), w); got.ID != all[0][1] {
			t.Errorf("got %+v, want %s", got, all[0][1])
		}
		if got := wait(t, d, request("test 1"), w); got.ID == all[1][1] {
			t.Error("a verdict that was delivered is given again")
		}
		t.Logf("the last %d of %d rounds are not found", lost, len(all))
		shutdown(t, d)
	}
}
