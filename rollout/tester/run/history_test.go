package run_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/internal/store"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

func shutdown(t *testing.T, d *run.Runner) {
	t.Helper()
	must(t, d.Shutdown(t.Context()))
}

// A new process knows the runs of the old one, and still gives undelivered verdicts.
func TestRestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := run.Config{Dir: t.TempDir()}
		d, good, bad := open(t, c), &countingTask{duration: time.Second}, &countingTask{duration: time.Second, err: exit(3)}
		load := request("load")
		load.FailOnError = true
		undelivered := wait(t, d, request("owed"), bad)
		delivered := wait(t, d, request("told"), good)
		d.Deliver(delivered.ID)
		failed := start(t, d, load, bad)
		time.Sleep(time.Minute)
		running := start(t, d, request("under way"), &countingTask{duration: time.Hour})
		before := d.Runs(api.Filter{}, nil)
		shutdown(t, d)

		d = open(t, c)
		after := d.Runs(api.Filter{}, nil)
		if len(after) != 4 || len(before) != 4 {
			t.Fatalf("%d runs, then %d", len(before), len(after))
		}
		for i := range after[1:] {
			if a, b := fmt.Sprintf("%+v", after[i+1]), fmt.Sprintf("%+v", before[i+1]); a[:100] != b[:100] || after[i+1].Output != "" {
				t.Errorf("got  %s\nwant %s", a, b)
			}
		}
		checkState(t, after[0], api.Stopped)
		if got := lookUp(t, d, running.ID); got.Reason != "the test runner was shut down" || got.Output != "working\n" {
			t.Errorf("got %+v", got)
		}
		got := wait(t, d, request("owed"), bad)
		if got.ID != undelivered.ID || got.Output != "working\n" || *got.ExitCode != 3 {
			t.Errorf("got %+v", got)
		}
		if got := start(t, d, load, bad); got.ID != failed.ID || got.State != api.Failed || got.Output != "working\n" {
			t.Errorf("got %+v", got)
		}
		bad.checkStarts(t, 2)
		d.Deliver(undelivered.ID)
		d.Deliver(failed.ID)
		shutdown(t, d)

		d = open(t, c)
		wait(t, d, request("owed"), bad)
		wait(t, d, request("told"), good)
		checkState(t, start(t, d, load, bad), api.Running)
		bad.checkStarts(t, 4)
		good.checkStarts(t, 2)
		if ids := d.Runs(api.Filter{}, nil); len(ids) != 7 || !slices.IsSortedFunc(ids, func(a, b api.Run) int { return strings.Compare(b.ID, a.ID) }) {
			t.Errorf("got %d runs, not sorted", len(ids))
		}
	})
}

func TestHistoryIsPrivateAndOfOneProcess(t *testing.T) {
	c := run.Config{Dir: filepath.Join(t.TempDir(), "a", "b")}
	d := open(t, c)
	info, err := os.Stat(filepath.Join(c.Dir, "runs.db"))
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := run.Open(c); !errors.Is(err, store.ErrInUse) {
		t.Errorf("got %v", err)
	}
	shutdown(t, d)
	shutdown(t, open(t, c))
}

// A history that cannot be read does not prevent opening the runner.
func TestDamagedHistoryIsSetAside(t *testing.T) {
	intact := func() []byte {
		c := run.Config{Dir: t.TempDir()}
		d := open(t, c)
		wait(t, d, request("a"), &countingTask{})
		shutdown(t, d)
		text, err := os.ReadFile(filepath.Join(c.Dir, "runs.db"))
		must(t, err)
		return text
	}()
	for name, damage := range map[string]func([]byte) []byte{
		"cut":           func(b []byte) []byte { return b[:len(b)/2+1] },
		"no database":   func([]byte) []byte { return []byte(strings.Repeat("what is this?\n", 1000)) },
		"metas zeroed":  func(b []byte) []byte { clear(b[:2*os.Getpagesize()]); return b },
		"pages zeroed":  func(b []byte) []byte { clear(b[2*os.Getpagesize():]); return b },
		"short":         func([]byte) []byte { return []byte("x") },
		"pages of ones": func(b []byte) []byte { copy(b[2*os.Getpagesize():], bytes.Repeat([]byte{255}, len(b))); return b },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var warned []error
			c := run.Config{Dir: dir, Warn: func(err error) { warned = append(warned, err) }}
			for n := 1; n <= 2; n++ {
				must(t, os.WriteFile(filepath.Join(dir, "runs.db"), damage(bytes.Clone(intact)), 0o600))
				d := open(t, c)
				aside := filepath.Join(dir, "runs.db.corrupt")
				if _, err := os.Stat(aside); err != nil {
					t.Error(err)
				}
				if len(warned) != n || !errors.Is(warned[n-1], store.ErrDamaged) || !strings.Contains(warned[n-1].Error(), aside) {
					t.Errorf("warned of %v", warned)
				}
				if err := d.Ready(); err != nil || len(d.Runs(api.Filter{}, nil)) != 0 {
					t.Errorf("ready: %v", err)
				}
				wait(t, d, request("b"), &countingTask{})
				shutdown(t, d)
			}
		})
	}
}

