package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

const (
	site  = "https://one.example/a"
	other = "https://two.example/b"
)

var errRefused = errors.New("connection refused")

func TestInterval(t *testing.T) {
	withFixture(t, list(repo("a", site, time.Minute)), nil, func(r *fixture) {
		if describe(r.firstRuns) != "a start stored" || r.view("a").Object.Artifact() == nil {
			r.Fatalf("%+v", r.firstRuns)
		}
		last := r.firstRuns[0].Started
		time.Sleep(10*time.Minute + 30*time.Second)
		runs := r.takeRuns()
		if len(runs) < 9 || len(runs) > 11 {
			r.Errorf("%d runs", len(runs))
		}
		for _, run := range runs {
			gap := run.Started.Sub(last)
			last = run.Started
			if gap < 57*time.Second || gap > 63*time.Second || run.Trigger != serve.Tick || run.Result.Outcome != source.Unchanged {
				r.Errorf("after %s: %+v", gap, run)
			}
		}
	})
}

func TestRequest(t *testing.T) {
	withFixture(t, list(repo("a", site, time.Hour)), nil, func(r *fixture) {
		r.upstream(site).set(func(u *upstream) { u.resolveDelay = time.Second })
		if first, err := r.Request(repoRef("a"), serve.Request); err != nil || first != 2 {
			r.Fatalf("run %d, %v", first, err)
		}
		synctest.Wait()
		for range 100 {
			if next, err := r.Request(repoRef("a"), serve.Hook); err != nil || next != 3 {
				r.Fatalf("run %d, %v", next, err)
			}
		}
		v, err := r.Wait(r.Context(), repoRef("a"), 3)
		if err != nil || v.Last.Number != 3 || v.Last.Trigger != serve.Hook {
			r.Errorf("%+v %v", v, err)
		}
		r.wantRuns("a request unchanged, a hook unchanged")
	})
}

// withAnnotation returns a copy of g with an additional annotation.
func withAnnotation(g *source.GitRepository, key, value string) *source.GitRepository {
	out := *g
	out.Metadata.Annotations = map[string]string{key: value}
	maps.Copy(out.Metadata.Annotations, g.Metadata.Annotations)
	return &out
}

// loginSecrets returns Secrets with one named login.
func loginSecrets(password string) source.Secrets {
	return &source.Set{Secrets: map[string]source.Secret{
		"default/login": {Type: "Opaque", Data: map[string][]byte{"password": []byte(password)}},
	}}
}

// accountSecrets are Secrets with those of one service account.
type accountSecrets string

func (accountSecrets) Secret(context.Context, string, string) (source.Secret, error) {
	return source.Secret{}, fs.ErrNotExist
}

func (p accountSecrets) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return []source.Secret{{Data: map[string][]byte{"password": []byte(p)}}}, nil
}

// withSuspend returns a copy of g that its spec suspends.
func withSuspend(g *source.GitRepository) *source.GitRepository {
	out := *g
	out.Spec.Suspend = true
	return &out
}

