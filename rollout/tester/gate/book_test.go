package gate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

var (
	key  = api.Key{Kind: api.KindGate, Namespace: "prod", Name: "web", Gate: "default"}
	undo = api.Key{Kind: api.KindRollback, Namespace: "prod", Name: "web", Gate: "default"}
)

func open(t *testing.T, c gate.Config) *gate.Book {
	t.Helper()
	b, err := gate.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// check asks and says "pass" or "no", or what was wrong.
func check(b *gate.Book, k api.Key, checksum string) string {
	ok, err := b.Check(k, gate.Visitor{Phase: "Waiting", Checksum: checksum})
	switch {
	case err != nil:
		return err.Error()
	case ok:
		return "pass"
	}
	return "no"
}

// TestModes is the table of modes: what checks with which checksums come to, in
// order, in memory, on disk, and when the book is opened anew before each.
func TestModes(t *testing.T) {
	for name, test := range map[string]struct {
		change api.Change
		checks string
	}{
		"sticky":                     {api.Change{}, "a:pass a:pass b:pass -:pass"},
		"sticky by name":             {api.Change{Mode: api.Sticky}, "a:pass b:pass"},
		"one-shot":                   {api.Change{Mode: api.OneShot}, "a:pass a:pass a:pass b:no a:no"},
		"one-shot, none in between":  {api.Change{Mode: api.OneShot}, "a:pass -:no a:pass b:no"},
		"one-shot, no checksum":      {api.Change{Mode: api.OneShot}, "-:pass -:no a:no"},
		"checksum":                   {api.Change{Mode: api.Bound, Checksum: "a"}, "b:no a:pass -:no b:no a:pass"},
		"checksum by default":        {api.Change{Checksum: "a"}, "b:no a:pass"},
		"closed":                     {api.Change{Reason: "close"}, "a:no -:no"},
		"sticky, nothing was opened": {api.Change{Reason: "none"}, "a:no -:no"},
	} {
		for _, place := range []string{"memory", "disk", "reopened"} {
			t.Run(name+"/"+place, func(t *testing.T) {
				c := gate.Config{}
				if place != "memory" {
					c.Dir = t.TempDir()
				}
				b := open(t, c)
				var err error
				if test.change.Reason != "none" {
					_, err = b.Open(key, test.change)
				}
				if test.change.Reason == "close" {
					_, err = b.Shut(key, api.Change{})
				}
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, one := range strings.Fields(test.checks) {
					if place == "reopened" {
						if err := b.Close(); err != nil {
							t.Fatal(err)
						}
						b = open(t, c)
					}
					sum, _, _ := strings.Cut(one, ":")
					got = append(got, sum+":"+check(b, key, strings.Trim(sum, "-")))
				}
				if strings.Join(got, " ") != test.checks {
					t.Errorf("got  %v\nwant %s", got, test.checks)
				}
			})
		}
	}
}

// TestInvalid checks that what cannot be made is refused with the field that is wrong.
func TestInvalid(t *testing.T) {
	b := open(t, gate.Config{})
	with := func(change func(*api.Key)) api.Key { k := key; change(&k); return k }
	for want, do := range map[string]func() error{
		"kind": func() error { _, err := b.Open(with(func(k *api.Key) { k.Kind = "x" }), api.Change{}); return err },
		"namespace: ": func() error {
			_, err := b.Open(with(func(k *api.Key) { k.Namespace = strings.Repeat("x", 254) }), api.Change{})
			return err
		},
		"name: ": func() error { _, err := b.Shut(with(func(k *api.Key) { k.Name = "\xff" }), api.Change{}); return err },
		"gate: ": func() error {
			_, err := b.Check(with(func(k *api.Key) { k.Gate = "a\x00b" }), gate.Visitor{})
			return err
		},
		"gate: \"..\"":                func() error { _, err := b.Check(with(func(k *api.Key) { k.Gate = ".." }), gate.Visitor{}); return err },
		"phase: ":                     func() error { _, err := b.Check(key, gate.Visitor{Phase: strings.Repeat("x", 300)}); return err },
		"checksum: it has":            func() error { _, err := b.Check(key, gate.Visitor{Checksum: "\x1b[2J"}); return err },
		"mode: \"once\"":              func() error { _, err := b.Open(key, api.Change{Mode: "once"}); return err },
		"checksum: no revision waits": func() error { _, err := b.Open(key, api.Change{Mode: api.Bound}); return err },
		"checksum: it goes with":      func() error { _, err := b.Open(key, api.Change{Mode: api.OneShot, Checksum: "a"}); return err },
		"ttl: \"soon\"":               func() error { _, err := b.Open(key, api.Change{TTL: "soon"}); return err },
		"ttl: it is":                  func() error { _, err := b.Shut(key, api.Change{TTL: "5"}); return err },
		"actor: ":                     func() error { _, err := b.Shut(key, api.Change{Actor: "a\nb"}); return err },
		"reason: ":                    func() error { _, err := b.Shut(key, api.Change{Reason: strings.Repeat("x", 1001)}); return err },
		"checksum: nobody waits":      func() error { _, err := b.Reject(key, api.Change{}); return err },
		"kind: a rollback":            func() error { _, err := b.Reject(undo, api.Change{Checksum: "a"}); return err },
	} {
		err := do()
		if !errors.Is(err, gate.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\x1b\n\x00") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if gates, entries := b.List(api.Filter{}), b.Audit(api.Filter{}); len(gates)+len(entries) != 0 {
		t.Errorf("left behind: %v %v", gates, entries)
	}
}

// TestKeys checks that nothing about a key is like another (S-16, S-7), and
// that a payload may leave everything out.
func TestKeys(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir()})
	for _, k := range []api.Key{
		{Kind: api.KindRollback, Name: "x"}, {Kind: api.KindGate, Name: "a.b", Namespace: "c"},
		{Kind: api.KindGate}, {Kind: api.KindGate, Namespace: "n", Name: "m", Gate: "g/h"},
	} {
		if _, err := b.Open(k, api.Change{}); err != nil {
			t.Error(err)
		}
	}
	for k, want := range map[api.Key]string{
		{Kind: api.KindGate, Name: "rollback.x"}: "no", {Kind: api.KindGate, Name: "x"}: "no", {Kind: api.KindRollback, Name: "x"}: "pass",
		{Kind: api.KindGate, Name: "a", Namespace: "b.c"}: "no", {Kind: api.KindGate, Name: "a.b", Namespace: "c", Gate: "default"}: "pass",
		{Kind: api.KindGate}: "pass", {Kind: api.KindRollback}: "no", {Kind: api.KindGate, Gate: "promotion"}: "no",
		{Kind: api.KindGate, Namespace: "n", Name: "m", Gate: "g/h"}: "pass",
	} {
		if got := check(b, k, "a"); got != want {
			t.Errorf("%v: %s, want %s", k, got, want)
		}
	}
}

