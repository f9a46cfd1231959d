package serve_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// reposOnHosts returns n objects, spread over a number of hosts and named by prefix and a number, and applies change to their
// upstreams. It stores statuses in memory, because files take time.
func (r *fixture) reposOnHosts(n, hosts int, prefix string, interval time.Duration, change func(*upstream)) (objects []source.Object) {
	if r.Server == nil {
		r.Statuses = new(memoryStatuses)
	}
	for i := range n {
		url := fmt.Sprintf("https://%s%d.example/%d", prefix, i%hosts, i)
		r.upstream(url).set(change)
		objects = append(objects, repo(fmt.Sprint(prefix, i), url, interval))
	}
	return objects
}

func delayResolve(d time.Duration) func(*upstream) { return func(u *upstream) { u.resolveDelay = d } }

func TestRunsAtATime(t *testing.T) {
	for name, c := range map[string]struct{ hosts, want int }{
		"one host":   {1, 3},
		"many hosts": {10, 8},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, nil, func(r *fixture) {
				r.Runs, r.PerHost = 8, 3
				r.feed.now.Objects = r.reposOnHosts(40, c.hosts, "h", 1e5*time.Hour, delayResolve(time.Second)) // the first interval is shorter
			}, func(r *fixture) {
				time.Sleep(400 * time.Millisecond) // a locked file is retried some milliseconds later
				for at := 40; at > 0; at -= c.want {
					if running, all := r.count(serve.Running), r.count(serve.Running, serve.Queued); running != min(c.want, at) || all != at {
						r.Fatalf("%d run of %d, want %d of %d", running, all, c.want, at)
					}
					time.Sleep(time.Second)
					synctest.Wait()
				}
			})
		})
	}
}

// Waiting for a fetch slot does not count against spec.timeout, and one host gets half of the slots.
func TestFetches(t *testing.T) {
	withFixture(t, nil, func(r *fixture) {
		r.Fetches = 4
		r.feed.now.Objects = r.reposOnHosts(16, 1, "h", time.Hour, func(u *upstream) { u.openDelay = 50 * time.Second }) // spec.timeout is 60 s
	}, func(r *fixture) {
		for range 8 {
			testenv.Equal(r.TB, r.Stats().Fetching, 2)
			time.Sleep(50 * time.Second)
			synctest.Wait()
		}
		testenv.Equal(r.TB, strings.Count(describe(r.takeRuns()), "stored"), 16, "ran")
	})
}

// Hosts that hang do not starve others, however many objects they have: the objects of a good host are on time once the
// first requests have timed out, and even before that, in whatever order they are added.
func TestStalledHosts(t *testing.T) {
	for name, stall := range map[string]func(u *upstream){
		"answers":  func(u *upstream) { u.resolveDelay = time.Hour },
		"contents": func(u *upstream) { u.openDelay = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, nil, func(r *fixture) {
				r.Runs, r.PerHost, r.Fetches = 32, 16, 4
				r.feed.now.Objects = append(r.reposOnHosts(60, 6, "bad", time.Minute, stall), r.reposOnHosts(20, 1, "good", time.Minute, delayResolve(0))...)
			}, func(r *fixture) {
				time.Sleep(3 * time.Minute)
				r.takeRuns()
				r.reposOnHosts(20, 1, "good", time.Minute, func(u *upstream) { u.rev = "main@sha1:2222222222222222222222222222222222222222" })
				time.Sleep(3 * time.Minute)
				runs, stored := 0, 0
				for _, run := range r.takeRuns() {
					if run.Object.Name[0] != 'g' {
						continue
					}
					runs++
					if run.Result.Outcome == source.Stored {
						stored++
					}
					if late := run.Started.Sub(run.Due) + run.Took; late > 3*time.Second {
						r.Errorf("%s: late by %s", run.Object, late)
					}
				}
				if runs < 50 || stored != 20 {
					r.Errorf("%d runs, %d stored", runs, stored)
				}
			})
		})
	}
	for name, delay := range map[string]time.Duration{"at once": 0, "later": time.Second} {
		t.Run(name, func(t *testing.T) {
			var bad, good []source.Object
			withFixture(t, nil, func(r *fixture) {
				r.Runs = 64
				bad, good = r.reposOnHosts(80, 5, "bad", time.Minute, delayResolve(time.Hour)), r.reposOnHosts(25, 1, "good", time.Minute, delayResolve(100*time.Millisecond))
				if r.feed.now.Objects = bad; delay == 0 {
					r.feed.now.Objects = slices.Concat(bad, good)
				}
			}, func(r *fixture) {
				time.Sleep(delay)
				r.put(slices.Concat(bad, good)...)
				time.Sleep(10 * time.Second)
				testenv.Equal(r.TB, strings.Count(describe(append(r.firstRuns, r.takeRuns()...)), "stored"), 25)
			})
		})
	}
}

