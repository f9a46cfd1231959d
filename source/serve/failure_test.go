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