func TestTriggers(t *testing.T) {
	base := repo("a", site, time.Hour)
	login := func(r *fixture) { r.upstream(site).secret, r.feed.now.Secrets = "login", loginSecrets("old") }
	stalls := func(r *fixture) { r.upstream(site).err = fmt.Errorf("%w: no such branch", source.ErrInvalid) }
	put := func(objects ...source.Object) func(*fixture) { return func(r *fixture) { r.put(objects...) } }
	watched := func(password string) func(*fixture) {
		return func(r *fixture) {
			r.feed.put(serve.Desired{Objects: list(base), Secrets: loginSecrets(password), Watched: true})
		}
	}
	known := func(password string) func(*fixture) {
		return func(r *fixture) { r.feed.put(serve.Desired{Objects: list(base), Secrets: loginSecrets(password)}) }
	}
	for name, c := range map[string]struct {
		before, do func(r *fixture)
		want       string // the runs at once
	}{
		"nothing":                      {nil, put(base), ""},
		"the same in another document": {nil, put(repo("a", site, time.Hour)), ""},
		"another spec":                 {nil, put(repo("a", site, 2*time.Hour)), "a spec unchanged"},
		"requestedAt":                  {nil, put(withAnnotation(base, "reconcile.headgate.dev/requestedAt", "now")), "a request unchanged"},
		"requestedAt of the reference": {nil, put(withAnnotation(base, "reconcile.fluxcd.io/requestedAt", "now")), "a request unchanged"},
		"an annotation of events":      {nil, put(withAnnotation(base, "event.headgate.dev/team", "shop")), ""},
		"a request":                    {nil, func(r *fixture) { r.Request(repoRef("a"), serve.Request) }, "a request unchanged"},
		"a Secret":                     {login, known("new"), "a secret unchanged"},
		"the same Secret":              {login, known("old"), ""},
		"a Secret of a service account": {
			func(r *fixture) { r.upstream(site).account, r.feed.now.Secrets = "robot", accountSecrets("old") },
			func(r *fixture) { r.feed.put(serve.Desired{Objects: list(base), Secrets: accountSecrets("new")}) }, "a secret unchanged",
		},
		"a Secret that was missing":      {func(r *fixture) { r.upstream(site).secret = "login" }, known("new"), "a secret stored"},
		"a Secret that nobody asked for": {nil, known("new"), ""},
		"Secrets that are watched":       {login, watched("new"), ""},
		"a Secret that is told of": {login, func(r *fixture) {
			watched("new")(r)
			r.SecretChanged("default", "login")
		}, "a secret unchanged"},
		"Secrets of others that are told of": {login, func(r *fixture) {
			watched("new")(r)
			r.SecretChanged("default", "other")
			r.SecretChanged("other", "login")
		}, ""},
		"a Secret that is told of during a run": {
			func(r *fixture) { login(r); r.upstream(site).resolveDelay = time.Second },
			func(r *fixture) {
				watched("new")(r)
				r.SecretChanged("default", "login")
				time.Sleep(3 * time.Second)
			}, "a start stored, a secret unchanged",
		},
		"another spec of what is stalled": {
			stalls, put(repo("a", "https://one.example/b", time.Hour)), "a spec stored",
		},
		"a Secret during a run": {
			func(r *fixture) { login(r); r.upstream(site).resolveDelay = time.Second },
			func(r *fixture) {
				known("new")(r)
				time.Sleep(3 * time.Second)
			}, "a start stored, a secret unchanged",
		},
		"a hook": {nil, func(r *fixture) { r.upstream(site).push(); r.Request(repoRef("a"), serve.Hook) }, "a hook stored"},
		"a hook that comes before the push is to be seen": {nil, func(r *fixture) {
			r.Request(repoRef("a"), serve.Hook)
			synctest.Wait()
			r.upstream(site).push()
			time.Sleep(3 * time.Second)
		}, "a hook unchanged, a hook stored"},
		"a hook of nothing new": {nil, func(r *fixture) {
			r.Request(repoRef("a"), serve.Hook)
			time.Sleep(10 * time.Minute)
		}, "a hook unchanged, a hook unchanged"},
		"each hook has its second look": {nil, func(r *fixture) {
			r.Request(repoRef("a"), serve.Hook)
			time.Sleep(500 * time.Millisecond)
			r.Request(repoRef("a"), serve.Hook)
			time.Sleep(500 * time.Millisecond)
			r.upstream(site).push()
			time.Sleep(10 * time.Minute)
		}, "a hook unchanged, a hook unchanged, a hook stored"},
		"whatever ran meanwhile": {nil, func(r *fixture) {
			r.Request(repoRef("a"), serve.Hook)
			time.Sleep(500 * time.Millisecond)
			r.Request(repoRef("a"), serve.Request)
			time.Sleep(500 * time.Millisecond)
			r.upstream(site).push()
			time.Sleep(10 * time.Minute)
		}, "a hook unchanged, a request unchanged, a hook stored"},
		"a request of what is stalled": {stalls, func(r *fixture) {
			time.Sleep(24 * time.Hour)
			r.upstream(site).fail(nil)
			r.Request(repoRef("a"), serve.Request)
		}, "a request stored"},
		"removed and back": {nil, func(r *fixture) {
			r.put()
			time.Sleep(10 * time.Minute)
			r.put(repo("a", site, time.Hour))
		}, "a start unchanged"},
		"missing because of a defect": {nil, func(r *fixture) {
			r.feed.put(serve.Desired{Defects: []error{errors.New("a.yaml:1: no YAML")}})
			if v := r.view("a"); !v.Missing || v.Phase != serve.Idle || len(r.Defects()) != 1 {
				r.Errorf("%+v", v)
			}
			r.put(base)
		}, ""},
		"a request of what is in line": {func(r *fixture) { r.Runs = 1 }, func(r *fixture) {
			hog := repo("hog", other, time.Hour)
			r.upstream(other).set(delayResolve(10 * time.Second))
			r.put(base, hog)
			r.put(repo("a", site, 2*time.Hour), hog)
			r.wantPhase(serve.Queued, "a")
			r.Request(repoRef("a"), serve.Request)
			time.Sleep(time.Minute)
		}, "hog start stored, a request unchanged"},
		"the highest reason counts": {nil, put(repo("a", site, time.Hour, "base"), repo("base", other, time.Hour)), "base start stored, a spec stored"},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, list(base), c.before, func(r *fixture) {
				c.do(r)
				r.wantRuns(c.want)
			})
		})
	}
}