// Objects run on time even if there are many more of them than can run at a time.
func TestManyObjectsOnTime(t *testing.T) {
	const n = 400
	var worst time.Duration
	runs := 0
	withFixture(t, nil, func(r *fixture) {
		r.Statuses, r.Emit = new(memoryStatuses), nil
		for i := range n {
			url := fmt.Sprintf("https://h%d.example/%d", i%20, i%100)
			r.upstream(url).rev, r.upstream(url).resolveDelay = "", 20*time.Millisecond // nothing is stored
			r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("r", i), url, time.Minute))
		}
		r.Observe = func(run serve.Run) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if runs++; run.Trigger == serve.Tick {
				worst = max(worst, run.Started.Sub(run.Due))
			}
		}
	}, func(r *fixture) {
		time.Sleep(time.Minute + 30*time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if worst > 3*time.Second || runs < 2*n-n/20 || runs > 3*n {
			r.Errorf("late by %s, %d runs", worst, runs)
		}
	})
}

// An object whose URL is corrected while it waits for a slot then waits for, and gets, a slot of the new host.
func TestHostChangesWhileQueued(t *testing.T) {
	for name, urls := range map[string][]string{
		"once":         {"https://good.example/x"},
		"back":         {"https://good.example/x", "https://bad.example/y"},
		"back and off": {"https://good.example/x", "https://bad.example/y", "https://good.example/x"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := repo("a", "https://bad.example/a", time.Hour), repo("b", "https://bad.example/b", time.Hour)
			withFixture(t, list(a, b), func(r *fixture) { r.PerHost = 1 }, func(r *fixture) {
				r.upstream(a.Spec.URL).set(delayResolve(20 * time.Second))
				r.Request(repoRef("a"), serve.Request)
				synctest.Wait()
				r.Request(repoRef("b"), serve.Request)
				for _, url := range urls {
					r.put(a, repo("b", url, time.Hour))
				}
				settle()
				v := r.view("b")
				testenv.Equal(r.TB, v.Phase == serve.Idle && v.Last.Number >= 2, urls[len(urls)-1] == "https://good.example/x", "%s: %+v", v.Phase, v)
				time.Sleep(time.Minute)
				for range 2 { // no slot was lost or gained
					r.Request(repoRef("a"), serve.Request)
					r.Request(repoRef("b"), serve.Request)
					time.Sleep(time.Minute)
				}
				r.wantPhase(serve.Idle, "a", "b")
			})
		})
	}
}

// A host whose last run failed gets its turn even if another host has many requests.
func TestFailedHostIsNotStarved(t *testing.T) {
	withFixture(t, nil, func(r *fixture) {
		r.Runs, r.PerHost = 2, 2
		r.feed.now.Objects = append(r.reposOnHosts(60, 1, "r", time.Hour, delayResolve(0)), r.reposOnHosts(1, 1, "doubtful", time.Hour, func(u *upstream) { u.err = errRefused })...)
	}, func(r *fixture) {
		r.reposOnHosts(60, 1, "r", time.Hour, delayResolve(time.Second))
		for i := range 60 {
			r.Request(repoRef(fmt.Sprint("r", i)), serve.Request)
		}
		run, err := r.Request(repoRef("doubtful0"), serve.Request)
		r.must(err)
		requestedAt := time.Now()
		if _, err := r.Wait(r.Context(), repoRef("doubtful0"), run); err != nil || time.Since(requestedAt) > 5*time.Second {
			r.Errorf("%v after %s", err, time.Since(requestedAt))
		}
	})
}

// A host that has recovered is not held up by hosts that still hang.
func TestHostRecovers(t *testing.T) {
	refuses := func(u *upstream) { u.err = errRefused }
	withFixture(t, nil, func(r *fixture) {
		r.Runs, r.PerHost = 8, 4
		r.feed.now.Objects = append(r.reposOnHosts(4, 4, "bad", time.Hour, refuses), r.reposOnHosts(5, 1, "good", time.Hour, refuses)...)
	}, func(r *fixture) {
		time.Sleep(time.Minute)
		r.reposOnHosts(4, 4, "bad", time.Hour, delayResolve(time.Hour))
		r.reposOnHosts(5, 1, "good", time.Hour, func(u *upstream) { u.err, u.resolveDelay = nil, time.Second })
		r.takeRuns()
		for _, name := range []string{"bad0", "bad1", "bad2", "good0", "bad3", "good1", "good2", "good3", "good4"} {
			r.Request(repoRef(name), serve.Request)
		}
		time.Sleep(10 * time.Second)
		runs := slices.DeleteFunc(r.takeRuns(), func(run serve.Run) bool { return run.Trigger != serve.Request }) // a tick may happen meanwhile
		testenv.Equal(r.TB, len(runs), 5, "ran %s", describe(runs))
	})
}

