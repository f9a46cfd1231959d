package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// An issuer issues numbers, one after the other.
type issuer struct {
	exchange.Credentials
	clock  time.Time
	issued int
}

func newIssuer() *issuer {
	s := &issuer{clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.Now = func() time.Time { return s.clock }
	return s
}

// get returns what is kept for key, or else something new that lives for life, 0 for no known end.
func (s *issuer) get(t *testing.T, key string, life time.Duration) (token string, refused func()) {
	t.Helper()
	c, err := s.Get(t.Context(), key, func(context.Context) (source.Credential, error) {
		s.issued++
		c := source.Credential{Token: fmt.Sprint(s.issued)}
		if life != 0 {
			c.Expires = s.clock.Add(life)
		}
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.Token, c.Refused
}

func TestLife(t *testing.T) {
	for life, kept := range map[time.Duration]time.Duration{
		time.Hour: 48 * time.Minute, 10 * time.Minute: 8 * time.Minute, 24 * time.Hour: time.Hour, 0: 0, -time.Hour: 0,
	} {
		s := newIssuer()
		s.get(t, "a", life)
		if kept > 0 {
			s.clock = s.clock.Add(kept - time.Second)
			if n, _ := s.get(t, "a", life); n != "1" {
				t.Errorf("%s of life: not kept for %s", life, kept)
			}
			s.clock = s.clock.Add(time.Second)
		}
		if n, _ := s.get(t, "a", life); n != "2" {
			t.Errorf("%s of life: still kept after %s", life, kept)
		}
	}
}

func TestForget(t *testing.T) {
	s := newIssuer()
	_, first := s.get(t, "a", time.Hour)
	first()
	n, second := s.get(t, "a", time.Hour)
	first() // is not about the second
	if again, _ := s.get(t, "a", time.Hour); n != "2" || again != "2" {
		t.Errorf("got %s, then %s", n, again)
	}
	second()
	second()
	if n, _ := s.get(t, "a", time.Hour); n != "3" {
		t.Errorf("got %s", n)
	}
}

func TestBound(t *testing.T) {
	s := newIssuer()
	for i := range 3 * exchange.MaxCredentials {
		s.get(t, fmt.Sprint(i), time.Hour+time.Duration(i)) // the first ones expire first
	}
	for i := 2 * exchange.MaxCredentials; i < 3*exchange.MaxCredentials; i++ {
		s.get(t, fmt.Sprint(i), time.Hour)
	}
	if s.issued != 3*exchange.MaxCredentials {
		t.Errorf("issued %d: the last %d were not kept", s.issued, exchange.MaxCredentials)
	}
	if s.get(t, "0", time.Hour); s.issued != 3*exchange.MaxCredentials+1 {
		t.Error("more was kept")
	}
}

// A caller that waits for another's request ends with its own context, and sends its own request when the other failed.
func TestWaiting(t *testing.T) {
	s := newIssuer()
	began, end := make(chan bool), make(chan error)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, err := s.Get(t.Context(), "a", func(context.Context) (source.Credential, error) {
			close(began)
			return source.Credential{}, <-end
		})
		if err == nil {
			t.Error("no error")
		}
	})
	<-began
	if n, _ := s.get(t, "b", time.Hour); n != "1" {
		t.Error("another key waits")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	_, err := s.Get(ctx, "a", nil)
	if err == nil || err.Error() != "given up" {
		t.Errorf("while waiting: %v", err)
	}
	wg.Go(func() {
		if c, err := s.Get(t.Context(), "a", func(context.Context) (source.Credential, error) { return source.Credential{Token: "7"}, nil }); c.Token != "7" || err != nil {
			t.Errorf("after the other's failure: %s, %v", c.Token, err)
		}
	})
	end <- errors.New("failed")
}

// A request that never ends holds up nobody else for longer than Patience.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k exchange.Credentials
		issued := 0
		get := func() (string, error) {
			c, err := k.Get(t.Context(), "a", func(context.Context) (source.Credential, error) {
				issued++
				return source.Credential{Token: fmt.Sprint(issued), Expires: time.Now().Add(time.Hour)}, nil
			})
			return c.Token, err
		}
		end := make(chan error)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := k.Get(t.Context(), "a", func(context.Context) (source.Credential, error) { return source.Credential{}, <-end })
			if err == nil {
				t.Error("the stalled request: no error")
			}
		})
		synctest.Wait()
		for range 3 { // the first waits, the others find what it got
			if n, err := get(); n != "1" || err != nil {
				t.Errorf("beside a request that stalls: %s, %v", n, err)
			}
		}
		end <- errors.New("failed")
		wg.Wait()
		if n, err := get(); n != "1" || err != nil {
			t.Errorf("after it: %s, %v", n, err)
		}
	})
}
