package serve_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		up := r.up(site)
		up.hang = time.Second
		base := repo("a", site, time.Minute)
		r.feed.now.Objects = []source.Object{base}
		r.start()
		defer r.stop()
		// The run under way ends first.
		if err := r.Suspend(named("a"), source.Suspension{By: "alice", Reason: "freeze"}); err != nil {
			t.Fatal(err)
		}
		if v, _ := r.View(named("a")); v.Phase != serve.Running {
			t.Errorf("%+v", v)
		}
		time.Sleep(time.Hour)
		v, _ := r.View(named("a"))
		if n := len(r.took()); n != 1 || v.Phase != serve.Suspended || v.Suspension == nil || v.Suspension.By != "alice" || v.Object.Artifact() == nil || !v.Next.IsZero() {
			t.Errorf("%d runs, %+v", n, v)
		}
		if _, err := r.Request(named("a"), serve.Request); !errors.Is(err, serve.ErrSuspended) {
			t.Errorf("request: %v", err)
		}
		if err := r.Suspend(named("a"), source.Suspension{By: "bob"}); err != nil {
			t.Error(err)
		}
		if v, _ := r.View(named("a")); v.Suspension.By != "bob" {
			t.Errorf("%+v", v)
		}
		r.feed.put(serve.Desired{Objects: []source.Object{repo("a", "https://one.example/b", time.Minute)}})
		if n := len(r.took()); n != 0 {
			t.Errorf("%d runs", n)
		}
		if err := r.Resume(named("a")); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if runs := r.took(); len(runs) != 1 || runs[0].Trigger != serve.Request {
			t.Errorf("%+v", runs)
		}
		for _, err := range []error{r.Suspend(named("b"), source.Suspension{}), r.Resume(named("b"))} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestSpecSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		off := repo("a", site, time.Minute)
		off.Spec.Suspend = true
		r.feed.now.Objects = []source.Object{off}
		r.start()
		defer r.stop()
		time.Sleep(time.Hour)
		if v, _ := r.View(named("a")); len(r.took()) != 0 || v.Phase != serve.Suspended || v.Suspension != nil {
			t.Errorf("%+v", v)
		}
		if err := r.Resume(named("a")); !errors.Is(err, serve.ErrSuspended) {
			t.Errorf("resume: %v", err)
		}
		r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, time.Minute)}})
		if runs := r.took(); len(runs) != 1 || runs[0].Trigger != serve.Spec {
			t.Errorf("%+v", runs)
		}
	})
}

// A suspension ends waiting, and frees who waits for what is suspended.
func TestSuspendBlocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Runs = 1
		r.up("https://two.example/hog").hang = 10 * time.Second
		r.feed.now.Objects = []source.Object{repo("hog", "https://two.example/hog", time.Hour)}
		r.start()
		defer r.stop()
		r.feed.put(serve.Desired{Objects: []source.Object{
			repo("hog", "https://two.example/hog", time.Hour), repo("base", site, time.Hour), repo("app", site, time.Hour, "base"),
		}})
		waited := make(chan error, 1)
		go func() {
			_, err := r.Wait(context.Background(), named("base"), 1)
			waited <- err
		}()
		synctest.Wait()
		if v, _ := r.View(named("app")); v.Phase != serve.Blocked {
			t.Errorf("%+v", v)
		}
		if err := r.Suspend(named("base"), source.Suspension{}); err != nil {
			t.Error(err)
		}
		if err := <-waited; !errors.Is(err, serve.ErrSuspended) {
			t.Errorf("wait: %v", err)
		}
		if v, _ := r.View(named("app")); v.Phase != serve.Queued {
			t.Errorf("%+v", v)
		}
		time.Sleep(time.Minute)
		if v, _ := r.View(named("app")); v.Last.Result.Outcome != source.Waiting {
			t.Errorf("%+v", v)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up(site).hang = time.Second
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
		r.start()
		if _, err := r.Wait(t.Context(), named("b"), 1); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := r.Wait(ctx, named("a"), 99); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		cancel()
		gone := make(chan error, 2)
		go func() {
			_, err := r.Wait(context.Background(), named("a"), 99)
			gone <- err
		}()
		synctest.Wait()
		r.feed.put(serve.Desired{})
		if err := <-gone; !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
		r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, time.Hour)}})
		go func() {
			_, err := r.Wait(context.Background(), named("a"), 99)
			gone <- err
		}()
		synctest.Wait()
		r.stop()
		if err := <-gone; err == nil {
			t.Error("no error after the end")
		}
	})
}

func TestRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", site, time.Minute)}
		r.start()
		defer r.stop()
		r.took()
		r.feed.put(serve.Desired{})
		time.Sleep(59 * time.Minute)
		v, err := r.View(named("a"))
		if err != nil || v.Phase != serve.Removed || v.Object.Artifact() == nil || len(r.took()) != 0 || len(r.Views()) != 1 || !v.Next.IsZero() {
			t.Errorf("%+v %v", v, err)
		}
		if _, err := r.Request(named("a"), serve.Request); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
		time.Sleep(2 * time.Minute)
		if v, err := r.View(named("a")); !errors.Is(err, fs.ErrNotExist) || len(r.Views()) != 0 {
			t.Errorf("%+v %v", v, err)
		}
	})
}
