package gate_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

var (
	key         = api.Key{Kind: api.KindGate, Namespace: "prod", Name: "web", Gate: "default"}
	rollbackKey = api.Key{Kind: api.KindRollback, Namespace: "prod", Name: "web", Gate: "default"}
)

func open(t *testing.T, c gate.Config) *gate.Store {
	t.Helper()
	b, err := gate.Open(c)
	must(t, err)
	t.Cleanup(func() { testenv.Equal(t, b.Close(), nil) })
	return b
}

// check checks a gate and returns "pass", "no" or the text of the error.
func check(b *gate.Store, k api.Key, checksum string) string {
	answer, err := b.Check(k, gate.CheckRequest{Phase: "Waiting", Checksum: checksum})
	switch {
	case err != nil:
		return err.Error()
	case answer.Open:
		return "pass"
	}
	return "no"
}

// TestModes shows the results of checks with several checksums, in order, for each mode: in
// memory, on disk, and with the store reopened before each check.
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
		for _, storage := range []string{"memory", "disk", "reopened"} {
			t.Run(name+"/"+storage, func(t *testing.T) {
				c := gate.Config{}
				if storage != "memory" {
					c.Dir = t.TempDir()
				}
				b := open(t, c)
				var err error
				if test.change.Reason != "none" {
					_, err = b.Change("open", key, test.change)
				}
				if test.change.Reason == "close" {
					_, err = b.Change("close", key, api.Change{})
				}
				must(t, err)
				var got []string
				for _, one := range strings.Fields(test.checks) {
					if storage == "reopened" {
						must(t, b.Close())
						b = open(t, c)
					}
					sum, _, _ := strings.Cut(one, ":")
					got = append(got, sum+":"+check(b, key, strings.Trim(sum, "-")))
				}
				testenv.Equal(t, strings.Join(got, " "), test.checks)
			})
		}
	}
}

// TestInvalid shows that the error of an invalid change names the wrong field.
func TestInvalid(t *testing.T) {
	b := open(t, gate.Config{})
	with := func(change func(*api.Key)) api.Key { k := key; change(&k); return k }
	for want, do := range map[string]func() error{
		"kind": func() error {
			_, err := b.Change("open", with(func(k *api.Key) { k.Kind = "x" }), api.Change{})
			return err
		},
		"namespace: ": func() error {
			_, err := b.Change("open", with(func(k *api.Key) { k.Namespace = strings.Repeat("x", 254) }), api.Change{})
			return err
		},
		"name: ": func() error {
			_, err := b.Change("close", with(func(k *api.Key) { k.Name = "\xff" }), api.Change{})
			return err
		},
		"gate: ": func() error {
			_, err := b.Check(with(func(k *api.Key) { k.Gate = "a\x00b" }), gate.CheckRequest{})
			return err
		},
		"gate: \"..\"": func() error {
			_, err := b.Check(with(func(k *api.Key) { k.Gate = ".." }), gate.CheckRequest{})
			return err
		},
		"phase: ":                     func() error { _, err := b.Check(key, gate.CheckRequest{Phase: strings.Repeat("x", 300)}); return err },
		"checksum: it has":            func() error { _, err := b.Check(key, gate.CheckRequest{Checksum: "\x1b[2J"}); return err },
		"mode: \"once\"":              func() error { _, err := b.Change("open", key, api.Change{Mode: "once"}); return err },
		"checksum: no revision waits": func() error { _, err := b.Change("open", key, api.Change{Mode: api.Bound}); return err },
		"checksum: it requires": func() error {
			_, err := b.Change("open", key, api.Change{Mode: api.OneShot, Checksum: "a"})
			return err
		},
		"ttl: \"soon\"": func() error { _, err := b.Change("open", key, api.Change{TTL: "soon"}); return err },
		"ttl are of":    func() error { _, err := b.Change("close", key, api.Change{TTL: "5"}); return err },
		"action \"x\"":  func() error { _, err := b.Change("x", key, api.Change{}); return err },
		"actor: ":       func() error { _, err := b.Change("close", key, api.Change{Actor: "a\nb"}); return err },
		"reason: ": func() error {
			_, err := b.Change("close", key, api.Change{Reason: strings.Repeat("x", 1001)})
			return err
		},
		"checksum: no revision is waiting": func() error { _, err := b.Change("reject", key, api.Change{}); return err },
		"kind: a rollback":                 func() error { _, err := b.Change("reject", rollbackKey, api.Change{Checksum: "a"}); return err },
	} {
		err := do()
		if !errors.Is(err, gate.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\x1b\n\x00") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if gates, entries := b.List(api.Filter{}), b.Audit(api.Filter{}, nil); len(gates)+len(entries) != 0 {
		t.Errorf("left behind: %v %v", gates, entries)
	}
}

// TestKeys shows that different keys never name the same gate (S-16, S-7), and that a
// payload may leave out every part.
func TestKeys(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir()})
	for _, k := range []api.Key{
		{Kind: api.KindRollback, Name: "x"}, {Kind: api.KindGate, Name: "a.b", Namespace: "c"},
		{Kind: api.KindGate}, {Kind: api.KindGate, Namespace: "n", Name: "m", Gate: "g/h"},
	} {
		if _, err := b.Change("open", k, api.Change{}); err != nil {
			t.Error(err)
		}
	}
	for k, want := range map[api.Key]string{
		{Kind: api.KindGate, Name: "rollback.x"}: "no", {Kind: api.KindGate, Name: "x"}: "no", {Kind: api.KindRollback, Name: "x"}: "pass",
		{Kind: api.KindGate, Name: "a", Namespace: "b.c"}: "no", {Kind: api.KindGate, Name: "a.b", Namespace: "c", Gate: "default"}: "pass",
		{Kind: api.KindGate}: "pass", {Kind: api.KindRollback}: "no", {Kind: api.KindGate, Gate: "promotion"}: "no",
		{Kind: api.KindGate, Namespace: "n", Name: "m", Gate: "g/h"}: "pass",
	} {
		testenv.Equal(t, check(b, k, "a"), want, k)
	}
	check(b, api.Key{Kind: api.KindGate, Namespace: "shop"}, "a")
	for _, g := range b.List(api.Filter{Waiting: true}) {
		if g.Name == "" {
			t.Errorf("%v waits without a name", g.Key)
		}
	}
}

