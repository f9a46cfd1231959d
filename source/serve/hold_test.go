package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
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

func TestViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, name := range []string{"c", "a", "b"} {
			r.feed.now.Objects = append(r.feed.now.Objects, repo(name, site, time.Hour))
		}
		r.feed.now.Defects = []error{fmt.Errorf("a defect")}
		r.start()
		defer r.stop()
		var names string
		for _, v := range r.Views() {
			names += v.Object.Head().Metadata.Name
		}
		if names != "abc" || !r.Ready() || len(r.Defects()) != 1 {
			t.Errorf("%s %v", names, r.Defects())
		}
		before, _ := r.View(named("a"))
		copied := *before.Object.Common()
		r.up(site).set(func(u *upstream) { u.rev = "main@sha1:2222222222222222222222222222222222222222" })
		r.Request(named("a"), serve.Request)
		r.took()
		after, _ := r.View(named("a"))
		if before.Object.Artifact().Revision == after.Object.Artifact().Revision || copied.Artifact != before.Object.Artifact() || after.Last.Number != 2 {
			t.Errorf("a view changed: %+v", before)
		}
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Retention = time.Minute
		base := []source.Object{repo("a", site, time.Hour), repo("b", site, time.Hour)}
		r.feed.now.Objects = base
		r.start()
		ctx, cancel := context.WithCancel(t.Context())
		var told, slow []string
		tell := func(to *[]string, pause time.Duration) func([]serve.View) {
			return func(views []serve.View) {
				time.Sleep(pause)
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, v := range views {
					*to = append(*to, fmt.Sprint(v.Object.Head().Metadata.Name, v.Last.Number, v.Phase))
				}
			}
		}
		read := func(from *[]string) []string {
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			all := *from
			*from = nil
			return all
		}
		done := make(chan error, 2)
		go func() { done <- r.Watch(ctx, tell(&told, 0)) }()
		go func() { done <- r.Watch(ctx, tell(&slow, time.Hour)) }()
		if got := read(&told); !slices.Equal(got, []string{"a1idle", "b1idle"}) && !slices.Equal(got, []string{"b1idle", "a1idle"}) {
			t.Errorf("%v", got)
		}
		for range 100 {
			r.Request(named("a"), serve.Request)
			time.Sleep(time.Second)
		}
		if got := read(&told); len(got) != 100 || got[99] != "a101idle" {
			t.Errorf("%d: %v", len(got), got)
		}
		r.feed.put(serve.Desired{Objects: base[:1]})
		time.Sleep(2 * time.Minute)
		if got := read(&told); !slices.Equal(got, []string{"b1removed", "b1gone"}) {
			t.Errorf("%v", got)
		}
		time.Sleep(12 * time.Hour)
		if got := read(&slow); len(got) > 30 || !slices.Contains(got, "b1gone") {
			t.Errorf("slow: %v", got)
		}
		cancel()
		r.stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// A watcher that never returns from what it is told holds up nobody.
func TestWatchStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", site, time.Minute)}
		r.start()
		release := make(chan struct{})
		ended := make(chan error, 1)
		go func() { ended <- r.Watch(t.Context(), func([]serve.View) { <-release }) }()
		r.took()
		time.Sleep(time.Hour)
		if n := len(r.took()); n < 55 {
			t.Errorf("%d runs", n)
		}
		close(release)
		r.stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Views tell of a new artifact before the one that it replaces may be removed,
// which is after it was announced.
func TestViewsBeforePruning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		announced := 0
		r.Emit = func(e source.Event) {
			v, err := r.View(named("a"))
			if err != nil || e.Reason != "NewArtifact" {
				return
			}
			if announced++; announced == 2 && v.Object.Artifact().Digest != e.Metadata["source.toolkit.fluxcd.io/digest"] {
				t.Errorf("announced %v, and the view has %+v", e.Metadata, v.Object.Artifact())
			}
		}
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
		r.start()
		defer r.stop()
		r.took()
		r.up(site).set(func(u *upstream) { u.rev = "main@sha1:2222222222222222222222222222222222222222" })
		r.Request(named("a"), serve.Request)
		r.took()
		if announced != 2 {
			t.Errorf("announced %d times", announced)
		}
	})
}

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
