package gate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// TestBounds forgets what does not count, and refuses what would have no end (S-17).
func TestBounds(t *testing.T) {
	const most = 100
	dir := t.TempDir()
	at := new(clock)
	at.set(time.Now())
	config := gate.Config{Dir: dir, MaxKeys: most, Now: at.now}
	b := open(t, config)
	named := func(i int) api.Key { k := key; k.Name = fmt.Sprint("n", i); return k }
	for i := range 5000 {
		at.set(at.now().Add(time.Millisecond))
		check(b, named(i), "a")
		check(b, named(0), "a")
	}
	if b.Known() > most || b.Gate(named(0)).Waiting == nil || b.Gate(named(4999)).Waiting == nil || b.Gate(named(1)).Waiting != nil {
		t.Errorf("%d are known", b.Known())
	}
	for i := range 150 {
		at.set(at.now().Add(time.Millisecond))
		b.Open(named(10000+i), api.Change{})
		if _, err := b.Shut(named(10000+i), api.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	if b.Known() > most || b.Gate(named(10000+149)).Changed.IsZero() {
		t.Errorf("%d are known with closed ones", b.Known())
	}
	var err error
	opened := 0
	for i := 0; err == nil && i < 2*most; i++ {
		if _, err = b.Open(named(20000+i), api.Change{}); err == nil {
			opened++
		}
	}
	if !errors.Is(err, gate.ErrInvalid) || opened != most {
		t.Errorf("%d were opened: %v", opened, err)
	}
	if _, err := b.Shut(named(30000), api.Change{}); err != nil {
		t.Errorf("closing needs no room: %v", err)
	}
	if _, err := b.Reject(named(30001), api.Change{Checksum: "a"}); !errors.Is(err, gate.ErrInvalid) {
		t.Errorf("rejecting without room: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, config)
	if known := b.Known(); known > most {
		t.Errorf("%d are known after a restart", known)
	}
	if got := check(b, named(20000), "a"); got != "pass" {
		t.Errorf("an open gate was forgotten: %s", got)
	}
}

// TestFiles opens directories that cannot be used, and says why.
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
	if _, err := b.Open(key, api.Change{}); !errors.Is(err, gate.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for name, text := range map[string]string{"garbage": strings.Repeat("garbage ", 4000), "short": "x"} {
		path := filepath.Join(dir, "gates.db")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := gate.Open(gate.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := gate.Open(gate.Config{Dir: filepath.Join(dir, "gates.db")}); err == nil {
		t.Error("a file is a directory")
	}
}

// TestFull refuses changes that cannot be written, and leaves everything as it was.
func TestFull(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir()})
	b.Open(key, api.Change{Mode: api.OneShot})
	other := key
	other.Gate = "other"
	var err error
	b.Fill(true)
	for i := 0; err == nil && i < 5000; i++ {
		k := key
		k.Name = fmt.Sprint(i)
		_, err = b.Open(k, api.Change{})
	}
	if err == nil || errors.Is(err, gate.ErrInvalid) || !strings.Contains(err.Error(), "gates.db") {
		t.Fatalf("full: %v", err)
	}
	before, audit := b.Gate(key), len(b.Audit(api.Filter{Limit: 1000}))
	if got := check(b, key, "a"); got == "pass" || got == "no" {
		t.Errorf("a one-shot gate was used without a record: %s", got)
	}
	if _, err := b.Open(other, api.Change{}); err == nil {
		t.Error("opened")
	}
	if got := check(b, other, "a"); got != "no" || b.Gate(key) != before || len(b.Audit(api.Filter{Limit: 1000})) != audit {
		t.Errorf("it changed: %s %v %v", got, b.Gate(key), before)
	}
}
