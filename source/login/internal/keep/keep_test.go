package keep_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source/login/internal/keep"
)

// A shop issues numbers, one after the other.
type shop struct {
	keep.Keep[int]
	clock time.Time
	sold  int
}

func newShop() *shop {
	s := &shop{clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.Now = func() time.Time { return s.clock }
	return s
}

// get returns what is kept for key, or else something new that lives for life, 0 for no known end.
func (s *shop) get(t *testing.T, key string, life time.Duration) (int, func()) {
	t.Helper()
	n, forget, err := s.Get(t.Context(), key, func(context.Context) (int, time.Time, error) {
		s.sold++
		if life == 0 {
			return s.sold, time.Time{}, nil
		}
		return s.sold, s.clock.Add(life), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, forget
}

func TestLife(t *testing.T) {
	for life, kept := range map[time.Duration]time.Duration{
		time.Hour: 48 * time.Minute, 10 * time.Minute: 8 * time.Minute, 24 * time.Hour: time.Hour, 0: 0, -time.Hour: 0,
	} {
		s := newShop()
		s.get(t, "a", life)
		if kept > 0 {
			s.clock = s.clock.Add(kept - time.Second)
			if n, _ := s.get(t, "a", life); n != 1 {
				t.Errorf("%s of life: not kept for %s", life, kept)
			}
			s.clock = s.clock.Add(time.Second)
		}
		if n, _ := s.get(t, "a", life); n != 2 {
			t.Errorf("%s of life: still kept after %s", life, kept)
		}
	}
}

func TestForget(t *testing.T) {
	s := newShop()
	_, first := s.get(t, "a", time.Hour)
	first()
	n, second := s.get(t, "a", time.Hour)
	first() // is not about the second
	if again, _ := s.get(t, "a", time.Hour); n != 2 || again != 2 {
		t.Errorf("got %d, then %d", n, again)
	}
	second()
	second()
	if n, _ := s.get(t, "a", time.Hour); n != 3 {
		t.Errorf("got %d", n)
	}
}

func TestBound(t *testing.T) {
	s := newShop()
	for i := range 3 * keep.Max {
		s.get(t, fmt.Sprint(i), time.Hour+time.Duration(i)) // the first ones expire first
	}
	for i := 2 * keep.Max; i < 3*keep.Max; i++ {
		s.get(t, fmt.Sprint(i), time.Hour)
	}
	if s.sold != 3*keep.Max {
		t.Errorf("sold %d: the last %d were not kept", s.sold, keep.Max)
	}
	if s.get(t, "0", time.Hour); s.sold != 3*keep.Max+1 {
		t.Error("more was kept")
	}
}

func TestFailuresAreNotKept(t *testing.T) {
	s := newShop()
	gone := errors.New("sold out")
	if _, _, err := s.Get(t.Context(), "a", func(context.Context) (int, time.Time, error) { return 0, time.Time{}, gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
	if n, _ := s.get(t, "a", time.Hour); n != 1 {
		t.Errorf("got %d", n)
	}
}

// Who waits for another's request ends with his own context, and asks himself when the other failed.
func TestWaiting(t *testing.T) {
	s := newShop()
	began, end := make(chan bool), make(chan error)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _, err := s.Get(t.Context(), "a", func(context.Context) (int, time.Time, error) {
			close(began)
			return 0, time.Time{}, <-end
		})
		if err == nil {
			t.Error("no error")
		}
	})
	<-began
	if n, _ := s.get(t, "b", time.Hour); n != 1 {
		t.Error("another key waits")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	_, _, err := s.Get(ctx, "a", nil)
	if err == nil || err.Error() != "given up" {
		t.Errorf("while waiting: %v", err)
	}
	wg.Go(func() {
		if n, _, err := s.Get(t.Context(), "a", func(context.Context) (int, time.Time, error) { return 7, time.Time{}, nil }); n != 7 || err != nil {
			t.Errorf("after the other's failure: %d, %v", n, err)
		}
	})
	end <- errors.New("failed")
}

// A request that never ends holds up nobody else for longer than Patience.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k keep.Keep[int]
		issued := 0
		get := func() (int, error) {
			n, _, err := k.Get(t.Context(), "a", func(context.Context) (int, time.Time, error) {
				issued++
				return issued, time.Now().Add(time.Hour), nil
			})
			return n, err
		}
		end := make(chan error)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := k.Get(t.Context(), "a", func(context.Context) (int, time.Time, error) { return 0, time.Time{}, <-end })
			if err == nil {
				t.Error("the stalled request: no error")
			}
		})
		synctest.Wait()
		for range 3 { // the first waits, the others find what it got
			if n, err := get(); n != 1 || err != nil {
				t.Errorf("beside a request that stalls: %d, %v", n, err)
			}
		}
		end <- errors.New("failed")
		wg.Wait()
		if n, err := get(); n != 1 || err != nil {
			t.Errorf("after it: %d, %v", n, err)
		}
	})
}

func TestMany(t *testing.T) {
	var k keep.Keep[string]
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			key := fmt.Sprint(i % 150)
			v, forget, err := k.Get(t.Context(), key, func(context.Context) (string, time.Time, error) { return key, time.Now().Add(time.Hour), nil })
			if v != key || err != nil {
				t.Errorf("%s: %s, %v", key, v, err)
			}
			forget()
		})
	}
	wg.Wait()
}
