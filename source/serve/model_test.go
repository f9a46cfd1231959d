package serve_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// A world is objects that are changed at random, and what has to hold of them.
type world struct {
	*rig
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
	modelInterval = 20 * time.Minute
	modelTimeout  = time.Minute
)

func modelName(i int) string { return fmt.Sprintf("r%d", i) }

// object returns object i, made of others that come before it.
func (w *world) object(i int) *source.GitRepository {
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

// Resolve is watched: no object is run twice at once, nor beside what it is made of.
func (w *world) origin(obj source.Object, env source.Env) (source.Origin, error) {
	from, err := w.rig.origin(obj, env)
	return &watched{Origin: from, world: w, name: obj.Head().Metadata.Name}, err
}

type watched struct {
	source.Origin
	world *world
	name  string
}

func (o *watched) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	w := o.world
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
func (w *world) observe(run serve.Run) {
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
		least := min(750*time.Millisecond<<(min(w.failed[name], 30)-1), 15*time.Minute) * 94 / 100
		if gap := run.Started.Sub(w.ended[name]); gap < least {
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

// step changes something.
func (w *world) step(objects []source.Object) []source.Object {
	i := w.rand.IntN(modelObjects)
	ref, up := named(modelName(i)), w.up(fmt.Sprintf("https://h%d.example/%d", i%4, i))
	switch w.rand.IntN(12) {
	case 0, 1, 2:
		up.set(func(u *upstream) { u.rev = fmt.Sprintf("main@sha1:%040x", w.rand.Uint64()) })
	case 3:
		up.set(func(u *upstream) { u.err = errors.New("no") })
	case 4:
		up.set(func(u *upstream) { u.err = fmt.Errorf("%w: never", source.ErrInvalid) })
	case 5, 6:
		up.set(func(u *upstream) { u.err, u.hang, u.slow, u.panics = nil, 0, 0, false })
	case 7:
		up.set(func(u *upstream) { u.hang = time.Duration(w.rand.IntN(90)) * time.Second })
	case 8:
		up.set(func(u *upstream) { u.slow, u.panics = time.Duration(w.rand.IntN(90))*time.Second, w.rand.IntN(4) == 0 })
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

// still checks that everything that is to be done is planned or under way.
func (w *world) still() {
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
			if s := w.Stats(); s.Running < 2 {
				w.Errorf("%s is queued while %d run", name, s.Running)
			}
		}
		if a := v.Object.Artifact(); a != nil && v.Phase != serve.Running {
			if err := w.Store.Check(*a); err != nil {
				w.Errorf("%s: its status has what is not there: %v", name, err)
			}
		}
	}
}

// Whatever happens, in whatever order, the rules hold.
func TestModel(t *testing.T) {
	const seeds, days = 1, 1
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{
					rig: newRig(t), rand: rand.New(rand.NewPCG(uint64(seed), 9)),
					running: map[string]int{}, failed: map[string]int{}, ended: map[string]time.Time{}, numbers: map[string]int64{}, last: map[string]source.Outcome{},
				}
				w.Runs, w.PerHost, w.Fetches = 4, 2, 2
				w.Origin, w.Observe = w.origin, w.observe
				w.Emit = nil
				var objects []source.Object
				for i := range modelObjects {
					objects = append(objects, w.object(i))
				}
				w.feed.now.Objects = objects
				w.start()
				end := time.Now().Add(time.Duration(days) * 24 * time.Hour)
				for time.Now().Before(end) {
					objects = w.step(objects)
					w.still()
					time.Sleep(time.Duration(w.rand.ExpFloat64() * float64(5*time.Minute)))
				}
				// All is well again: everything gets ready.
				for i := range modelObjects {
					w.up(fmt.Sprintf("https://h%d.example/%d", i%4, i)).set(func(u *upstream) { u.err, u.hang, u.slow, u.panics = nil, 0, 0, false })
				}
				objects = nil
				for i := range modelObjects {
					objects = append(objects, repo(modelName(i), fmt.Sprintf("https://h%d.example/%d", i%4, i), modelInterval))
					w.Resume(named(modelName(i)))
				}
				w.feed.put(serve.Desired{Objects: objects})
				for i := range modelObjects {
					w.Resume(named(modelName(i)))
				}
				time.Sleep(2 * modelInterval)
				w.still()
				for _, v := range w.Views() {
					if v.Object.Common().Condition(source.ReadyCondition).Status != "True" || v.Object.Artifact().Revision != w.up(v.Object.(*source.GitRepository).Spec.URL).rev {
						t.Errorf("not ready in the end: %+v", v)
					}
				}
				w.stop()
				time.Sleep(2 * time.Hour) // who waits
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.runs < days*24*3*modelObjects/4 {
					t.Errorf("%d runs", w.runs)
				}
			})
		})
	}
}
