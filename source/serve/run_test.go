package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", "https://one.example/a", time.Minute)}
		r.start()
		defer r.stop()
		v, err := r.View(named("a"))
		if err != nil || v.Phase != serve.Idle || v.Object.Artifact() == nil {
			t.Fatalf("%+v %v", v, err)
		}
		var last time.Time
		for i, run := range r.took() {
			if i > 0 || run.Trigger != serve.Start || run.Result.Outcome != source.Stored {
				t.Errorf("run %d: %+v", i, run)
			}
			last = run.Started
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		runs := r.took()
		if len(runs) < 9 || len(runs) > 11 {
			t.Errorf("%d runs", len(runs))
		}
		for _, run := range runs {
			gap := run.Started.Sub(last)
			last = run.Started
			if gap < 57*time.Second || gap > 63*time.Second || run.Trigger != serve.Tick || run.Result.Outcome != source.Unchanged {
				t.Errorf("after %s: %+v", gap, run)
			}
		}
	})
}

func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		up := r.up("https://one.example/a")
		r.feed.now.Objects = []source.Object{repo("a", "https://one.example/a", time.Hour)}
		r.start()
		defer r.stop()
		up.set(func(u *upstream) { u.hang = time.Second })
		first, err := r.Request(named("a"), serve.Request)
		if err != nil || first != 2 {
			t.Fatalf("run %d, %v", first, err)
		}
		synctest.Wait()
		for range 100 {
			if next, err := r.Request(named("a"), serve.Hook); err != nil || next != 3 {
				t.Fatalf("run %d, %v", next, err)
			}
		}
		v, err := r.Wait(t.Context(), named("a"), 3)
		if err != nil || v.Last.Number != 3 || v.Last.Trigger != serve.Hook {
			t.Errorf("%+v %v", v, err)
		}
		if n := len(r.took()); n != 3 {
			t.Errorf("%d runs", n)
		}
	})
}

const site = "https://one.example/a"

// annotated returns a copy of g with an annotation more.
func annotated(g *source.GitRepository, key, value string) *source.GitRepository {
	out := *g
	out.Metadata.Annotations = maps.Clone(g.Metadata.Annotations)
	if out.Metadata.Annotations == nil {
		out.Metadata.Annotations = map[string]string{}
	}
	out.Metadata.Annotations[key] = value
	return &out
}

// secrets returns Secrets with one named login.
func secrets(password string) source.Secrets {
	return &source.Set{Secrets: map[string]source.Secret{
		"default/login": {Type: "Opaque", Data: map[string][]byte{"password": []byte(password)}},
	}}
}

