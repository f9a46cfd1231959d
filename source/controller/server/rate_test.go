package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
)

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := newRates(2)
		ask := func(from string) (after string) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = from
			r.Header.Set("X-Forwarded-For", fmt.Sprint("192.0.2.", time.Now().UnixNano()%250))
			w := httptest.NewRecorder()
			err := limits.check(w, r)
			if refusal, ok := errors.AsType[*answer.Refusal](err); ok != (err != nil) || ok && refusal.Status != http.StatusTooManyRequests {
				t.Errorf("%s: %v", from, err)
			}
			return w.Header().Get("Retry-After")
		}
		times := func(n int, from string) {
			t.Helper()
			for i := range n {
				if got := ask(from); got != "" {
					t.Fatalf("%s: request %d is refused for %s s", from, i, got)
				}
			}
		}
		times(8, "192.0.2.1:1000")
		if got := ask("192.0.2.1:2000"); got != "1" {
			t.Errorf("the ninth request at once: Retry-After %q", got)
		}
		times(8, "192.0.2.2:1000")
		times(8, "[2001:db8::1]:1000")
		if got := ask("[2001:db8::ffff:0:0:1]:1000"); got != "1" {
			t.Errorf("another address of the same /64: Retry-After %q", got)
		}
		times(8, "[2001:db8:0:1::1]:1000")
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			times(1, "192.0.2.1:1000")
		}
		if got := ask("192.0.2.1:2000"); got != "1" {
			t.Errorf("after 20 requests in 10 s: Retry-After %q", got)
		}
		time.Sleep(time.Hour)
		times(8, "192.0.2.1:1000")
	})
	if err := newRates(0).check(nil, nil); err != nil {
		t.Error(err)
	}
}

// TestManyAddresses bounds what addresses cost, whatever their number.
func TestManyAddresses(t *testing.T) {
	limits, now := newRates(1), time.Now()
	at := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	for i := range maxAddresses {
		limits.take(at(i), now)
	}
	for i := range rateBurst {
		if wait := limits.take(at(maxAddresses+i), now); wait > 0 {
			t.Errorf("beyond the bound, request %d: wait %s", i, wait)
		}
	}
	if wait := limits.take(at(maxAddresses+rateBurst), now); wait <= 0 || len(limits.full) != maxAddresses {
		t.Errorf("those beyond share a bucket: wait %s, %d addresses", wait, len(limits.full))
	}
	if wait := limits.take(at(0), now); wait > 0 {
		t.Errorf("an address that is known: wait %s", wait)
	}
	if wait := limits.take(at(maxAddresses), now.Add(time.Hour)); wait > 0 || len(limits.full) != 1 {
		t.Errorf("when all have been idle: wait %s, %d addresses", wait, len(limits.full))
	}
}
