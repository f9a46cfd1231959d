package serve_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// An object whose URL is mended while it waits for a slot waits for its new
// host, and the slot that it gets is that host's.
func TestHostChangesInLine(t *testing.T) {
	for name, urls := range map[string][]string{
		"once":         {"https://good.example/x"},
		"back":         {"https://good.example/x", "https://bad.example/y"},
		"back and off": {"https://good.example/x", "https://bad.example/y", "https://good.example/x"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.PerHost = 1
				a, b := repo("a", "https://bad.example/a", time.Hour), repo("b", "https://bad.example/b", time.Hour)
				r.feed.now.Objects = []source.Object{a, b}
				r.start()
				defer r.stop()
				r.up(a.Spec.URL).set(func(u *upstream) { u.hang = 20 * time.Second })
				r.Request(named("a"), serve.Request)
				synctest.Wait()
				r.Request(named("b"), serve.Request)
				for _, url := range urls {
					r.feed.put(serve.Desired{Objects: []source.Object{a, repo("b", url, time.Hour)}})
				}
				settle()
				v, _ := r.View(named("b"))
				if ran, want := v.Phase == serve.Idle && v.Last.Number >= 2, urls[len(urls)-1] == "https://good.example/x"; ran != want {
					t.Errorf("%s: %+v", v.Phase, v)
				}
				time.Sleep(time.Minute)
				for range 2 { // slots are neither lost nor won
					r.Request(named("a"), serve.Request)
					r.Request(named("b"), serve.Request)
					time.Sleep(time.Minute)
				}
				if s := r.Stats(); s.Running+s.Queued != 0 || s.Idle != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Twenty hosts that stall do not hold up another one, not even before the first
// of their requests timed out, and whoever comes first.
func TestStalledHostsAtStart(t *testing.T) {
	for name, later := range map[string]time.Duration{"at once": 0, "later": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var bad, good []source.Object
				for i := range 320 {
					url := fmt.Sprintf("https://bad%d.example/%d", i%20, i)
					r.up(url).hang = time.Hour
					bad = append(bad, repo(fmt.Sprint("bad", i), url, time.Minute))
				}
				for i := range 100 {
					url := fmt.Sprint("https://good.example/", i)
					r.up(url).hang = 100 * time.Millisecond
					good = append(good, repo(fmt.Sprint("good", i), url, time.Minute))
				}
				if r.feed.now.Objects = bad; later == 0 {
					r.feed.now.Objects = append(bad, good...)
				}
				r.start()
				defer r.stop()
				if later != 0 {
					time.Sleep(later)
					r.feed.put(serve.Desired{Objects: append(bad, good...)})
				}
				time.Sleep(10 * time.Second)
				stored := 0
				for _, run := range r.took() {
					if run.Object.Name[0] == 'g' && run.Result.Outcome == source.Stored {
						stored++
					}
				}
				if stored != 100 {
					t.Errorf("%d of 100 objects of a host that answers ran in 10 s", stored)
				}
			})
		})
	}
}

// A host whose last run failed has its turn however much others want.
func TestDoubtfulHostHasItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Runs, r.PerHost = 2, 2
		r.up(site).err = errors.New("connection refused")
		r.feed.now.Objects = []source.Object{repo("doubtful", site, time.Hour)}
		for i := range 60 {
			r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("r", i), fmt.Sprint("https://two.example/", i), time.Hour))
		}
		r.start()
		defer r.stop()
		r.took()
		for i := range 60 {
			r.up(fmt.Sprint("https://two.example/", i)).set(func(u *upstream) { u.hang = time.Second })
			r.Request(named(fmt.Sprint("r", i)), serve.Request)
		}
		run, err := r.Request(named("doubtful"), serve.Request)
		if err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		if _, err := r.Wait(t.Context(), named("doubtful"), run); err != nil || time.Since(asked) > 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(asked))
		}
	})
}

// A host that answers again is not held up by those that do not.
func TestHostRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Runs, r.PerHost = 8, 4
		url := func(name string, i int) string { return fmt.Sprintf("https://%s%d.example/%d", name, i, i) }
		add := func(name, url string) {
			r.up(url).err = errors.New("connection refused")
			r.feed.now.Objects = append(r.feed.now.Objects, repo(name, url, time.Hour))
		}
		for i := range 4 {
			add(fmt.Sprint("bad", i), url("bad", i))
		}
		for i := range 5 {
			add(fmt.Sprint("good", i), fmt.Sprint("https://good.example/", i))
		}
		r.start()
		defer r.stop()
		time.Sleep(time.Minute)
		for i := range 4 {
			r.up(url("bad", i)).set(func(u *upstream) { u.hang = time.Hour })
		}
		for i := range 5 {
			r.up(fmt.Sprint("https://good.example/", i)).set(func(u *upstream) { u.err, u.hang = nil, time.Second })
		}
		r.took()
		for _, name := range []string{"bad0", "bad1", "bad2", "good0", "bad3", "good1", "good2", "good3", "good4"} {
			r.Request(named(name), serve.Request)
		}
		time.Sleep(10 * time.Second)
		if runs := r.took(); len(runs) != 5 {
			t.Errorf("%d runs: %s", len(runs), order(runs))
		}
	})
}

// A place in the line of a host that an object had once gives it no slot of the
// host that it has now.
func TestPlaceOfFormerHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.PerHost = 1
		a, b, c := repo("a", "https://one.example/a", time.Hour), repo("b", "https://one.example/b", time.Hour), repo("c", "https://good.example/c", time.Hour)
		r.feed.now.Objects = []source.Object{a, b, c}
		r.start()
		defer r.stop()
		r.up(a.Spec.URL).set(func(u *upstream) { u.hang = 20 * time.Second })
		r.up(c.Spec.URL).set(func(u *upstream) { u.hang = 50 * time.Second })
		for _, name := range []string{"a", "c", "b"} {
			r.Request(named(name), serve.Request)
		}
		r.feed.put(serve.Desired{Objects: []source.Object{a, repo("b", "https://good.example/b", time.Hour), c}})
		time.Sleep(30 * time.Second)
		if v, _ := r.View(named("b")); v.Phase != serve.Queued {
			t.Errorf("%s beside another of its host", v.Phase)
		}
		time.Sleep(30 * time.Second)
		if v, _ := r.View(named("b")); v.Phase != serve.Idle || v.Last.Number != 2 {
			t.Errorf("%s after run %d", v.Phase, v.Last.Number)
		}
	})
}