// A spec that changes during a run takes effect, and the result of the run is not lost.
func TestSpecDuringRun(t *testing.T) {
	withFixture(t, list(repo("a", site, time.Hour)), func(r *fixture) { r.upstream(site).resolveDelay = time.Second }, func(r *fixture) {
		ignore := "*.md"
		next := repo("a", site, time.Hour)
		next.Spec.Ignore = &ignore
		r.put(next)
		time.Sleep(1500 * time.Millisecond)
		v := r.view("a")
		g := v.Object.(*source.GitRepository)
		if v.Phase != serve.Running || g.Spec.Ignore == nil || g.Status.Artifact == nil || v.Last.Number != 1 {
			r.Errorf("%+v", v)
		}
		time.Sleep(time.Minute)
		r.wantRuns("a start stored, a spec stored")
		if v := r.view("a"); v.Object.Head().Metadata.Generation != 2 || v.Object.Common().ObservedGeneration != 2 {
			r.Errorf("%+v", v)
		}
	})
}

// The generation counts changes of the spec, at once and even without a ledger.
func TestGeneration(t *testing.T) {
	for name, statuses := range map[string]serve.Statuses{"ledger": nil, "memory": new(memoryStatuses)} {
		t.Run(name, func(t *testing.T) {
			before := func(r *fixture) {
				if statuses != nil {
					r.Statuses = statuses
				}
			}
			withFixture(t, list(repo("a", site, time.Hour)), before, func(r *fixture) {
				for i, c := range []struct {
					doc                  source.Object
					generation, observed int64
				}{
					{repo("a", site, time.Hour), 1, 1}, {repo("a", site, 2*time.Hour), 2, 2}, {withSuspend(repo("a", site, 2*time.Hour)), 3, 2}, {repo("a", site, 3*time.Hour), 4, 4},
				} {
					r.put(c.doc)
					settle()
					v := r.view("a")
					if g, o := v.Object.Head().Metadata.Generation, v.Object.Common().ObservedGeneration; g != c.generation || o != c.observed {
						r.Errorf("%d: generation %d, observed %d", i, g, o)
					}
				}
			})
		})
	}
}

func TestBackOff(t *testing.T) {
	withFixture(t, list(repo("a", site, time.Hour), repo("often", other, time.Minute)), func(r *fixture) {
		r.upstream(site).err, r.upstream(other).err = errRefused, errRefused
	}, func(r *fixture) {
		time.Sleep(2 * time.Hour)
		var runs, often []serve.Run
		for _, run := range append(r.firstRuns, r.takeRuns()...) {
			if run.Object.Name == "a" {
				runs = append(runs, run)
			} else if time.Since(run.Started) < time.Hour {
				often = append(often, run)
			}
		}
		want := 750 * time.Millisecond
		for i, run := range runs[1:] {
			gap := run.Started.Sub(runs[i].Started)
			if run.Trigger != serve.Retry || run.Result.Outcome != source.Failed || gap < want*95/100 || gap > min(want*105/100, 15*time.Minute) {
				r.Errorf("run %d after %s, want %s: %+v", i+2, gap, want, run)
			}
			want = min(2*want, 15*time.Minute)
		}
		if len(often) < 58 || len(often) > 65 { // at least once per interval
			r.Errorf("%d runs in an hour", len(often))
		}
		if v := r.view("a"); v.Failures != len(runs) || !v.Checked.IsZero() || v.Next.IsZero() || v.Phase != serve.Idle {
			r.Errorf("%d runs: %+v", len(runs), v)
		}
		r.put(repo("a", site, time.Hour))
		r.upstream(site).fail(nil)
		time.Sleep(15 * time.Minute)
		if v := r.view("a"); v.Failures != 0 || v.Checked.IsZero() {
			r.Errorf("%+v", v)
		}
		r.upstream(site).fail(errRefused)
		r.takeRuns()
		r.Request(repoRef("a"), serve.Request)
		time.Sleep(time.Second)
		r.wantRuns("a request failed, a retry failed") // the first retry again
	})
}

type retryAfterError time.Duration

func (b retryAfterError) Error() string             { return "too many requests" }
func (b retryAfterError) RetryAfter() time.Duration { return time.Duration(b) }

func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		err         error
		least, most time.Duration // until the next run; 0: there is none
		phase       serve.Phase
		failures    int
	}{
		"failed":           {errRefused, 600 * time.Millisecond, 800 * time.Millisecond, serve.Idle, 1},
		"Retry-After":      {retryAfterError(5 * time.Minute), 299 * time.Second, 5 * time.Minute, serve.Idle, 1},
		"long Retry-After": {retryAfterError(5 * time.Hour), 3599 * time.Second, time.Hour, serve.Idle, 1},
		"waiting":          {fmt.Errorf("%w: soon", source.ErrWaiting), 29 * time.Second, 30 * time.Second, serve.Idle, 0},
		"stalled":          {fmt.Errorf("%w: never", source.ErrInvalid), 0, 0, serve.Stalled, 0},
		"none":             {nil, 57 * time.Minute, 63 * time.Minute, serve.Idle, 0},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, list(repo("a", site, time.Hour)), func(r *fixture) { r.upstream(site).err = c.err }, func(r *fixture) {
				v := r.view("a")
				in := v.Next.Sub(v.Last.Started.Add(v.Last.Took))
				if v.Phase != c.phase || v.Failures != c.failures || v.Next.IsZero() != (c.most == 0) || c.most != 0 && (in < c.least || in > c.most) {
					r.Errorf("due in %s: %+v", in, v)
				}
				time.Sleep(c.most + time.Second)
				testenv.Equal(r.TB, len(r.takeRuns()), min(1, int(c.most)))
			})
		})
	}
}