// TestReject shows that a rejection closes a gate and asks for the rollback of the revision that
// waits there, and of no other.
func TestReject(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir()})
	promotion := key
	promotion.Gate = "promotion"
	b.Change("open", promotion, api.Change{Mode: api.Bound, Checksum: "z"})
	check(b, promotion, "a")
	g, err := b.Change("reject", promotion, api.Change{Actor: "eve", Reason: "too slow"})
	if err != nil || g.Open || g.Actor != "eve" || g.Key != promotion {
		t.Fatalf("%v %v", g, err)
	}
	if g.Waiting != nil || b.Gate(promotion).Waiting != nil {
		t.Errorf("who is rejected waits: %v", g.Waiting)
	}
	for sum, want := range map[string]string{"a": "pass", "b": "no", "": "no"} {
		testenv.Equal(t, check(b, rollbackKey, sum), want, "rollback of %q", sum)
	}
	var actions []string
	for _, e := range b.Audit(api.Filter{}, nil) {
		actions = append(actions, e.String()+" "+e.Action+" "+string(e.Mode)+" "+e.Checksum+" "+e.Actor+" "+e.Reason)
	}
	want := []string{"gate prod/web/promotion reject checksum a eve too slow", "rollback prod/web/default open checksum a eve too slow", "gate prod/web/promotion open checksum z  "}
	want[0] = "gate prod/web/promotion reject  a eve too slow"
	testenv.Equal(t, actions, want, "audit")
	// An older caller sends no checksum.
	check(b, key, "")
	if _, err := b.Change("reject", key, api.Change{}); err != nil {
		t.Fatal(err)
	}
	testenv.Equal(t, check(b, rollbackKey, "")+check(b, rollbackKey, ""), "passno", "rollback without checksum")
}

// TestAudit pages through the audit trail, which is bounded and survives the process.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	b := open(t, gate.Config{Dir: dir, Audit: 20})
	for i := range 60 {
		k := key
		k.Name = fmt.Sprint("web", i%2)
		if _, err := b.Change("open", k, api.Change{Actor: "me", Reason: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		check(b, key, "refused checks are no entries")
	}
	entries := b.Audit(api.Filter{Limit: 1000}, nil)
	if len(entries) < 20 || len(entries) > 25 || entries[0].ID != 60 || entries[0].Reason != "59" || entries[0].Actor != "me" {
		t.Errorf("%d entries, %v", len(entries), entries[0])
	}
	page := b.Audit(api.Filter{Name: "web1", Limit: 3}, nil)
	next := b.Audit(api.Filter{Name: "web1", Limit: 3, Before: fmt.Sprint(page[2].ID)}, nil)
	if page[2].ID != 56 || next[0].ID != 54 || len(b.Audit(api.Filter{Before: "x"}, nil))+len(b.Audit(api.Filter{Kind: api.KindRollback}, nil)) != 0 {
		t.Errorf("pages %v %v", page, next)
	}
	b.Close()
	b = open(t, gate.Config{Dir: dir, Audit: 20})
	if again := b.Audit(api.Filter{}, nil); len(again) != 20 || !reflect.DeepEqual(again[0], entries[0]) {
		t.Errorf("after a restart: %d, %v", len(again), again[0])
	}
	b.Change("close", key, api.Change{})
	testenv.Equal(t, b.Audit(api.Filter{}, nil)[0].ID, 61, "numbers go on with")
}