// TestWaiting follows who waits: since when, until when, and across restarts.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := open(t, gate.Config{Dir: dir, Idle: time.Minute})
		start := time.Now().UTC()
		waits := func(want string) {
			t.Helper()
			got := "nobody"
			if w := b.Gate(key).Waiting; w != nil {
				got = fmt.Sprintf("%s %s since %s last %s", w.Checksum, w.Phase, w.Since.Sub(start), w.Last.Sub(start))
			}
			if got != want {
				t.Errorf("after %s: %s, want %s", time.Since(start), got, want)
			}
			if listed := len(b.List(api.Filter{Waiting: true})); (listed == 1) != (want != "nobody") {
				t.Errorf("after %s: %d are listed as waiting", time.Since(start), listed)
			}
		}
		waits("nobody")
		check(b, key, "a")
		waits("a Waiting since 0s last 0s")
		time.Sleep(30 * time.Second)
		check(b, key, "a")
		waits("a Waiting since 0s last 30s")
		time.Sleep(50 * time.Second)
		b.Check(key, gate.Visitor{Phase: "Progressing", Checksum: "a"})
		waits("a Progressing since 0s last 1m20s")
		time.Sleep(500 * time.Millisecond)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open(t, gate.Config{Dir: dir, Idle: time.Minute})
		waits("a Progressing since 0s last 1m20s")
		time.Sleep(500 * time.Millisecond)
		check(b, key, "b")
		waits("b Waiting since 1m21s last 1m21s")
		if _, err := b.Open(key, api.Change{Mode: api.Bound}); err != nil || b.Gate(key).Checksum != "b" {
			t.Errorf("bound to %q: %v", b.Gate(key).Checksum, err)
		}
		waits("nobody") // it is approved
		if _, err := b.Shut(key, api.Change{}); err != nil {
			t.Error(err)
		}
		waits("b Waiting since 1m21s last 1m21s")
		b.Open(key, api.Change{})
		check(b, key, "b")
		b.Shut(key, api.Change{})
		waits("nobody") // it went on
		check(b, key, "c")
		waits("c Waiting since 1m21s last 1m21s")
		time.Sleep(61 * time.Second)
		waits("nobody") // it gave up
		check(b, key, "c")
		waits("c Waiting since 2m22s last 2m22s")
		check(b, undo, "c")
		if g := b.Gate(undo); g.Waiting != nil {
			t.Errorf("waits for a rollback: %v", g)
		}
		b.Close()
		time.Sleep(2 * time.Minute)
		b = open(t, gate.Config{Dir: dir, Idle: time.Minute})
		waits("nobody")
	})
}

