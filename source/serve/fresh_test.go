package serve_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

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