// An object with a malicious name, an object of an unknown kind, and a second object with the same name do not affect
// others.
func TestBadObjects(t *testing.T) {
	bucket := &source.Bucket{Header: source.Header{APIVersion: source.Group + "/v1", Kind: "Bucket", Metadata: source.Metadata{Name: "unknown"}}}
	bucket.Spec.Interval = source.Duration(time.Minute)
	objects := list(bucket, repo("../../etc", site, time.Minute), repo("a", site, time.Minute), repo("a", other, time.Minute))
	withFixture(t, objects, func(r *fixture) {
		r.upstream(other).panics = true
		r.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
			if obj.Head().Kind == "Bucket" {
				return nil, errors.New("no such kind")
			}
			return r.origin(obj, env)
		}
	}, func(r *fixture) {
		time.Sleep(5 * time.Minute)
		for _, v := range r.Views() {
			if name := v.Object.Head().Metadata.Name; name == "a" && (v.Last.Result.Outcome != source.Unchanged || v.Last.Number < 5) || name != "a" && v.Phase != serve.Stalled {
				r.Errorf("%s: %+v", name, v)
			}
		}
	})
}

// A panic anywhere in an origin makes only that run fail, leaves the object unchanged, and returns the slots.
func TestPanics(t *testing.T) {
	for _, at := range []string{"origin", "resolve", "open", "verify", "write", "close"} {
		t.Run(at, func(t *testing.T) {
			withFixture(t, list(repo("a", site, time.Hour), repo("b", other, time.Hour)), func(r *fixture) {
				r.Runs, r.Fetches = 1, 1
				r.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
					from, err := r.origin(obj, env)
					if obj.Head().Metadata.Name == "b" {
						return from, err
					}
					return panickingOrigin{from, at}.panicAt("origin"), err
				}
			}, func(r *fixture) {
				got := describe(r.firstRuns)
				v := r.view("a")
				var panicked *source.PanicError
				if got != "a start failed, b start stored" || !errors.As(v.Last.Err, &panicked) || v.Failures != 1 || v.Next.IsZero() || v.Phase != serve.Idle {
					r.Errorf("%s: %+v", got, v)
				}
				if n := r.count(serve.Running); n != 0 || r.Stats().Fetching != 0 {
					r.Errorf("%d run, %+v", n, r.Stats())
				}
			})
		})
	}
}

// A panickingOrigin panics in one of its methods.
type panickingOrigin struct {
	source.Origin
	at string
}

func (f panickingOrigin) panicAt(at string) panickingOrigin {
	if f.at == at {
		panic("a \x1b[31mdefect")
	}
	return f
}

func (f panickingOrigin) Resolve(ctx context.Context, s source.State) (source.Revision, source.State, error) {
	return f.panicAt("resolve").Origin.Resolve(ctx, s)
}

func (f panickingOrigin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := f.panicAt("open").Origin.Open(ctx, rev)
	return panickingContent{c, f}, err
}

type panickingContent struct {
	source.Content
	f panickingOrigin
}

func (c panickingContent) Verify(ctx context.Context) (source.Verification, error) {
	c.f.panicAt("verify")
	return c.Content.Verify(ctx)
}

func (c panickingContent) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	c.f.panicAt("write")
	return c.Content.WriteTo(ctx, w)
}

func (c panickingContent) Close() error {
	c.f.panicAt("close")
	return c.Content.Close()
}

// A run shares answers of an upstream that are at most as old as its request or as a part of its interval, and never older
// than the previous run.
func TestFreshness(t *testing.T) {
	var last atomic.Pointer[time.Time]
	since := func() time.Time { return *last.Load() }
	var began time.Time
	withFixture(t, list(repo("a", site, time.Hour)), func(r *fixture) {
		began = time.Now()
		r.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
			last.Store(&env.Since)
			return r.origin(obj, env)
		}
	}, func(r *fixture) {
		if since().Before(began) {
			r.Errorf("first run: %s before the start", began.Sub(since()))
		}
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		v := r.view("a")
		if old := v.Last.Due.Sub(since()); v.Last.Trigger != serve.Tick || old < time.Minute || old > 5*time.Minute {
			r.Errorf("%s: %s old", v.Last.Trigger, old)
		}
		r.upstream(site).set(func(u *upstream) { u.resolveDelay = 10 * time.Second })
		r.Request(repoRef("a"), serve.Request)
		time.Sleep(5 * time.Second)
		requestedAt := time.Now() // while a run is under way
		r.Request(repoRef("a"), serve.Hook)
		time.Sleep(6 * time.Second)
		if !since().Equal(requestedAt) {
			r.Errorf("answers from %s after it was asked for", since().Sub(requestedAt))
		}
		r.upstream(site).set(func(u *upstream) { u.resolveDelay, u.err = 0, errRefused })
		run, _ := r.Request(repoRef("a"), serve.Request)
		v, err := r.Wait(r.Context(), repoRef("a"), run)
		r.must(err)
		ended := v.Last.Started.Add(v.Last.Took)
		time.Sleep(time.Second) // the first retry
		if since().Before(ended) {
			r.Errorf("retry: answers from %s before the end of the last run", ended.Sub(since()))
		}
	})
}