func TestTriggers(t *testing.T) {
	base := repo("a", site, time.Hour)
	for name, c := range map[string]struct {
		before func(r *rig)
		do     func(r *rig)
		want   string // triggers and outcomes of the runs at once
	}{
		"nothing": {do: func(r *rig) { r.feed.put(serve.Desired{Objects: []source.Object{base}}) }},
		"the same in another document": {do: func(r *rig) {
			r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, time.Hour)}})
		}},
		"another spec": {
			do: func(r *rig) {
				r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, 2*time.Hour)}})
			},
			want: "spec unchanged;",
		},
		"requestedAt": {
			do: func(r *rig) {
				r.feed.put(serve.Desired{Objects: []source.Object{annotated(base, "reconcile.headgate.dev/requestedAt", "now")}})
			},
			want: "request unchanged;",
		},
		"requestedAt of the reference": {
			do: func(r *rig) {
				r.feed.put(serve.Desired{Objects: []source.Object{annotated(base, "reconcile.fluxcd.io/requestedAt", "now")}})
			},
			want: "request unchanged;",
		},
		"an annotation of events": {do: func(r *rig) {
			r.feed.put(serve.Desired{Objects: []source.Object{annotated(base, "event.headgate.dev/team", "shop")}})
		}},
		"a request": {do: func(r *rig) { r.Request(named("a"), serve.Request) }, want: "request unchanged;"},
		"a hook": {
			do: func(r *rig) {
				r.up(site).set(func(u *upstream) { u.rev = "main@sha1:2222222222222222222222222222222222222222" })
				r.Request(named("a"), serve.Hook)
			},
			want: "hook stored;",
		},
		"a hook that comes before the push is to be seen": {
			do: func(r *rig) {
				r.Request(named("a"), serve.Hook)
				synctest.Wait()
				r.up(site).set(func(u *upstream) { u.rev = "main@sha1:2222222222222222222222222222222222222222" })
				time.Sleep(3 * time.Second)
				synctest.Wait()
			},
			want: "hook unchanged;hook stored;",
		},
		"a hook of nothing new": {
			do: func(r *rig) {
				r.Request(named("a"), serve.Hook)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
			},
			want: "hook unchanged;hook unchanged;",
		},
		"a Secret": {
			before: func(r *rig) { r.up(site).secret, r.feed.now.Secrets = "login", secrets("old") },
			do: func(r *rig) {
				r.feed.put(serve.Desired{Objects: []source.Object{base}, Secrets: secrets("new")})
			},
			want: "secret unchanged;",
		},
		"the same Secret": {
			before: func(r *rig) { r.up(site).secret, r.feed.now.Secrets = "login", secrets("old") },
			do: func(r *rig) {
				r.feed.put(serve.Desired{Objects: []source.Object{base}, Secrets: secrets("old")})
			},
		},
		"a Secret that was missing": {
			before: func(r *rig) { r.up(site).secret = "login" },
			do: func(r *rig) {
				r.feed.put(serve.Desired{Objects: []source.Object{base}, Secrets: secrets("new")})
			},
			want: "secret stored;",
		},
		"a Secret that nobody asked for": {do: func(r *rig) {
			r.feed.put(serve.Desired{Objects: []source.Object{base}, Secrets: secrets("new")})
		}},
		"a request of what is stalled": {
			before: func(r *rig) { r.up(site).err = fmt.Errorf("%w: no such branch", source.ErrInvalid) },
			do: func(r *rig) {
				time.Sleep(24 * time.Hour)
				r.up(site).set(func(u *upstream) { u.err = nil })
				r.Request(named("a"), serve.Request)
			},
			want: "request stored;",
		},
		"another spec of what is stalled": {
			before: func(r *rig) { r.up(site).err = fmt.Errorf("%w: no such branch", source.ErrInvalid) },
			do: func(r *rig) {
				r.feed.put(serve.Desired{Objects: []source.Object{repo("a", "https://one.example/b", time.Hour)}})
			},
			want: "spec stored;",
		},
		"removed and back": {
			do: func(r *rig) {
				r.feed.put(serve.Desired{})
				time.Sleep(10 * time.Minute)
				r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, time.Hour)}})
			},
			want: "start unchanged;",
		},
		"missing because of a defect": {do: func(r *rig) {
			r.feed.put(serve.Desired{Defects: []error{errors.New("a.yaml:1: no YAML")}})
			if v, err := r.View(named("a")); err != nil || !v.Missing || v.Phase != serve.Idle {
				r.Errorf("%+v %v", v, err)
			}
			r.feed.put(serve.Desired{Objects: []source.Object{base}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.feed.now.Objects = []source.Object{base}
				if c.before != nil {
					c.before(r)
				}
				r.start()
				defer r.stop()
				r.took()
				c.do(r)
				got := ""
				for _, run := range r.took() {
					got += string(run.Trigger) + " " + string(run.Result.Outcome) + ";"
				}
				if got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// A Secret that changes while a run uses the old one is used once more.
func TestSecretDuringRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		base := repo("a", site, time.Hour)
		up := r.up(site)
		up.secret, up.hang = "login", time.Second
		r.feed.now = serve.Desired{Objects: []source.Object{base}, Secrets: secrets("old")}
		r.start()
		defer r.stop()
		r.feed.put(serve.Desired{Objects: []source.Object{base}, Secrets: secrets("new")})
		time.Sleep(time.Minute)
		runs := r.took()
		if len(runs) != 2 || runs[1].Trigger != serve.Secret {
			t.Errorf("%+v", runs)
		}
	})
}

// A spec that changes while a run is under way counts, and what the run found is not lost.
func TestSpecDuringRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up(site).hang = time.Second
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
		r.start()
		defer r.stop()
		ignore := "*.md"
		next := repo("a", site, time.Hour)
		next.Spec.Ignore = &ignore
		r.feed.put(serve.Desired{Objects: []source.Object{next}})
		time.Sleep(1500 * time.Millisecond)
		v, _ := r.View(named("a"))
		g := v.Object.(*source.GitRepository)
		if v.Phase != serve.Running || g.Spec.Ignore == nil || g.Status.Artifact == nil || v.Last.Number != 1 {
			t.Errorf("%+v", v)
		}
		time.Sleep(time.Minute)
		runs := r.took()
		if len(runs) != 2 || runs[1].Trigger != serve.Spec || runs[1].Result.Outcome != source.Stored {
			t.Errorf("%+v", runs)
		}
		if v, _ := r.View(named("a")); v.Object.Head().Metadata.Generation != 2 || v.Object.Common().ObservedGeneration != 2 {
			t.Errorf("generation %d, observed %d", v.Object.Head().Metadata.Generation, v.Object.Common().ObservedGeneration)
		}
	})
}

