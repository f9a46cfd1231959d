package gate_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

func issue(t *testing.T, b *gate.Store, ttl time.Duration) (approve, reject string) {
	t.Helper()
	approve, reject, _, err := b.Issue(key, ttl, "me")
	must(t, err)
	return approve, reject
}

// checkInvalidLink checks that a link does not work, for a reason.
func checkInvalidLink(t *testing.T, b *gate.Store, secret, reason string) {
	t.Helper()
	before := b.Gate(key)
	_, err := b.Inspect(secret)
	_, err2 := b.Redeem(secret, "eve", "")
	for _, err := range []error{err, err2} {
		if !errors.Is(err, gate.ErrLink) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want %q", err, reason)
		}
	}
	if after := b.Gate(key); after.Open != before.Open || after.Changed != before.Changed {
		t.Errorf("it did something: %v", after)
	}
}

// TestLinks shows that a link works once, and survives a restart.
func TestLinks(t *testing.T) {
	c := gate.Config{Dir: t.TempDir()}
	b := open(t, c)
	if _, _, _, err := b.Issue(key, 0, "me"); !errors.Is(err, gate.ErrInvalid) || !strings.Contains(err.Error(), "no revision is waiting") {
		t.Errorf("no revision is waiting: %v", err)
	}
	check(b, key, "a")
	approve, reject := issue(t, b, 0)
	again, _ := issue(t, b, 0)
	b.Close()
	b = open(t, c)
	for range 3 { // looking changes nothing
		ticket, err := b.Inspect(approve)
		if err != nil || ticket.Key != key || ticket.Action != "open" || ticket.Checksum != "a" || time.Until(ticket.Expires).Round(time.Hour) != 24*time.Hour {
			t.Fatalf("%v %v", ticket, err)
		}
		if ticket, err := b.Inspect(reject); err != nil || ticket.Action != "reject" {
			t.Fatalf("%v %v", ticket, err)
		}
	}
	if b.Gate(key).Open {
		t.Error("looking opened it")
	}
	g, err := b.Redeem(approve, "ann", "looks good")
	if err != nil || !g.Open || g.Mode != api.Bound || g.Checksum != "a" || g.Actor != "ann" || g.Reason != "looks good" {
		t.Fatalf("%v %v", g, err)
	}
	testenv.Equal(t, check(b, key, "b")+check(b, key, "a"), "nopass", "checks")
	for _, secret := range []string{approve, reject, again} {
		checkInvalidLink(t, b, secret, "was used")
	}
	b.Close()
	b = open(t, c)
	checkInvalidLink(t, b, approve, "was used")

	check(b, key, "b")
	_, reject = issue(t, b, 0)
	if g, err := b.Redeem(reject, "bob", ""); err != nil || g.Open || check(b, rollbackKey, "a") != "no" || check(b, rollbackKey, "b") != "pass" {
		t.Errorf("reject: %v %v", g, err)
	}
	checkInvalidLink(t, b, reject, "was used")

	check(b, key, "c")
	approve, _ = issue(t, b, 0)
	check(b, key, "d")
	checkInvalidLink(t, b, approve, "another revision waits")
	check(b, key, "c")
	b.Change("close", key, api.Change{})
	checkInvalidLink(t, b, approve, "there was another decision")
	if e := b.Audit(api.Filter{Limit: 2}, nil); e[1].Action != "link" || e[1].Actor != "me" || e[1].Checksum != "c" {
		t.Errorf("audit: %v", e)
	}

	check(b, key, "") // a canary without a checksum is approved once
	approve, _ = issue(t, b, 0)
	if g, err := b.Redeem(approve, "", ""); err != nil || g.Mode != api.OneShot || check(b, key, "") != "pass" || check(b, key, "") != "no" {
		t.Errorf("without a checksum: %v %v", g, err)
	}
	approve, _ = issue(t, b, 0)
	b.EndWaits(key.Namespace, key.Name, api.Key{})
	checkInvalidLink(t, b, approve, "no revision is waiting")
}

// TestLinkTime shows that links expire.
func TestLinkTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, gate.Config{Idle: time.Hour})
		check(b, key, "a")
		approve, reject := issue(t, b, time.Minute)
		time.Sleep(59 * time.Second)
		if _, err := b.Inspect(approve); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		checkInvalidLink(t, b, approve, "its time was over")
		checkInvalidLink(t, b, reject, "its time was over")
		for _, ttl := range []time.Duration{-1, time.Millisecond, 7*24*time.Hour + 1} {
			if _, _, _, err := b.Issue(key, ttl, ""); !errors.Is(err, gate.ErrInvalid) {
				t.Errorf("%s: %v", ttl, err)
			}
		}
	})
}

// TestLinkForgery changes every byte of a link, and uses it at another test runner.
func TestLinkForgery(t *testing.T) {
	b, other := open(t, gate.Config{}), open(t, gate.Config{})
	check(b, key, "a")
	check(other, key, "a")
	approve, reject := issue(t, b, 0)
	raw, err := base64.RawURLEncoding.DecodeString(approve)
	must(t, err)
	for i := range raw {
		forged := append([]byte(nil), raw...)
		forged[i] ^= 1
		checkInvalidLink(t, b, base64.RawURLEncoding.EncodeToString(forged), "damaged")
	}
	for _, secret := range []string{"", "x", approve[:40], approve + "A", approve + "=", " " + approve, reject + approve, strings.Repeat("A", 5000)} {
		checkInvalidLink(t, b, secret, "damaged")
	}
	checkInvalidLink(t, other, approve, "another test runner")
	if _, err := b.Redeem(approve, "a\nb", ""); !errors.Is(err, gate.ErrInvalid) {
		t.Errorf("actor: %v", err)
	}
	if _, err := b.Redeem(approve, "", ""); err != nil {
		t.Errorf("what was not changed: %v", err)
	}
}
