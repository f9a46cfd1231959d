package serve_test

import (
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