func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		up := r.up(site)
		up.err = errors.New("connection refused")
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
		r.start()
		defer r.stop()
		time.Sleep(2 * time.Hour)
		runs := r.took()
		want := 750 * time.Millisecond
		for i, run := range runs[1:] {
			gap := run.Started.Sub(runs[i].Started)
			if run.Trigger != serve.Retry || run.Result.Outcome != source.Failed ||
				gap < want*95/100 || gap > min(want*105/100, 15*time.Minute) {
				t.Errorf("run %d after %s, want %s: %+v", i+2, gap, want, run)
			}
			want = min(2*want, 15*time.Minute)
		}
		if v, _ := r.View(named("a")); v.Failures != len(runs) || !v.Checked.IsZero() || v.Next.IsZero() || v.Phase != serve.Idle {
			t.Errorf("%d runs: %+v", len(runs), v)
		}
		up.set(func(u *upstream) { u.err = nil })
		time.Sleep(15 * time.Minute)
		if v, _ := r.View(named("a")); v.Failures != 0 || v.Checked.IsZero() {
			t.Errorf("%+v", v)
		}
		up.set(func(u *upstream) { u.err = errors.New("connection refused") })
		r.took()
		r.Request(named("a"), serve.Request)
		time.Sleep(time.Second)
		if runs := r.took(); len(runs) != 2 { // the first retry again
			t.Errorf("%+v", runs)
		}
	})
}

// Retries are not rarer than the interval.
func TestBackOffInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up(site).err = errors.New("connection refused")
		r.feed.now.Objects = []source.Object{repo("a", site, time.Minute)}
		r.start()
		defer r.stop()
		time.Sleep(10 * time.Minute)
		r.took()
		time.Sleep(10 * time.Minute)
		if n := len(r.took()); n < 9 || n > 11 {
			t.Errorf("%d runs", n)
		}
	})
}

type busy time.Duration

func (b busy) Error() string             { return "too many requests" }
func (b busy) RetryAfter() time.Duration { return time.Duration(b) }

