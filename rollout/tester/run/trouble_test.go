package run

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/internal/store"
)

type outputTask string

func (s outputTask) Run(_ context.Context, out io.Writer) error {
	_, err := io.WriteString(out, string(s))
	return err
}

// A failing disk delays no request. When it works again, everything is written.
func TestFailingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var warned []string
		d, err := Open(Config{Dir: dir, Warn: func(err error) { warned = append(warned, err.Error()) }})
		must(t, err)
		run := func(name string) string {
			got, err := d.Wait(t.Context(), Request{Name: name, Checksum: "c1"}, outputTask(name))
			if err != nil || got.Output != name {
				t.Fatalf("got %+v, %v", got, err)
			}
			return got.ID
		}
		ids := []string{run("a")}
		synctest.Wait()
		testenv.Equal(t, d.byID[ids[0]].output, "")
		d.file.Close()
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
		mended, err := bbolt.Open(filepath.Join(dir, fileName), 0o600, nil)
		must(t, err)
		d.mu.Lock()
		d.file.DB, d.file.Commit = mended, mended.Update
		d.mu.Unlock()
		time.Sleep(time.Minute)
		testenv.Equal(t, d.Ready(), nil)
		testenv.Equal(t, d.Shutdown(t.Context()), nil)
		if d, err = Open(Config{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if got, err := d.Run(id); err != nil || got.Output != string(rune('a'+i)) {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		d.file.Close()
		if _, err := d.Start(Request{}, outputTask("x")); err != nil {
			t.Fatal(err)
		}
		if err := d.Shutdown(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "history of runs: ") {
			t.Errorf("a history that cannot be written at the end: %v", err)
		}
	})
}

// Records that cannot be read are removed; the others are kept.
func TestUnreadableRecords(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(Config{Dir: dir})
	must(t, err)
	good, err := d.Wait(t.Context(), Request{}, outputTask("x"))
	must(t, err)
	for id, text := range map[string]string{"../x": `{"run":{"id":"../x","state":"failed"}}`, "y": "{", "z": `{"key":"00","run":{"id":"other"}}`} {
		must(t, d.file.Write([]store.Write{{Bucket: recordBucket, Key: []byte(id), Value: []byte(text)}}))
	}
	for _, want := range []string{"history of runs: 3 of 4 records cannot be read and are removed", ""} {
		must(t, d.Shutdown(t.Context()))
		warned := ""
		if d, err = Open(Config{Dir: dir, Warn: func(err error) { warned = err.Error() }}); err != nil {
			t.Fatal(err)
		}
		if all := d.Runs(api.Filter{}, nil); len(all) != 1 || all[0].ID != good.ID || warned != want {
			t.Errorf("%+v, warned of %q", all, warned)
		}
	}
	d.Shutdown(t.Context())
}

var must = testenv.Must
