package run

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/bolt"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

type said string

func (s said) Run(_ context.Context, out io.Writer) error {
	_, err := io.WriteString(out, string(s))
	return err
}

// A disk that fails holds nobody up; when it works again it is told all.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var warned []string
		d, err := Open(Config{Dir: dir, Warn: func(err error) { warned = append(warned, err.Error()) }})
		if err != nil {
			t.Fatal(err)
		}
		run := func(name string) string {
			got, err := d.Wait(t.Context(), Request{Name: name, Checksum: "c1"}, said(name))
			if err != nil || got.Output != name {
				t.Fatalf("got %+v, %v", got, err)
			}
			return got.ID
		}
		ids := []string{run("a")}
		synctest.Wait()
		if d.held != 1 { // it is likely to be asked for
			t.Errorf("%d bytes of a verdict that is owed are in memory", d.held)
		}
		d.Deliver(ids[0])
		if d.held != 0 {
			t.Errorf("%d bytes of output that is on disk are in memory", d.held)
		}
		d.history.file.close()
		ids = append(ids, run("b"))
		synctest.Wait()
		ids = append(ids, run("c"))
		time.Sleep(10 * time.Minute)
		if err := d.Ready(); err == nil || err.Error() != "history of runs: database not open" || len(warned) != 1 || warned[0] != err.Error() {
			t.Errorf("%v; warned of %q", err, warned)
		}
		if got, err := d.Run(ids[1]); err != nil || got.Output != "b" {
			t.Errorf("got %+v, %v", got, err)
		}
		synctest.Wait()
		mended, err := bolt.Open(filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		d.history.file.db = mended
		d.mu.Unlock()
		time.Sleep(time.Minute)
		if err := d.Ready(); err != nil {
			t.Error(err)
		}
		if err := d.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if d, err = Open(Config{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if got, err := d.Run(id); err != nil || got.Output != string(rune('a'+i)) {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		if err := d.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A process that cannot write its history says so when it ends.
func TestTroubleAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := Open(Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		d.history.file.close()
		if _, err := d.Start(Request{}, said("x")); err != nil {
			t.Fatal(err)
		}
		if err := d.Shutdown(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "history of runs: ") {
			t.Errorf("got %v", err)
		}
	})
}

// Records that nobody can read are removed, and the others are there.
func TestUnreadableRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		d, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Wait(t.Context(), Request{}, said("x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		for round, want := range []string{"history of runs: 2 of 3 records cannot be read and are removed", ""} {
			if round == 0 {
				f, err := tryFile(filepath.Join(dir, fileName))
				if err != nil {
					t.Fatal(err)
				}
				odd := stored{run: api.Run{ID: "../x", State: api.Failed}}
				future := stored{run: api.Run{ID: anID, State: "paused"}}
				if err := f.write([]stored{odd, future}, nil); err != nil {
					t.Fatal(err)
				}
				f.close()
			}
			warned := ""
			d, err := Open(Config{Dir: dir, Warn: func(err error) { warned = fmt.Sprint(err) }})
			if err != nil {
				t.Fatal(err)
			}
			if all := d.Runs(api.Filter{}); len(all) != 1 || all[0].ID != got.ID || warned != want {
				t.Errorf("got %+v, warned of %q", all, warned)
			}
			if err := d.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