// randomObjects are objects that change at random, with the state for checking invariants.
type randomObjects struct {
	*fixture
	rand *rand.Rand

	mu      sync.Mutex
	running map[string]int // by name
	failed  map[string]int // failures in a row
	ended   map[string]time.Time
	last    map[string]source.Outcome
	numbers map[string]int64
	runs    int
}

const (
	modelObjects  = 12
	modelInterval = time.Hour
	modelTimeout  = time.Minute
)

func modelName(i int) string { return fmt.Sprintf("r%d", i) }

// object returns object i, which includes some of the objects before it.
func (w *randomObjects) object(i int) *source.GitRepository {
	var inputs []string
	for j := range i {
		if w.rand.IntN(6) == 0 {
			inputs = append(inputs, modelName(j))
		}
	}
	g := repo(modelName(i), fmt.Sprintf("https://h%d.example/%d", i%4, i), modelInterval, inputs...)
	g.Spec.Suspend = w.rand.IntN(12) == 0
	return g
}

// origin returns an origin whose Resolve checks that no object has two runs at the same time.
func (w *randomObjects) origin(obj source.Object, env source.Env) (source.Origin, error) {
	from, err := w.fixture.origin(obj, env)
	return &checkedOrigin{Origin: from, model: w, name: obj.Head().Metadata.Name}, err
}

type checkedOrigin struct {
	source.Origin
	model *randomObjects
	name  string
}

func (o *checkedOrigin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	w := o.model
	w.mu.Lock()
	if w.running[o.name]++; w.running[o.name] > 1 {
		w.Errorf("%s is run twice at once", o.name)
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.running[o.name]--
		w.mu.Unlock()
	}()
	return o.Origin.Resolve(ctx, last)
}

// observe checks one run.
func (w *randomObjects) observe(run serve.Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs++
	name := run.Object.Name
	if run.Number == 1 { // new, or back after its retention
		w.numbers[name], w.failed[name], w.last[name] = 0, 0, ""
	}
	if run.Number <= w.numbers[name] {
		w.Errorf("%s: run %d after %d", name, run.Number, w.numbers[name])
	}
	w.numbers[name] = run.Number
	if late := run.Started.Sub(run.Due); late > modelObjects*2*modelTimeout {
		w.Errorf("%s: %s late", name, late)
	}
	if run.Trigger == serve.Retry && w.last[name] == source.Failed {
		minGap := min(750*time.Millisecond<<(min(w.failed[name], 30)-1), 15*time.Minute) * 94 / 100
		if gap := run.Started.Sub(w.ended[name]); gap < minGap {
			w.Errorf("%s: tried again after %s, %d failures", name, gap, w.failed[name])
		}
	}
	w.ended[name] = run.Started.Add(run.Took)
	switch w.last[name] = run.Result.Outcome; run.Result.Outcome {
	case source.Failed:
		w.failed[name]++
	case source.Stored, source.Unchanged:
		w.failed[name] = 0
	}
}

