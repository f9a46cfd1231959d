package gate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// TestBounds shows that the number of known gates is bounded (S-17).
func TestBounds(t *testing.T) {
	const most = 100
	config := gate.Config{Dir: t.TempDir(), MaxKeys: most}
	b := open(t, config)
	named := func(i int) api.Key { k := key; k.Name = fmt.Sprint("n", i); return k }
	for i := range 5000 {
		check(b, named(i), "a")
	}
	if n := len(b.List(api.Filter{})); n != most || b.Gate(named(0)).Waiting == nil || b.Gate(named(4999)).Waiting != nil {
		t.Errorf("%d are known", n)
	}
	var err error
	opened := 0
	for i := 0; err == nil && i < 2*most; i++ {
		if _, err = b.Change("open", named(20000+i), api.Change{}); err == nil {
			opened++
		}
	}
	if !errors.Is(err, gate.ErrInvalid) || opened != most {
		t.Errorf("%d were opened: %v", opened, err)
	}
	if _, err := b.Change("close", named(30000), api.Change{}); err != nil || b.Audit(api.Filter{}, nil)[0].Action != "close" {
		t.Errorf("closing needs no room: %v", err)
	}
	if _, err := b.Change("reject", named(30001), api.Change{Checksum: "a"}); !errors.Is(err, gate.ErrInvalid) {
		t.Errorf("rejecting without room: %v", err)
	}
	must(t, b.Close())
	b = open(t, config)
	if n := len(b.List(api.Filter{})); n != 2*most || check(b, named(20000), "a") != "pass" {
		t.Errorf("%d are known after a restart", n)
	}
}

// TestFiles shows the errors of directories that cannot be used.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "state")
	b := open(t, gate.Config{Dir: dir})
	if info, err := os.Stat(filepath.Join(dir, "gates.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, err := gate.Open(gate.Config{Dir: dir}); !errors.Is(err, gate.ErrInUse) || !strings.Contains(err.Error(), "another test runner uses "+dir) {
		t.Errorf("in use: %v", err)
	}
	b.Close()
	if _, err := b.Change("open", key, api.Change{}); !errors.Is(err, gate.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for name, text := range map[string]string{"garbage": strings.Repeat("garbage ", 4000), "short": "x"} {
		path := filepath.Join(dir, "gates.db")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := gate.Open(gate.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := gate.Open(gate.Config{Dir: filepath.Join(dir, "gates.db")}); err == nil {
		t.Error("a file is a directory")
	}
}

// TestFull shows that changes are refused while the disk is full, that the state stays as
// it was, and that changes are accepted again when there is room.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, gate.Config{Dir: t.TempDir()})
		synctest.Wait() // after the first tick, which would repeat the failed write
		testenv.Equal(t, b.Ready(), nil)
		b.Change("open", key, api.Change{Mode: api.OneShot})
		other := key
		other.Gate = "other"
		var err error
		b.SetDiskFull(true)
		for i := 0; err == nil && i < 5000; i++ {
			k := key
			k.Name = fmt.Sprint(i)
			_, err = b.Change("open", k, api.Change{})
		}
		if err == nil || errors.Is(err, gate.ErrInvalid) || !strings.Contains(err.Error(), "gates.db") {
			t.Fatalf("full: %v", err)
		}
		if got := b.Ready(); got == nil || got.Error() != err.Error() {
			t.Errorf("full: %v, not %v", got, err)
		}
		before, audit := b.Gate(key), len(b.Audit(api.Filter{Limit: 1000}, nil))
		if got := check(b, key, "a"); got == "pass" || got == "no" {
			t.Errorf("a one-shot gate was used without a record: %s", got)
		}
		if _, err := b.Change("open", other, api.Change{}); err == nil {
			t.Error("opened")
		}
		if got := check(b, other, "a"); got != "no" || b.Gate(key) != before || len(b.Audit(api.Filter{Limit: 1000}, nil)) != audit {
			t.Errorf("it changed: %s %v %v", got, b.Gate(key), before)
		}
		b.SetDiskFull(false)
		time.Sleep(2 * time.Second) // without a caller
		testenv.Equal(t, b.Ready(), nil, "with room")
		b.Close()
		if err := b.Ready(); !errors.Is(err, gate.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		testenv.Equal(t, check(b, key, "a"), gate.ErrClosed.Error(), "a one-shot gate was used after the end")
	})
}

// TestUnconfirmedWrite shows that a change is refused if the disk did not confirm its write, although it
// is in the file. After the next change, some seconds or an orderly end the file is without it.
func TestUnconfirmedWrite(t *testing.T) {
	other := key
	other.Gate = "other"
	for name, next := range map[string]func(*gate.Store) error{
		"a change":     func(b *gate.Store) error { _, err := b.Change("close", other, api.Change{}); return err },
		"some seconds": func(b *gate.Store) error { time.Sleep(20 * time.Second); return nil },
		"the end":      func(b *gate.Store) error { return nil },
	} {
		for _, writes := range []int{1, 2} { // the second write is a repair, which restores the state
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				b := open(t, gate.Config{Dir: dir})
				b.Change("open", other, api.Change{Mode: api.Bound, Checksum: "a", Reason: "before"})
				b.FailAfterCommit(writes)
				if _, err := b.Change("open", key, api.Change{Reason: "refused"}); err == nil {
					t.Fatal("opened")
				}
				synctest.Wait()
				if err := next(b); err != nil && writes == 1 {
					t.Error(err)
				}
				left := b.Gate(other)
				if err := b.Close(); err != nil && (name != "the end" || writes == 1) {
					t.Error(err)
				}
				b = open(t, gate.Config{Dir: dir})
				defer b.Close()
				if g := b.Gate(key); g.Open || g.Reason != "" || b.Gate(other) != left {
					t.Errorf("%s: %+v, %+v", name, g, b.Gate(other))
				}
				for _, e := range b.Audit(api.Filter{}, nil) {
					if e.Reason == "refused" {
						t.Errorf("%s: %+v", name, e)
					}
				}
				if _, err := b.Change("open", key, api.Change{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestInvalidStoredValues opens files with values that this version never writes.
func TestInvalidStoredValues(t *testing.T) {
	for name, test := range map[string]struct{ bucket, key, value, want string }{
		"gate":     {"gates", "gate\x00prod\x00web\x00default", `{"open":true}`, "move it away"},
		"no JSON":  {"gates", "gate\x00prod\x00web\x00default", `{`, "move it away"},
		"key":      {"gates", "gate", `{}`, "move it away"},
		"kind":     {"gates", "door\x00prod\x00web\x00default", `{}`, "move it away"},
		"wait":     {"gates", "gate\x00prod\x00web\x00default", `{"waiting":[]}`, "move it away"},
		"entry":    {"audit", "12345678", `{"id":1}`, "move it away"},
		"format":   {"meta", "format", `2`, "use the version that wrote it"},
		"link key": {"meta", "link-key", `x`, "move it away"},
	} {
		dir := t.TempDir()
		must(t, open(t, gate.Config{Dir: dir}).Close())
		path := filepath.Join(dir, "gates.db")
		db, err := bbolt.Open(path, 0o600, nil)
		must(t, err)
		err = db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(test.bucket)).Put([]byte(test.key), []byte(test.value))
		})
		must(t, err)
		db.Close()
		for range 2 { // and the lock is free again
			if _, err := gate.Open(gate.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\x00") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

var must = testenv.Must
