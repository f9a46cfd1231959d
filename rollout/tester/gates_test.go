package tester_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// TestRejectWhatWasSeen rejects the revision that somebody saw, when another
// waits by then: that one is not rolled back.
func TestRejectWhatWasSeen(t *testing.T) {
	d := openDoor(t, nil)
	d.post("/gate/check", canary("shop", `{}`)).is(t, "a check", 403, "")
	d.post(gatePath+"/reject", `{"checksum": "seen", "ttl": "1h", "reason": "errors"}`).is(t, "reject", 200, `"open":false`)
	rollback := d.state(api.KindRollback)
	if rollback.Checksum != "seen" || rollback.Expires.Sub(rollback.Changed) != time.Hour {
		t.Errorf("rolled back: %+v", rollback)
	}
	if w := d.state(api.KindGate).Waiting; w == nil || w.Checksum != "abc" {
		t.Errorf("the other waits no more: %+v", w)
	}
	d.post(gatePath+"/reject", `{"mode": "sticky"}`).is(t, "a mode of a rejection", 400, "mode")
	d.post(gatePath+"/close", `{"ttl": "1h"}`).is(t, "a time of a closing", 400, "ttl")
}

// TestOpenFromWebhook opens gates by payloads, which have a checksum whatever the mode.
func TestOpenFromWebhook(t *testing.T) {
	d := openDoor(t, nil)
	for mode, want := range map[string]string{"": "sticky ", "sticky": "sticky ", "one-shot": "one-shot ", "checksum": "checksum abc"} {
		body := strings.Replace(canary("shop", `{}`), "{", `{"mode": "`+mode+`", "ttl": "1h", `, 1)
		d.post("/gate/open", body).is(t, "open, mode "+mode, 202, "")
		if g := d.state(api.KindGate); string(g.Mode)+" "+g.Checksum != want {
			t.Errorf("mode %q: %+v", mode, g)
		}
		d.post("/gate/close", body).is(t, "close, mode "+mode, 202, "")
		if g := d.state(api.KindGate); g.Open {
			t.Errorf("mode %q: %+v", mode, g)
		}
	}
}