// TestTTL closes openings by the clock, whether somebody looks or not.
func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := open(t, gate.Config{Dir: dir})
		start := time.Now()
		changes := b.Watch(t.Context())
		g, err := b.Open(key, api.Change{TTL: "90", Mode: api.OneShot})
		if err != nil || !g.Expires.Equal(start.Add(90*time.Second)) {
			t.Fatalf("%v %v", g, err)
		}
		b.Open(undo, api.Change{TTL: "1h"})
		<-changes
		<-changes
		time.Sleep(89 * time.Second)
		if got := check(b, key, "a"); got != "pass" {
			t.Errorf("before: %s", got)
		}
		if g := <-changes; g.Checksum != "a" {
			t.Errorf("used: %v", g)
		}
		if g := <-changes; g.Open || time.Since(start) != 90*time.Second || g.Reason == "" || !g.Changed.Equal(start.Add(90*time.Second)) {
			t.Errorf("after %s: %v", time.Since(start), g)
		}
		if got := check(b, key, "a"); got != "no" {
			t.Errorf("after: %s", got)
		}
		if e := b.Audit(api.Filter{})[0]; e.Action != "expire" || e.Key != key || e.Mode != api.OneShot || e.Checksum != "a" {
			t.Errorf("audit: %v", e)
		}
		b.Close()
		if _, more := <-changes; more {
			t.Error("a watcher outlives the book")
		}
		time.Sleep(2 * time.Hour)
		b = open(t, gate.Config{Dir: dir})
		if got := check(b, undo, "a"); got != "no" {
			t.Errorf("after a restart: %s", got)
		}
		synctest.Wait()
		if e := b.Audit(api.Filter{})[0]; e.Action != "expire" || e.Key != undo {
			t.Errorf("audit after a restart: %v", e)
		}
	})
}

// A clock is one that tests set.
type clock struct{ at atomic.Pointer[time.Time] }

func (c *clock) set(at time.Time) { c.at.Store(&at) }
func (c *clock) now() time.Time   { return *c.at.Load() }

// TestClock takes the clock of the Config.
func TestClock(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := new(clock)
	at.set(start)
	b := open(t, gate.Config{Now: at.now})
	b.Open(key, api.Change{TTL: "1h"})
	for later, want := range map[time.Duration]string{0: "pass", time.Hour - 1: "pass", time.Hour: "no"} {
		at.set(start.Add(later))
		if got := check(b, key, "a"); got != want {
			t.Errorf("%s: %s", later, got)
		}
	}
}

