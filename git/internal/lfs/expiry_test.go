package lfs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/internal/testenv"
)

// Links that have expired are asked for again, up to a point.
func TestExpiry(t *testing.T) {
	for name, row := range map[string]struct {
		edit    func(*testenv.LFSAction)
		times   int // how many links are edited
		batches int
		say     string
	}{
		"expired":          {func(a *testenv.LFSAction) { a.ExpiresIn = -1 }, 2, 2, ""},
		"expired by date":  {func(a *testenv.LFSAction) { a.ExpiresAt = "2029-12-31T23:59:59Z" }, 2, 2, ""},
		"seconds decide":   {func(a *testenv.LFSAction) { a.ExpiresAt, a.ExpiresIn = "2000-01-01T00:00:00Z", 600 }, 2, 1, ""},
		"not yet":          {func(a *testenv.LFSAction) { a.ExpiresAt = "2030-01-01T01:00:00+00:00" }, 2, 1, ""},
		"no date":          {func(a *testenv.LFSAction) { a.ExpiresAt = "0001-01-01T00:00:00Z" }, 2, 1, ""},
		"some date":        {func(a *testenv.LFSAction) { a.ExpiresAt = "tomorrow" }, 2, 1, ""},
		"one of them":      {func(a *testenv.LFSAction) { a.ExpiresIn = -5 }, 1, 2, ""},
		"always expired":   {func(a *testenv.LFSAction) { a.ExpiresIn = -1 << 40 }, 1 << 30, 3, "expired 3 times"},
		"expires too soon": {func(a *testenv.LFSAction) { a.ExpiresIn = 1 }, 1 << 30, 3, "clocks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			s := newStage(t, &testenv.LFS{Edit: edit(func(a *testenv.LFSAction) {
				if n++; n <= row.times {
					row.edit(a)
				}
			})})
			got, err := s.fill(t.Context())
			if row.say == "" {
				s.good(got, err)
			} else if err == nil || !strings.Contains(err.Error(), row.say) {
				t.Errorf("%v, want %s", err, row.say)
			}
			if n := s.count(testenv.LFSBatch); n != row.batches {
				t.Errorf("%d batches, want %d", n, row.batches)
			}
		})
	}
}

// A link may expire on its way: who is refused looks at the clock again.
func TestExpiryOnTheWay(t *testing.T) {
	s := newStage(t, &testenv.LFS{Edit: edit(func(a *testenv.LFSAction) { a.ExpiresIn = 60 })})
	delete(s.files, "b.bin")
	refused := answer(testenv.LFSObject, 403, ``)
	refused.Times = 1
	s.server.Break(refused)
	s.client.Now = func() time.Time {
		if s.count(testenv.LFSObject) > 0 {
			return s.clock.Add(time.Hour)
		}
		return s.clock
	}
	if got, err := s.fill(t.Context()); err != nil || got["a.bin"] != "content of a" || s.count(testenv.LFSBatch) != 2 {
		t.Errorf("%v, %q", err, got)
	}
}

// The endpoint is looked for again once what it granted has expired.
func TestEndpointExpiry(t *testing.T) {
	for in, want := range map[time.Duration]int{time.Hour: 1, time.Second: 2} {
		s := newStage(t, new(testenv.LFS))
		for i := range 150 {
			s.files[fmt.Sprint(i, ".bin")] = &fstest.MapFile{Data: []byte(s.objects.Add(fmt.Sprint(i)))}
		}
		found, n := s.client.Endpoint, 0
		s.client.Endpoint = func(ctx context.Context) (lfs.Endpoint, error) {
			n++
			at, err := found(ctx)
			at.Expires = s.now().Add(in)
			return at, err
		}
		s.good(s.fill(t.Context()))
		if n != want {
			t.Errorf("expires in %v: asked %d times for the endpoint, want %d", in, n, want)
		}
	}
	s := newStage(t, new(testenv.LFS))
	lost := errors.New("lost")
	s.client.Endpoint = func(context.Context) (lfs.Endpoint, error) { return lfs.Endpoint{}, lost }
	if _, err := s.fill(t.Context()); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
}
