package serve_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// At the end runs are interrupted, and nothing is recorded of them.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Runs, r.Fetches = 3, 2
		for i := range 20 {
			url := fmt.Sprintf("https://h%d.example/", i)
			if i%2 == 0 {
				r.up(url).hang = time.Minute - time.Second
			} else {
				r.up(url).slow = time.Minute - time.Second
			}
			r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("r", i), url, time.Hour))
		}
		r.start()
		r.stop()
		if runs := r.took(); len(runs) != 0 {
			t.Errorf("%+v", runs)
		}
		for _, v := range r.Views() {
			if v.Phase == serve.Running || v.Last.Number != 0 || len(v.Object.Common().Conditions) != 0 {
				t.Errorf("%+v", v)
			}
		}
		if s := r.Stats(); s.Running != 0 || s.Fetching != 0 {
			t.Errorf("%+v", s)
		}
		if err := r.Run(t.Context()); err == nil {
			t.Error("it ran twice")
		}
	})
}

func TestFeedError(t *testing.T) {
	for name, c := range map[string]serve.Feed{
		"error": feedFunc(func(ctx context.Context, set func(serve.Desired)) error {
			set(serve.Desired{Objects: []source.Object{repo("a", site, time.Hour)}})
			pause(ctx, time.Minute)
			return errors.New("the directory is gone")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.up(site).hang = time.Hour
				r.Feed = c
				if err := newServer(t, r.Config).Run(t.Context()); err == nil {
					t.Error("no error")
				}
			})
		})
	}
}

type feedFunc func(context.Context, func(serve.Desired)) error

func (f feedFunc) Follow(ctx context.Context, set func(serve.Desired)) error { return f(ctx, set) }

// A feed that has said all it has to say ends nothing.
func TestFeedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Feed = feedFunc(func(_ context.Context, set func(serve.Desired)) error {
			set(serve.Desired{Objects: []source.Object{repo("a", site, time.Minute)}})
			return nil
		})
		r.start()
		defer r.stop()
		time.Sleep(time.Hour)
		if n := len(r.took()); n < 55 {
			t.Errorf("%d runs", n)
		}
	})
}

// The date may be anything: due times do not know it.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		off := time.Duration(0)
		r.Now = func() time.Time {
			r.mu.Lock()
			defer r.mu.Unlock()
			return time.Now().Add(off)
		}
		r.feed.now.Objects = []source.Object{repo("a", site, time.Minute), repo("old", site, time.Minute)}
		r.start()
		defer r.stop()
		r.feed.put(serve.Desired{Objects: r.feed.now.Objects[:1]})
		for i := range 20 {
			r.mu.Lock()
			off = time.Duration(i%3-1) * 365 * 24 * time.Hour
			r.mu.Unlock()
			time.Sleep(time.Minute)
			v, _ := r.View(named("a"))
			if in := v.Next.Sub(time.Now().Add(off)); in < 0 || in > 63*time.Second {
				t.Errorf("due in %s", in)
			}
		}
		runs := r.took()
		if len(runs) < 20 || len(runs) > 23 {
			t.Errorf("%d runs", len(runs))
		}
		for _, run := range runs {
			if late := run.Started.Sub(run.Due); late < 0 || late > time.Second {
				t.Errorf("%+v", run)
			}
		}
		if v, err := r.View(named("old")); err != nil || v.Phase != serve.Removed {
			t.Errorf("%+v %v", v, err)
		}
	})
}
