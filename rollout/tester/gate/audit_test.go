package gate_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

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
