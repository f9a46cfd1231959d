package serve_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// order returns the names of the objects of runs.
func order(runs []serve.Run) string {
	var names []string
	for _, run := range runs {
		names = append(names, run.Object.Name)
	}
	return strings.Join(names, " ")
}

func TestInputsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up(site).hang = time.Second
		r.feed.now.Objects = []source.Object{
			repo("app", "https://two.example/app", time.Hour, "mid"),
			repo("mid", "https://two.example/mid", time.Hour, "base"),
			repo("base", site, time.Hour),
		}
		r.start()
		defer r.stop()
		for name, want := range map[string]string{"app": "[GitRepository/default/mid]", "mid": "[GitRepository/default/base]"} {
			if v, _ := r.View(named(name)); v.Phase != serve.Blocked || fmt.Sprint(v.Blockers) != want {
				t.Errorf("%s: %+v", name, v)
			}
		}
		time.Sleep(2 * time.Second)
		if got := order(r.took()); got != "base mid app" {
			t.Errorf("first runs: %s", got)
		}
		// A change below reaches what is above it at once.
		r.up(site).set(func(u *upstream) { u.rev = "main@sha1:2222222222222222222222222222222222222222" })
		r.Request(named("base"), serve.Hook)
		time.Sleep(2 * time.Second)
		runs := r.took()
		if got := order(runs); got != "base mid app" || runs[2].Trigger != serve.Input || runs[2].Result.Outcome != source.Stored {
			t.Errorf("%s: %+v", got, runs)
		}
		// A check that finds nothing new does not.
		r.Request(named("base"), serve.Hook)
		time.Sleep(2 * time.Second)
		if got := order(r.took()); got != "base" {
			t.Errorf("unchanged: %s", got)
		}
	})
}

// What is made of something that fails has a status that says so, and runs at
// once when it is there.
func TestInputLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up(site).err = errors.New("no")
		r.feed.now.Objects = []source.Object{repo("app", "https://two.example/app", time.Hour, "base"), repo("base", site, time.Hour)}
		r.start()
		defer r.stop()
		v, _ := r.View(named("app"))
		if v.Last.Result.Outcome != source.Waiting || !strings.Contains(v.Last.Err.Error(), "base") {
			t.Errorf("%+v", v)
		}
		time.Sleep(10 * time.Second)
		r.took()
		r.up(site).set(func(u *upstream) { u.err = nil })
		r.Request(named("base"), serve.Request)
		if runs := r.took(); order(runs) != "base app" || runs[1].Trigger != serve.Input || runs[1].Result.Outcome != source.Stored {
			t.Errorf("%+v", runs)
		}
	})
}

// What is made of what does not exist waits, and runs when it comes; when it
// goes, its last artifact stays.
func TestInputComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		app, base := repo("app", "https://two.example/app", time.Hour, "base"), repo("base", site, time.Hour)
		r.feed.now.Objects = []source.Object{app}
		r.start()
		defer r.stop()
		if runs := r.took(); len(runs) != 1 || runs[0].Result.Outcome != source.Waiting {
			t.Errorf("%+v", runs)
		}
		r.feed.put(serve.Desired{Objects: []source.Object{app, base}})
		if runs := r.took(); order(runs) != "base app" || runs[1].Result.Outcome != source.Stored {
			t.Errorf("%+v", runs)
		}
		r.feed.put(serve.Desired{Objects: []source.Object{app}})
		if runs := r.took(); order(runs) != "app" || runs[0].Result.Outcome != source.Waiting || runs[0].Trigger != serve.Input {
			t.Errorf("%+v", runs)
		}
		if v, _ := r.View(named("app")); v.Object.Artifact() == nil {
			t.Errorf("%+v", v)
		}
	})
}

// Circles are named, and hold up nobody.
func TestCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := repo("a", site, time.Hour, "b"), repo("b", site, time.Hour, "a")
		r.feed.now.Objects = []source.Object{a, b, repo("self", site, time.Hour, "self"), repo("c", site, time.Hour)}
		r.start()
		defer r.stop()
		for name, way := range map[string]string{
			"a":    "GitRepository/default/a → GitRepository/default/b → GitRepository/default/a",
			"b":    "GitRepository/default/b → GitRepository/default/a → GitRepository/default/b",
			"self": "GitRepository/default/self → GitRepository/default/self",
		} {
			v, _ := r.View(named(name))
			if c := v.Object.Common().Condition(source.StalledCondition); v.Phase != serve.Stalled || !strings.Contains(c.Message, way) {
				t.Errorf("%s: %+v %s", name, v, c.Message)
			}
		}
		// One of them is mended: both run.
		r.took()
		r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, time.Hour), b}})
		if runs := r.took(); order(runs) != "a b" || runs[1].Result.Outcome != source.Stored {
			t.Errorf("%+v", runs)
		}
	})
}