// A failure that every retry repeats is reported once in a while, with the number of repetitions; a different failure and
// the recovery are reported at once.
func TestRepeatedEvents(t *testing.T) {
	withFixture(t, list(repo("a", site, time.Hour), repo("b", other, time.Hour)), func(r *fixture) {
		r.Jitter, r.MinRetry, r.MaxRetry = -1, 20*time.Second, 20*time.Second
		r.upstream(site).err, r.upstream(other).err = errRefused, errRefused
	}, func(r *fixture) {
		expectEvents := func(wait time.Duration, err error, want string) {
			r.Helper()
			r.upstream(site).fail(err)
			time.Sleep(wait)
			settle()
			var all []string
			for _, e := range r.emittedEvents() {
				if e.InvolvedObject.Name == "a" && e.Severity != "trace" {
					all = append(all, fmt.Sprint(e.Severity, e.Metadata[serve.RepeatedKey]))
				}
			}
			testenv.Equal(r.TB, strings.Join(all, " "), want, "events")
		}
		expectEvents(4*time.Minute, errRefused, "error")
		expectEvents(90*time.Second, errRefused, "error error14")
		expectEvents(20*time.Second, errors.New("another answer"), "error error14 error1")
		expectEvents(20*time.Second, nil, "error error14 error1 info")
	})
}

// Objects run after the objects that they need, and when these have changed.
func TestDependencies(t *testing.T) {
	app, mid, base := repo("app", "https://two.example/app", time.Hour, "mid"), repo("mid", "https://two.example/mid", time.Hour, "base"), repo("base", site, time.Hour)
	withFixture(t, list(app, mid, base), func(r *fixture) { r.upstream(site).resolveDelay = time.Second }, func(r *fixture) {
		for name, want := range map[string]string{"app": "[GitRepository/default/mid]", "mid": "[GitRepository/default/base]"} {
			if v := r.view(name); v.Phase != serve.Blocked || fmt.Sprint(v.Blockers) != want {
				r.Errorf("%s: %+v", name, v)
			}
		}
		time.Sleep(2 * time.Second)
		r.wantRuns("base start stored, mid start stored, app start stored")
		r.upstream(site).push() // a changed input reaches its dependents at once
		r.Request(repoRef("base"), serve.Hook)
		time.Sleep(2 * time.Second)
		r.wantRuns("base hook stored, mid input stored, app input stored")
		r.Request(repoRef("base"), serve.Request) // a run that finds nothing new does not
		time.Sleep(2 * time.Second)
		r.wantRuns("base request unchanged")
		r.Request(repoRef("base"), serve.Request) // a run waits for the later one of two runs of its input
		time.Sleep(time.Millisecond)
		r.Request(repoRef("base"), serve.Request)
		r.Request(repoRef("mid"), serve.Request)
		time.Sleep(5 * time.Second)
		r.wantRuns("base request unchanged, base request unchanged, mid request unchanged")
		next, _ := r.Request(repoRef("base"), serve.Request)
		time.Sleep(time.Millisecond)
		r.Request(repoRef("mid"), serve.Request)
		for range 10 { // an input that is requested without pause does not block its dependents
			r.Request(repoRef("base"), serve.Request)
			_, err := r.Wait(r.Context(), repoRef("base"), next)
			r.must(err)
			next++
		}
		testenv.Equal(r.TB, strings.Count(describe(r.takeRuns()), "mid"), 1, "ran")
		time.Sleep(2 * time.Second)
		r.takeRuns()
		r.put(mid, app) // an object whose input was removed keeps its artifact
		r.wantRuns("mid input waiting, app input unchanged")
		if r.view("mid").Object.Artifact() == nil {
			r.Errorf("%+v", r.view("mid"))
		}
		r.restart(nil) // objects with inputs run at once
		r.wantRuns("mid start waiting, app input unchanged")
	})
	withFixture(t, list(repo("app", other, time.Hour, "base")), func(r *fixture) { r.upstream(site).err = errRefused }, func(r *fixture) {
		r.put(repo("app", other, time.Hour, "base"), base) // the missing input appears, and fails
		r.takeRuns()
		if v := r.view("app"); v.Last.Result.Outcome != source.Waiting || !strings.Contains(v.Last.Err.Error(), "base") {
			r.Errorf("%+v", v)
		}
		time.Sleep(10 * time.Second)
		r.takeRuns()
		r.upstream(site).fail(nil)
		r.Request(repoRef("base"), serve.Request)
		r.wantRuns("base request stored, app input stored")
	})
}