func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		err         error
		least, most time.Duration // until the next run; 0: there is none
		phase       serve.Phase
		failures    int
	}{
		"failed":           {errors.New("no"), 700 * time.Millisecond, 800 * time.Millisecond, serve.Idle, 1},
		"Retry-After":      {busy(5 * time.Minute), 5 * time.Minute, 5 * time.Minute, serve.Idle, 1},
		"long Retry-After": {busy(5 * time.Hour), time.Hour, time.Hour, serve.Idle, 1},
		"waiting":          {fmt.Errorf("%w: soon", source.ErrWaiting), 30 * time.Second, 30 * time.Second, serve.Idle, 0},
		"stalled":          {fmt.Errorf("%w: never", source.ErrInvalid), 0, 0, serve.Stalled, 0},
		"none":             {nil, 57 * time.Minute, 63 * time.Minute, serve.Idle, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.up(site).err = c.err
				r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
				r.start()
				defer r.stop()
				v, _ := r.View(named("a"))
				if v.Phase != c.phase || v.Failures != c.failures {
					t.Errorf("%+v", v)
				}
				if c.most == 0 {
					if !v.Next.IsZero() {
						t.Errorf("due at %s", v.Next)
					}
				} else if in := v.Next.Sub(v.Last.Started.Add(v.Last.Took)); in < c.least || in > c.most {
					t.Errorf("due in %s", in)
				}
				time.Sleep(c.most + time.Second)
				if n := len(r.took()); n != 2 && c.most != 0 || n != 1 && c.most == 0 {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}

// An origin that panics, one whose constructor does, and an object of no kind
// that is known fail alone.
func TestBadObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		origin := r.Origin
		r.Origin = func(o source.Object, env source.Env) (source.Origin, error) {
			if o.Head().Metadata.Name == "constructor" {
				panic("a \x1b[31mdefect")
			}
			return origin(o, env)
		}
		r.up("https://one.example/panics").panics = true
		bucket := &source.Bucket{Header: source.Header{APIVersion: source.Group + "/v1", Kind: "Bucket", Metadata: source.Metadata{Name: "unknown"}}}
		bucket.Spec.Interval = source.Duration(time.Minute)
		path := repo("../../etc", site, time.Minute)
		r.feed.now.Objects = []source.Object{
			repo("panics", "https://one.example/panics", time.Minute), repo("constructor", site, time.Minute), bucket, path,
			repo("a", site, time.Minute), repo("a", "https://one.example/panics", time.Minute),
		}
		r.start()
		defer r.stop()
		time.Sleep(5 * time.Minute)
		for _, v := range r.Views() {
			name := v.Object.Head().Metadata.Name
			var panicked *source.PanicError
			switch {
			case name == "a" && (v.Last.Result.Outcome != source.Unchanged || v.Last.Number < 5),
				name == "unknown" && v.Phase != serve.Stalled,
				(name == "panics" || name == "constructor") && (!errors.As(v.Last.Err, &panicked) || v.Failures == 0),
				name == "../../etc" && v.Phase != serve.Stalled:
				t.Errorf("%s: %+v", name, v)
			}
		}
	})
}

// A panic anywhere in an origin is a failure of that run, tells nothing of the
// object as changed, and gives its slots back.
func TestPanics(t *testing.T) {
	for _, at := range []string{"origin", "resolve", "open", "verify", "write", "close"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.Runs, r.Fetches = 1, 1
				r.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
					from, err := r.origin(obj, env)
					if obj.Head().Metadata.Name == "b" {
						return from, err
					}
					return fragile{from, at}.now("origin"), err
				}
				r.feed.now.Objects = []source.Object{repo("a", site, time.Hour), repo("b", "https://two.example/b", time.Hour)}
				r.start()
				defer r.stop()
				failed, stored := 0, 0
				for _, run := range r.took() {
					var panicked *source.PanicError
					switch {
					case run.Object.Name == "b" && run.Result.Outcome == source.Stored:
						stored++
					case run.Result.Outcome == source.Failed && errors.As(run.Err, &panicked):
						failed++
					}
				}
				if stored != 1 || failed != 1 {
					t.Errorf("%d stored, %d failed", stored, failed)
				}
				if s := r.Stats(); s.Running != 0 || s.Fetching != 0 {
					t.Errorf("%+v", s)
				}
				if v, _ := r.View(named("a")); v.Failures != 1 || v.Next.IsZero() || v.Phase != serve.Idle {
					t.Errorf("%+v", v)
				}
			})
		})
	}
}

// A fragile origin panics at one place.
type fragile struct {
	source.Origin
	at string
}

func (f fragile) now(at string) fragile {
	if f.at == at {
		panic("a defect")
	}
	return f
}