func TestChain(t *testing.T) {
	const n = 300
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Statuses = new(memory)
		name := func(i int) string { return fmt.Sprintf("r%d", i) }
		for i := range n {
			g := repo(name(i), "https://two.example/"+name(i), 1000*time.Hour)
			if i > 0 {
				g = repo(name(i), "https://two.example/"+name(i), 1000*time.Hour, name(i-1))
			}
			r.up(g.Spec.URL).rev = "" // nothing is stored
			r.feed.now.Objects = append(r.feed.now.Objects, g)
		}
		r.start()
		defer r.stop()
		runs := r.took()
		for i, run := range runs {
			if run.Object.Name != name(i) || run.Result.Outcome != source.Unchanged {
				t.Fatalf("run %d: %+v", i, run)
			}
		}
		if len(runs) != n {
			t.Errorf("%d runs", len(runs))
		}
	})
}

// An ExternalArtifact is never run; another artifact in its document is a new input.
func TestExternalArtifact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		external := func(digest string) *source.ExternalArtifact {
			e := &source.ExternalArtifact{Header: source.Header{APIVersion: source.Group + "/v1", Kind: "ExternalArtifact", Metadata: source.Metadata{Name: "out", Namespace: "default"}}}
			e.Status.Artifact = &artifact.Artifact{Path: "a", URL: "http://localhost/a", Revision: "1", Digest: "sha256:" + strings.Repeat(digest, 64)}
			return e
		}
		app := repo("app", site, time.Hour)
		app.Spec.Include = []source.GitRepositoryInclude{{Repository: source.IncludeReference{Kind: "ExternalArtifact", Name: "out"}}}
		r.feed.now.Objects = []source.Object{app, external("1")}
		r.start()
		defer r.stop()
		if runs := r.took(); order(runs) != "app" || runs[0].Result.Outcome != source.Stored {
			t.Errorf("%+v", runs)
		}
		r.feed.put(serve.Desired{Objects: []source.Object{app, external("2")}})
		if runs := r.took(); order(runs) != "app" || runs[0].Trigger != serve.Input || runs[0].Result.Outcome != source.Stored {
			t.Errorf("%+v", runs)
		}
		ref := source.Reference{Kind: "ExternalArtifact", Namespace: "default", Name: "out"}
		if n, err := r.Request(ref, serve.Request); n != 0 || err != nil {
			t.Errorf("run %d, %v", n, err)
		}
		if v, err := r.Wait(t.Context(), ref, 0); err != nil || v.Object.Artifact() == nil || v.Phase != serve.Idle {
			t.Errorf("%+v %v", v, err)
		}
	})
}

// An object that is asked for without pause does not keep back what is made of it.
func TestInputWithoutPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("app", "https://two.example/app", time.Hour, "base"), repo("base", site, time.Hour)}
		r.start()
		defer r.stop()
		r.took()
		r.up(site).set(func(u *upstream) { u.hang = time.Second })
		next, _ := r.Request(named("base"), serve.Request)
		time.Sleep(time.Millisecond)
		r.Request(named("app"), serve.Request)
		for range 10 { // as soon as one run has begun the next is asked for
			r.Request(named("base"), serve.Request)
			if _, err := r.Wait(t.Context(), named("base"), next); err != nil {
				t.Fatal(err)
			}
			next++
		}
		apps := 0
		for _, run := range r.took() {
			if run.Object.Name == "app" {
				apps++
			}
		}
		if apps != 1 {
			t.Errorf("%d runs of what is made of it", apps)
		}
	})
}

// Both are asked for while the input runs: what is made of it sees the later run.
func TestInputAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("app", "https://two.example/app", time.Hour, "base"), repo("base", site, time.Hour)}
		r.start()
		defer r.stop()
		r.took()
		r.up(site).set(func(u *upstream) { u.hang = time.Second })
		r.Request(named("base"), serve.Request)
		time.Sleep(time.Millisecond)
		r.Request(named("base"), serve.Request)
		r.Request(named("app"), serve.Request)
		time.Sleep(5 * time.Second)
		if got := order(r.took()); got != "base base app" {
			t.Errorf("%s", got)
		}
	})
}