// Errors name circles of objects that need each other, and circles do not hold up other objects.
func TestCircle(t *testing.T) {
	a, b := repo("a", site, time.Hour, "b"), repo("b", site, time.Hour, "a")
	withFixture(t, list(a, b, repo("self", site, time.Hour, "self"), repo("c", site, time.Hour)), nil, func(r *fixture) {
		for name, circle := range map[string]string{
			"a":    "GitRepository/default/a → GitRepository/default/b → GitRepository/default/a",
			"b":    "GitRepository/default/b → GitRepository/default/a → GitRepository/default/b",
			"self": "GitRepository/default/self → GitRepository/default/self",
		} {
			v := r.view(name)
			if c := v.Object.Common().Condition(source.StalledCondition); v.Phase != serve.Stalled || !strings.Contains(c.Message, circle) {
				r.Errorf("%s: %+v %s", name, v, c.Message)
			}
		}
		r.put(repo("a", site, time.Hour), b) // one of them is corrected: both run
		r.wantRuns("a spec stored, b input stored")
	})
}

func TestChain(t *testing.T) {
	const n = 100
	var objects []source.Object
	for i := range n {
		name, before := fmt.Sprint("r", i), []string{}
		if i > 0 {
			before = append(before, fmt.Sprint("r", i-1))
		}
		objects = append(objects, repo(name, "https://two.example/"+name, 1000*time.Hour, before...))
	}
	withFixture(t, objects, func(r *fixture) {
		r.Statuses = new(memoryStatuses)
		for i := range n {
			r.upstream(fmt.Sprint("https://two.example/r", i)).rev = "" // nothing is stored
		}
	}, func(r *fixture) {
		for i, run := range r.firstRuns {
			if run.Object.Name != fmt.Sprint("r", i) || run.Result.Outcome != source.Unchanged {
				r.Fatalf("run %d: %+v", i, run)
			}
		}
		testenv.Equal(r.TB, len(r.firstRuns), n)
	})
}

// An ExternalArtifact is never run; a new artifact in its document is a changed input.
func TestExternalArtifact(t *testing.T) {
	external := func(digest string) *source.ExternalArtifact {
		e := &source.ExternalArtifact{Header: source.Header{APIVersion: source.Group + "/v1", Kind: "ExternalArtifact", Metadata: source.Metadata{Name: "out", Namespace: "default"}}}
		e.Status.Artifact = &artifact.Artifact{Path: "a", URL: "http://localhost/a", Revision: "1", Digest: "sha256:" + strings.Repeat(digest, 64)}
		return e
	}
	app := repo("app", site, time.Hour)
	app.Spec.Include = []source.GitRepositoryInclude{{Repository: source.IncludeReference{Kind: "ExternalArtifact", Name: "out"}}}
	withFixture(t, list(app, external("1")), nil, func(r *fixture) {
		testenv.Equal(r.TB, describe(r.firstRuns), "app start stored", "ran")
		r.put(app, external("2"))
		r.wantRuns("app input stored")
		ref := source.Reference{Kind: "ExternalArtifact", Namespace: "default", Name: "out"}
		if n, err := r.Request(ref, serve.Request); n != 0 || err != nil {
			r.Errorf("run %d, %v", n, err)
		}
		if v, err := r.Wait(r.Context(), ref, 0); err != nil || v.Object.Artifact() == nil || v.Phase != serve.Idle {
			r.Errorf("%+v %v", v, err)
		}
	})
}

// The longest and the shortest interval, and an endless retention, cause no overflow.
func TestExtremes(t *testing.T) {
	objects := list(repo("longest", "https://one.example/longest", math.MaxInt64), repo("never", "https://one.example/never", 0), repo("short", "https://one.example/short", 100*time.Millisecond), repo("gone", site, time.Hour))
	withFixture(t, objects, func(r *fixture) { r.Retention = math.MaxInt64 }, func(r *fixture) {
		r.put(objects[:2]...)
		time.Sleep(24 * time.Hour)
		if r.wantPhase(serve.Removed, "gone"); r.Store.Check(*r.view("gone").Object.Artifact()) != nil {
			r.Error("its artifact is not there")
		}
		r.restart(func() { r.feed.now.Objects = objects[:3] })
		time.Sleep(10 * time.Second)
		runs := map[string]int{}
		for _, run := range r.takeRuns() {
			runs[run.Object.Name]++
		}
		if runs["longest"] != 0 || runs["never"] != 0 || runs["short"] < 80 || runs["short"] > 120 {
			r.Errorf("%v", runs)
		}
		if v := r.view("longest"); !v.Next.After(time.Now()) {
			r.Errorf("due at %s", v.Next)
		}
	})
}