func (f fragile) Resolve(ctx context.Context, s source.State) (source.Revision, source.State, error) {
	return f.now("resolve").Origin.Resolve(ctx, s)
}

func (f fragile) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := f.now("open").Origin.Open(ctx, rev)
	return fragileContent{c, f}, err
}

type fragileContent struct {
	source.Content
	f fragile
}

func (c fragileContent) Verify(ctx context.Context) (source.Verification, error) {
	c.f.now("verify")
	return c.Content.Verify(ctx)
}

func (c fragileContent) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	c.f.now("write")
	return c.Content.WriteTo(ctx, w)
}

func (c fragileContent) Close() error {
	c.f.now("close")
	return c.Content.Close()
}

// How old the answers may be that a run shares: as old as its request, as a part
// of its interval, and never older than the run before.
func TestFreshness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var last atomic.Pointer[time.Time]
		since := func() time.Time { return *last.Load() }
		r.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
			last.Store(&env.Since)
			return r.origin(obj, env)
		}
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
		began := time.Now()
		r.start()
		defer r.stop()
		if since().Before(began) {
			t.Errorf("first run: %s before the start", began.Sub(since()))
		}
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		v, _ := r.View(named("a"))
		if old := v.Last.Due.Sub(since()); v.Last.Trigger != serve.Tick || old < time.Minute || old > 5*time.Minute {
			t.Errorf("%s: %s old", v.Last.Trigger, old)
		}
		r.up(site).set(func(u *upstream) { u.hang = 10 * time.Second })
		r.Request(named("a"), serve.Request)
		time.Sleep(5 * time.Second)
		asked := time.Now() // while a run is under way
		run, _ := r.Request(named("a"), serve.Hook)
		time.Sleep(6 * time.Second)
		if !since().Equal(asked) {
			t.Errorf("run %d: answers from %s after it was asked for", run, since().Sub(asked))
		}
		r.up(site).set(func(u *upstream) { u.hang, u.err = 0, errors.New("connection refused") })
		run, _ = r.Request(named("a"), serve.Request)
		v, err := r.Wait(t.Context(), named("a"), run)
		if err != nil {
			t.Fatal(err)
		}
		ended := v.Last.Started.Add(v.Last.Took)
		time.Sleep(time.Second) // the first retry
		if since().Before(ended) {
			t.Errorf("retry: answers from %s before the end of the last run", ended.Sub(since()))
		}
	})
}

// A failure that each retry repeats is told once in some time, with how often
// it was; another failure and the recovery are told at once.
func TestRepeatedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Jitter, r.MinRetry, r.MaxRetry = -1, 20*time.Second, 20*time.Second
		r.up(site).err = errors.New("no answer")
		r.up("https://two.example/b").err = errors.New("no answer")
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour), repo("b", "https://two.example/b", time.Hour)}
		told := func() string {
			settle()
			r.mu.Lock()
			defer r.mu.Unlock()
			var all []string
			for _, e := range r.events {
				if e.InvolvedObject.Name == "a" && e.Severity != "trace" {
					all = append(all, fmt.Sprint(e.Severity, e.Metadata[serve.RepeatedKey]))
				}
			}
			r.events = nil
			return strings.Join(all, " ")
		}
		r.start()
		defer r.stop()
		time.Sleep(4 * time.Minute)
		if got := told(); got != "error" {
			t.Errorf("at first: %s", got)
		}
		time.Sleep(90 * time.Second)
		if got := told(); got != "error14" {
			t.Errorf("later: %s", got)
		}
		r.up(site).set(func(u *upstream) { u.err = errors.New("another answer") })
		time.Sleep(20 * time.Second)
		if got := told(); got != "error1" {
			t.Errorf("another: %s", got)
		}
		r.up(site).set(func(u *upstream) { u.err = nil })
		time.Sleep(20 * time.Second)
		if got := told(); !strings.HasPrefix(got, "info") {
			t.Errorf("recovery: %s", got)
		}
	})
}