func TestRetention(t *testing.T) {
	for name, dir := range map[string]string{"in memory": "", "on disk": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := run.Config{Dir: dir, Keep: 3, KeepFor: time.Hour}
				d := open(t, c)
				running := start(t, d, request("under way"), &countingTask{duration: 30 * time.Minute})
				var ids []string
				for i := range 5 {
					ids = append(ids, wait(t, d, request(fmt.Sprint(i)), &countingTask{}).ID)
				}
				for i, id := range ids {
					if _, err := d.Run(id); (err == nil) != (i >= 2) || err != nil && !errors.Is(err, run.ErrNotFound) {
						t.Errorf("run %d: %v", i, err)
					}
					if err := d.Output(t.Context(), id, true, io.Discard); (err == nil) != (i >= 2) {
						t.Errorf("output of run %d: %v", i, err)
					}
				}
				if got := d.Runs(api.Filter{}, nil); len(got) != 4 || got[3].ID != running.ID {
					t.Errorf("got %+v", got)
				}
				if dir != "" {
					shutdown(t, d)
					d = open(t, c)
					testenv.Equal(t, len(d.Runs(api.Filter{}, nil)), 3)
				}
				time.Sleep(time.Hour + time.Second)
				if got := d.Runs(api.Filter{}, nil); len(got) != 0 && dir != "" || len(got) > 1 {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

// Without a directory only the output of the newest runs is kept.
func TestOutputInMemoryIsBounded(t *testing.T) {
	measure.WithoutRace(t)
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{OutputLimit: 8 << 20})
		var ids []string
		for i := range 10 {
			ids = append(ids, wait(t, d, request(fmt.Sprint(i)), writeTask(strings.Repeat("x", 8<<20))).ID)
		}
		for i, id := range ids {
			got := lookUp(t, d, id)
			if i < 2 && (got.Output != "\n[8388608 bytes left out]\n" || !got.Truncated) || i >= 2 && len(got.Output) != 8<<20 {
				t.Errorf("run %d: %d bytes, truncated %t", i, len(got.Output), got.Truncated)
			}
		}
	})
}

func TestRunsAreSelected(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{})
		var ids []string
		for i := range 6 {
			r := request(fmt.Sprint(i))
			r.Namespace, r.Name, r.Type = []string{"prod", "test"}[i%2], []string{"app", "web", "db"}[i%3], []string{"bash", "helm"}[i/3]
			w := &countingTask{duration: time.Second}
			if i == 4 {
				w.err = exit(1)
			}
			ids = append(ids, wait(t, d, r, w).ID)
		}
		for want, f := range map[string]api.Filter{
			"543210": {}, "420": {Namespace: "prod"}, "": {Namespace: "pro"}, "41": {Name: "web"}, "543": {Type: "helm"}, "4": {State: api.Failed}, "54": {Limit: 2}, "32": {Limit: 2, Before: ids[4]},
		} {
			got := ""
			for _, r := range d.Runs(f, nil) {
				got += fmt.Sprint(slices.Index(ids, r.ID)) + r.Output
			}
			testenv.Equal(t, got, want, "%+v", f)
		}
	})
}

func TestIDs(t *testing.T) {
	d := open(t, run.Config{})
	last := ""
	for i := range 100 {
		id := start(t, d, request(fmt.Sprint(i)), &countingTask{}).ID
		if id <= last || len(id) != 24 || strings.Trim(id, "0123456789abcdefghijklmnopqrstuv") != "" {
			t.Errorf("%s after %s", id, last)
		}
		last = id
	}
	for _, id := range []string{"", "x", last[1:], last + "0", "../" + last, strings.ToUpper(last), "000000000000000000000000"} {
		if _, err := d.Run(id); !errors.Is(err, run.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