func TestSuspend(t *testing.T) {
	withFixture(t, list(repo("a", site, time.Minute)), func(r *fixture) { r.upstream(site).resolveDelay = time.Second }, func(r *fixture) {
		r.must(r.Suspend(repoRef("a"), source.Suspension{By: "alice", Reason: "freeze"}))
		r.wantPhase(serve.Running, "a") // the run under way ends first
		time.Sleep(time.Hour)
		r.wantRuns("a start stored")
		if v := r.view("a"); v.Phase != serve.Suspended || v.Suspension.By != "alice" || v.Object.Artifact() == nil || !v.Next.IsZero() {
			r.Errorf("%+v", v)
		}
		if _, err := r.Request(repoRef("a"), serve.Request); !errors.Is(err, serve.ErrSuspended) {
			r.Errorf("request: %v", err)
		}
		r.must(r.Suspend(repoRef("a"), source.Suspension{By: "bob"}))
		if by := r.view("a").Suspension.By; by != "bob" {
			r.Errorf("by %s", by)
		}
		r.put(repo("a", "https://one.example/b", time.Minute))
		r.wantRuns("")
		r.must(r.Resume(repoRef("a")))
		time.Sleep(2 * time.Second)
		r.wantRuns("a request unchanged")
		for _, err := range []error{r.Suspend(repoRef("b"), source.Suspension{}), r.Resume(repoRef("b"))} {
			if !errors.Is(err, fs.ErrNotExist) {
				r.Errorf("%v", err)
			}
		}
		r.put(withSuspend(repo("a", "https://one.example/b", time.Minute)))
		time.Sleep(time.Hour)
		r.wantRuns("")
		if v := r.view("a"); v.Phase != serve.Suspended || v.Suspension != nil {
			r.Errorf("%+v", v)
		}
		if err := r.Resume(repoRef("a")); !errors.Is(err, serve.ErrSuspended) {
			r.Errorf("resume: %v", err)
		}
		r.put(repo("a", "https://one.example/b", time.Minute))
		r.wantRuns("a spec unchanged")
	})
}

// A suspension ends calls of Wait, and unblocks objects that wait for the suspended object.
func TestSuspendBlocker(t *testing.T) {
	hog, base := repo("hog", other, time.Hour), repo("base", site, time.Hour)
	for name, suspend := range map[string]func(r *fixture){
		"by a command": func(r *fixture) { r.must(r.Suspend(repoRef("base"), source.Suspension{})) },
		"by its spec":  func(r *fixture) { r.put(hog, withSuspend(base), repo("app", site, time.Hour, "base")) },
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, list(hog), func(r *fixture) { r.Runs, r.upstream(other).resolveDelay = 1, 10*time.Second }, func(r *fixture) {
				r.put(hog, base, repo("app", site, time.Hour, "base"))
				waited := make(chan error, 1)
				go func() {
					_, err := r.Wait(context.Background(), repoRef("base"), 1)
					waited <- err
				}()
				synctest.Wait()
				r.wantPhase(serve.Blocked, "app")
				suspend(r)
				if err := <-waited; !errors.Is(err, serve.ErrSuspended) {
					r.Errorf("wait: %v", err)
				}
				r.wantPhase(serve.Queued, "app")
				time.Sleep(time.Minute)
				testenv.Equal(r.TB, r.view("app").Last.Result.Outcome, source.Waiting)
			})
		})
	}
}

func TestWait(t *testing.T) {
	withFixture(t, list(repo("a", site, time.Hour)), nil, func(r *fixture) {
		if _, err := r.Wait(r.Context(), repoRef("b"), 1); !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		if _, err := r.Wait(ctx, repoRef("a"), 99); !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("%v", err)
		}
		for want, end := range map[error]func(){fs.ErrNotExist: func() { r.put() }, serve.ErrEnded: func() { r.restart(nil) }} {
			r.put(repo("a", site, time.Hour))
			ended := make(chan error, 1)
			go func() {
				_, err := r.Wait(context.Background(), repoRef("a"), 99)
				ended <- err
			}()
			synctest.Wait()
			end()
			if err := <-ended; !errors.Is(err, want) {
				r.Errorf("%v, want %v", err, want)
			}
		}
	})
}

// Views are ordered and never modified. They contain a new artifact by the time it is announced, before the artifact that
// it replaces may be deleted.
func TestViews(t *testing.T) {
	announced := 0
	withFixture(t, list(repo("c", other, time.Hour), repo("a", site, time.Hour), repo("b", other, time.Hour)), func(r *fixture) {
		r.Emit = func(e source.Event) {
			v, err := r.View(repoRef("a"))
			if err != nil || e.Reason != "NewArtifact" || e.InvolvedObject.Name != "a" {
				return
			}
			if announced++; announced == 2 && v.Object.Artifact().Digest != e.Metadata["source.toolkit.fluxcd.io/digest"] {
				t.Errorf("announced %v, and the view has %+v", e.Metadata, v.Object.Artifact())
			}
		}
	}, func(r *fixture) {
		var names string
		for _, v := range r.Views() {
			names += v.Object.Head().Metadata.Name
		}
		if names != "abc" || !r.Ready() {
			r.Errorf("%s", names)
		}
		before := r.view("a")
		copied := *before.Object.Common()
		r.upstream(site).push()
		r.Request(repoRef("a"), serve.Request)
		r.takeRuns()
		after := r.view("a")
		if before.Object.Artifact().Revision == after.Object.Artifact().Revision || copied.Artifact != before.Object.Artifact() || after.Last.Number != 2 || announced != 2 {
			r.Errorf("%d announced, %+v became %+v", announced, before, after)
		}
	})
}

