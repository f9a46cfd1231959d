package serve_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

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

// restless is a feed that changes all the time.
type restless []source.Object

func (f restless) Follow(ctx context.Context, set func(serve.Desired)) error {
	for i := 0; ctx.Err() == nil; i++ {
		set(serve.Desired{Objects: f[i%len(f) : i%len(f)+1]})
	}
	return nil
}

// TestWatchBegins watches controllers while what there is to be changes.
func TestWatchBegins(t *testing.T) {
	store := newRig(t).Store
	var all sync.WaitGroup
	defer all.Wait()
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		c := newServer(t, serve.Config{
			Feed: restless{repo("a", site, time.Hour), repo("a", site, time.Minute)}, Statuses: new(memory), Store: store, Scrub: -1,
			Origin: func(source.Object, source.Env) (source.Origin, error) { return nil, fmt.Errorf("none") },
		})
		all.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			defer cancel()
			c.Watch(ctx, func([]serve.View) { cancel() })
		})
	}
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