// Who waits for a run that a document ends by suspending its object is told.
func TestWaitSuspendedBySpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.PerHost = 1
		a, b := repo("a", "https://one.example/a", time.Hour), repo("b", "https://one.example/b", time.Hour)
		r.feed.now.Objects = []source.Object{a, b}
		r.start()
		defer r.stop()
		r.up(a.Spec.URL).set(func(u *upstream) { u.hang = 10 * time.Second })
		r.Request(named("a"), serve.Request)
		run, err := r.Request(named("b"), serve.Request)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := r.Wait(ctx, named("b"), run)
			ended <- err
		}()
		synctest.Wait()
		held := *b
		held.Spec.Suspend = true
		r.feed.put(serve.Desired{Objects: []source.Object{a, &held}})
		if err := <-ended; !errors.Is(err, serve.ErrSuspended) {
			t.Error(err)
		}
	})
}

// The generation counts changes of the spec, at once and without a ledger too.
func TestGeneration(t *testing.T) {
	for name, statuses := range map[string]serve.Statuses{"ledger": nil, "memory": new(memory)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if statuses != nil {
					r.Statuses = statuses
				}
				r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
				r.start()
				defer r.stop()
				check := func(generation, observed int64) {
					t.Helper()
					v, _ := r.View(named("a"))
					if g, o := v.Object.Head().Metadata.Generation, v.Object.Common().ObservedGeneration; g != generation || o != observed {
						t.Errorf("generation %d, observed %d, want %d, %d", g, o, generation, observed)
					}
				}
				check(1, 1)
				r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, 2*time.Hour)}})
				settle()
				check(2, 2)
				held := repo("a", site, 2*time.Hour)
				held.Spec.Suspend = true
				r.feed.put(serve.Desired{Objects: []source.Object{held}})
				settle()
				check(3, 2)
				r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, 3*time.Hour)}})
				settle()
				check(4, 4)
			})
		})
	}
}

// Each webhook that found nothing new has its second look, whatever ran meanwhile.
func TestSecondLook(t *testing.T) {
	for name, by := range map[string]serve.Trigger{"hook": serve.Hook, "request": serve.Request} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
				r.start()
				defer r.stop()
				r.Request(named("a"), serve.Hook)
				time.Sleep(500 * time.Millisecond)
				r.Request(named("a"), by)
				time.Sleep(500 * time.Millisecond)
				r.took()
				r.up(site).set(func(u *upstream) { u.rev = "main@sha1:2222222222222222222222222222222222222222" })
				time.Sleep(3 * time.Second)
				if runs := r.took(); len(runs) != 1 || runs[0].Result.Outcome != source.Stored || runs[0].Trigger != serve.Hook {
					t.Errorf("%+v", runs)
				}
				time.Sleep(10 * time.Minute)
				if runs := r.took(); len(runs) != 0 {
					t.Errorf("%+v", runs)
				}
			})
		})
	}
}

// The longest interval there is, and the shortest, overflow nothing.
func TestExtremeIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{
			repo("longest", "https://one.example/longest", math.MaxInt64),
			repo("never", "https://one.example/never", 0),
			repo("short", "https://one.example/short", 100*time.Millisecond),
		}
		r.start()
		time.Sleep(time.Minute)
		r.stop()
		r.start() // another server on the same files
		defer r.stop()
		time.Sleep(time.Minute)
		runs := map[string]int{}
		for _, run := range r.took() {
			runs[run.Object.Name]++
		}
		if runs["longest"] != 1 || runs["never"] != 1 || runs["short"] < 1000 || runs["short"] > 1300 {
			t.Errorf("%v", runs)
		}
		for _, v := range r.Views() {
			if v.Object.Head().Metadata.Name == "longest" && !v.Next.After(time.Now()) {
				t.Errorf("due at %s", v.Next)
			}
		}
	})
}

// What changed for several reasons at once is told by the one that counts.
func TestTriggerThatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		app, base := repo("app", "https://two.example/app", time.Hour), repo("base", site, time.Hour)
		r.feed.now.Objects = []source.Object{app, base}
		r.start()
		defer r.stop()
		r.took()
		r.feed.put(serve.Desired{Objects: []source.Object{repo("app", "https://two.example/app", time.Hour, "base"), base}})
		if runs := r.took(); len(runs) != 1 || runs[0].Trigger != serve.Spec {
			t.Errorf("%+v", runs)
		}
	})
}

// A retention for ever is one.
func TestRetentionForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Retention = math.MaxInt64
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
		r.start()
		defer r.stop()
		r.feed.put(serve.Desired{})
		time.Sleep(24 * time.Hour)
		v, err := r.View(named("a"))
		if err != nil || v.Phase != serve.Removed || r.Store.Check(*v.Object.Artifact()) != nil {
			t.Errorf("%+v %v", v, err)
		}
	})
}