func TestWatch(t *testing.T) {
	base := list(repo("a", site, time.Hour), repo("b", site, time.Hour))
	withFixture(t, base, func(r *fixture) { r.Retention = time.Minute }, func(r *fixture) {
		ctx, cancel := context.WithCancel(r.Context())
		var fast, slow []string
		tell := func(to *[]string, pause time.Duration) func([]serve.View) {
			return func(views []serve.View) {
				time.Sleep(pause) // a slow watcher does not hold up others
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
		go func() { done <- r.Watch(ctx, tell(&fast, 0)) }()
		go func() { done <- r.Watch(ctx, tell(&slow, time.Hour)) }()
		testenv.Equal(r.TB, read(&fast), []string{"a1idle", "b1idle"})
		for range 100 {
			r.Request(repoRef("a"), serve.Request)
			time.Sleep(time.Second)
		}
		if got := read(&fast); len(got) != 100 || got[99] != "a101idle" {
			r.Errorf("%d: %v", len(got), got)
		}
		r.put(base[0])
		time.Sleep(2 * time.Minute)
		testenv.Equal(r.TB, read(&fast), []string{"b1removed", "b1gone"})
		time.Sleep(12 * time.Hour)
		if got := read(&slow); len(got) > 30 || !slices.Contains(got, "b1gone") {
			r.Errorf("slow: %v", got)
		}
		cancel()
		testenv.Equal(r.TB, errors.Join(<-done, <-done), nil)
	})
}

// When the server ends, runs are interrupted and not recorded.
func TestShutdown(t *testing.T) {
	var objects []source.Object
	for i := range 20 {
		objects = append(objects, repo(fmt.Sprint("r", i), fmt.Sprintf("https://h%d.example/", i), time.Hour))
	}
	withFixture(t, objects, func(r *fixture) {
		r.Runs, r.Fetches = 3, 2
		for i := range 20 {
			up := r.upstream(fmt.Sprintf("https://h%d.example/", i))
			if up.resolveDelay = time.Minute - time.Second; i%2 != 0 {
				up.resolveDelay, up.openDelay = 0, up.resolveDelay
			}
		}
	}, func(r *fixture) {
		server := r.Server
		r.stop()
		r.wantRuns("")
		for _, v := range r.Views() {
			if v.Phase == serve.Running || v.Last.Number != 0 || len(v.Object.Common().Conditions) != 0 {
				r.Errorf("%+v", v)
			}
		}
		testenv.Equal(r.TB, r.Stats().Fetching, 0, "%+v", r.Stats())
		if err := server.Run(r.Context()); err == nil {
			r.Error("it ran twice")
		}
		r.start()
	})
}

type feedFunc func(context.Context, func(serve.Desired)) error

func (f feedFunc) Follow(ctx context.Context, set func(serve.Desired)) error { return f(ctx, set) }

// An error of the feed ends the server; a feed that returns nil does not.
func TestFeedEnds(t *testing.T) {
	for _, want := range []error{nil, errors.New("the directory is gone")} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t)
			r.Feed = feedFunc(func(ctx context.Context, set func(serve.Desired)) error {
				set(serve.Desired{Objects: list(repo("a", site, time.Minute))})
				pause(ctx, time.Minute)
				return want
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := newServer(t, r.Config).Run(ctx); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if n := len(r.takeRuns()); want == nil && n < 55 || want != nil && n > 3 {
				t.Errorf("%v: %d runs", want, n)
			}
		})
	}
}

// Due times do not depend on the system time.
func TestClockJumps(t *testing.T) {
	var off atomic.Int64
	objects := list(repo("a", site, time.Minute), repo("old", site, time.Minute))
	withFixture(t, objects, func(r *fixture) { r.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) } }, func(r *fixture) {
		r.put(objects[0])
		for i := range 20 {
			off.Store(int64(i%3-1) * int64(365*24*time.Hour))
			time.Sleep(time.Minute)
			if in := r.view("a").Next.Sub(r.Now()); in < 0 || in > 63*time.Second {
				r.Errorf("due in %s", in)
			}
		}
		runs := r.takeRuns()
		if len(runs) < 19 || len(runs) > 22 {
			r.Errorf("%d runs", len(runs))
		}
		for _, run := range runs {
			if late := run.Started.Sub(run.Due); late < 0 || late > time.Second {
				r.Errorf("%+v", run)
			}
		}
		r.wantPhase(serve.Removed, "old")
	})
}