// TestReject closes a gate and asks for the rollback of what waits there, and of nothing else.
func TestReject(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir()})
	promotion := key
	promotion.Gate = "promotion"
	b.Open(promotion, api.Change{Mode: api.Bound, Checksum: "z"})
	check(b, promotion, "a")
	g, err := b.Reject(promotion, api.Change{Actor: "eve", Reason: "too slow"})
	if err != nil || g.Open || g.Actor != "eve" || g.Key != promotion {
		t.Fatalf("%v %v", g, err)
	}
	if g.Waiting != nil || b.Gate(promotion).Waiting != nil {
		t.Errorf("who is rejected waits: %v", g.Waiting)
	}
	for sum, want := range map[string]string{"a": "pass", "b": "no", "": "no"} {
		if got := check(b, undo, sum); got != want {
			t.Errorf("rollback of %q: %s", sum, got)
		}
	}
	var actions []string
	for _, e := range b.Audit(api.Filter{}) {
		actions = append(actions, e.String()+" "+e.Action+" "+string(e.Mode)+" "+e.Checksum+" "+e.Actor+" "+e.Reason)
	}
	want := []string{"gate prod/web/promotion reject checksum a eve too slow", "rollback prod/web/default open checksum a eve too slow", "gate prod/web/promotion open checksum z  "}
	want[0] = "gate prod/web/promotion reject  a eve too slow"
	if !slices.Equal(actions, want) {
		t.Errorf("audit %q", actions)
	}
	// an older caller, which sends no checksum
	check(b, key, "")
	if _, err := b.Reject(key, api.Change{}); err != nil {
		t.Fatal(err)
	}
	if got := check(b, undo, "") + check(b, undo, ""); got != "passno" {
		t.Errorf("rollback without checksum: %s", got)
	}
}

// TestAudit pages through the trail, which is bounded and outlives the process.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	b := open(t, gate.Config{Dir: dir, Audit: 20})
	for i := range 60 {
		k := key
		k.Name = fmt.Sprint("web", i%2)
		if _, err := b.Open(k, api.Change{Actor: "me", Reason: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		check(b, key, "refused checks are no entries")
	}
	entries := b.Audit(api.Filter{Limit: 1000})
	if len(entries) < 20 || len(entries) > 25 || entries[0].ID != 60 || entries[0].Reason != "59" || entries[0].Actor != "me" {
		t.Errorf("%d entries, %v", len(entries), entries[0])
	}
	page := b.Audit(api.Filter{Name: "web1", Limit: 3})
	next := b.Audit(api.Filter{Name: "web1", Limit: 3, Before: fmt.Sprint(page[2].ID)})
	if page[2].ID != 56 || next[0].ID != 54 || len(b.Audit(api.Filter{Before: "x"}))+len(b.Audit(api.Filter{Kind: api.KindRollback})) != 0 {
		t.Errorf("pages %v %v", page, next)
	}
	b.Close()
	b = open(t, gate.Config{Dir: dir, Audit: 20})
	if again := b.Audit(api.Filter{}); len(again) != 20 || !reflect.DeepEqual(again[0], entries[0]) {
		t.Errorf("after a restart: %d, %v", len(again), again[0])
	}
	b.Shut(key, api.Change{})
	if e := b.Audit(api.Filter{})[0]; e.ID != 61 {
		t.Errorf("numbers go on with %d", e.ID)
	}
}

// TestBounds forgets what does not count, and refuses what would have no end (S-17).
func TestBounds(t *testing.T) {
	const most = 50
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
	for i := range 3 * most {
		at.set(at.now().Add(time.Millisecond))
		b.Open(named(10000+i), api.Change{})
		if _, err := b.Shut(named(10000+i), api.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	if b.Known() > 2*most || b.Gate(named(10000+3*most-1)).Changed.IsZero() {
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
	if known := b.Known(); known > 2*most {
		t.Errorf("%d are known after a restart", known)
	}
	if got := check(b, named(20000), "a"); got != "pass" {
		t.Errorf("an open gate was forgotten: %s", got)
	}
}

// TestFade forgets closed gates after a week.
func TestFade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, gate.Config{Dir: t.TempDir()})
		b.Shut(key, api.Change{})
		b.Open(undo, api.Change{})
		time.Sleep(6 * 24 * time.Hour)
		if n := len(b.List(api.Filter{})); n != 2 {
			t.Errorf("%d are left after six days", n)
		}
		time.Sleep(2 * 24 * time.Hour)
		if n := len(b.List(api.Filter{})); n != 1 || b.Known() != 1 {
			t.Errorf("%d are left after eight days", n)
		}
	})
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
	b.Fill()
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