// step makes one random change.
func (w *randomObjects) step(objects []source.Object) []source.Object {
	i := w.rand.IntN(modelObjects)
	ref, up := repoRef(modelName(i)), w.upstream(fmt.Sprintf("https://h%d.example/%d", i%4, i))
	switch w.rand.IntN(12) {
	case 0, 1, 2:
		up.set(func(u *upstream) { u.rev = fmt.Sprintf("main@sha1:%040x", w.rand.Uint64()) })
	case 3:
		up.fail(errors.New("no"))
	case 4:
		up.fail(fmt.Errorf("%w: never", source.ErrInvalid))
	case 5, 6:
		up.set(func(u *upstream) { u.err, u.resolveDelay, u.openDelay, u.panics = nil, 0, 0, false })
	case 7:
		up.set(func(u *upstream) { u.resolveDelay = time.Duration(w.rand.IntN(90)) * time.Second })
	case 8:
		up.set(func(u *upstream) {
			u.openDelay, u.panics = time.Duration(w.rand.IntN(90))*time.Second, w.rand.IntN(4) == 0
		})
	case 9:
		if run, err := w.Request(ref, serve.Hook); err == nil {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				if _, err := w.Wait(ctx, ref, run); errors.Is(err, context.DeadlineExceeded) {
					w.Errorf("%s: run %d did not end within an hour", ref, run)
				}
			}()
		}
	case 10:
		if w.rand.IntN(2) == 0 {
			w.Suspend(ref, source.Suspension{By: "model"})
		} else {
			w.Resume(ref)
		}
	case 11:
		objects = append([]source.Object(nil), objects...)
		switch at := w.rand.IntN(len(objects) + 1); {
		case at < len(objects) && w.rand.IntN(2) == 0:
			objects = append(objects[:at], objects[at+1:]...)
		default:
			next := w.object(i)
			for k, o := range objects {
				if o.Head().Metadata.Name == modelName(i) {
					objects = append(objects[:k], objects[k+1:]...)
					break
				}
			}
			objects = append(objects, next)
		}
		w.feed.put(serve.Desired{Objects: objects})
	}
	return objects
}

// checkInvariants checks that all pending work is planned or under way.
func (w *randomObjects) checkInvariants() {
	synctest.Wait()
	for _, v := range w.Views() {
		name := v.Object.Head().Metadata.Name
		switch v.Phase {
		case serve.Idle:
			if in := time.Until(v.Next); v.Next.IsZero() || in < 0 || in > modelInterval*105/100 {
				w.Errorf("%s is idle, and due in %s after %s: %+v", name, in, v.Last.Result.Outcome, v.Last)
			}
		case serve.Stalled, serve.Suspended, serve.Removed:
			if !v.Next.IsZero() {
				w.Errorf("%s is %s, and due at %s", name, v.Phase, v.Next)
			}
		case serve.Blocked:
			if len(v.Blockers) == 0 {
				w.Errorf("%s is blocked by nobody", name)
			}
		case serve.Queued:
			if n := w.count(serve.Running); n < 2 {
				w.Errorf("%s is queued while %d run", name, n)
			}
		}
		if a := v.Object.Artifact(); a != nil && v.Phase != serve.Running {
			testenv.Equal(w.TB, w.Store.Check(*a), nil, "%s: its status has what is not there", name)
		}
	}
}

// The invariants hold for any sequence of changes.
func TestModel(t *testing.T) {
	const days = 1
	synctest.Test(t, func(t *testing.T) {
		w := &randomObjects{
			fixture: newFixture(t), rand: rand.New(rand.NewPCG(0, 9)),
			running: map[string]int{}, failed: map[string]int{}, ended: map[string]time.Time{}, numbers: map[string]int64{}, last: map[string]source.Outcome{},
		}
		w.Runs, w.PerHost, w.Fetches, w.Statuses = 4, 2, 2, new(memoryStatuses)
		w.Origin, w.Observe, w.Emit = w.origin, w.observe, nil
		var objects []source.Object
		for i := range modelObjects {
			objects = append(objects, w.object(i))
		}
		w.feed.now.Objects = objects
		w.start()
		for end := time.Now().Add(days * 24 * time.Hour); time.Now().Before(end); {
			objects = w.step(objects)
			w.checkInvariants()
			time.Sleep(time.Duration(w.rand.ExpFloat64() * float64(5*time.Minute)))
		}
		objects = nil // all upstreams recover: all objects become ready
		for i := range modelObjects {
			url := fmt.Sprintf("https://h%d.example/%d", i%4, i)
			w.upstream(url).set(func(u *upstream) { u.err, u.resolveDelay, u.openDelay, u.panics = nil, 0, 0, false })
			objects = append(objects, repo(modelName(i), url, modelInterval))
		}
		w.put(objects...)
		for i := range modelObjects {
			w.Resume(repoRef(modelName(i)))
		}
		time.Sleep(2 * modelInterval)
		w.checkInvariants()
		for _, v := range w.Views() {
			if v.Object.Common().Condition(source.ReadyCondition).Status != "True" || v.Object.Artifact().Revision != w.upstream(v.Object.(*source.GitRepository).Spec.URL).rev {
				t.Errorf("not ready in the end: %+v", v)
			}
		}
		w.stop()
		time.Sleep(2 * time.Hour) // ends the calls of Wait
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.runs < days*24*modelObjects/4 {
			t.Errorf("%d runs", w.runs)
		}
	})
}
