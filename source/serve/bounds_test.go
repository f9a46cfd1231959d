package serve_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

func TestRunsAtATime(t *testing.T) {
	for name, c := range map[string]struct{ hosts, want int }{
		"one host":   {1, 3},
		"many hosts": {10, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.Runs, r.PerHost = 8, 3
				for i := range 40 {
					url := fmt.Sprintf("https://h%d.example/%d", i%c.hosts, i)
					r.up(url).hang = time.Second
					r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("r", i), url, 1e5*time.Hour)) // the first of which is shorter
				}
				r.start()
				defer r.stop()
				time.Sleep(500 * time.Millisecond) // a file that is locked is tried again some milliseconds later
				for at := 40; at > 0; at -= c.want {
					if s := r.Stats(); s.Running != min(c.want, at) || s.Running+s.Queued != at || s.Objects != 40 {
						t.Fatalf("%+v, want %d of %d running", s, c.want, at)
					}
					time.Sleep(time.Second)
					synctest.Wait()
				}
			})
		})
	}
}

// Contents that wait for a slot are not charged for it, and one host has half of the slots.
func TestFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Fetches = 4
		for i := range 16 {
			url := fmt.Sprintf("https://one.example/%d", i)
			r.up(url).slow = 50 * time.Second // of the 60 that spec.timeout is
			r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("r", i), url, time.Hour))
		}
		r.start()
		defer r.stop()
		for range 8 {
			if s := r.Stats(); s.Fetching != 2 {
				t.Errorf("%+v", s)
			}
			time.Sleep(50 * time.Second)
			synctest.Wait()
		}
		for _, run := range r.took() {
			if run.Result.Outcome != source.Stored {
				t.Errorf("%+v", run)
			}
		}
	})
}

// Ten hosts that stall, with as many objects as they like, starve nobody: the
// objects of another host are on time once the first requests timed out.
func TestStalledHosts(t *testing.T) {
	for name, stall := range map[string]func(u *upstream){
		"answers":  func(u *upstream) { u.hang = time.Hour },
		"contents": func(u *upstream) { u.slow = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.Runs, r.PerHost, r.Fetches = 32, 16, 4
				for i := range 200 {
					url := fmt.Sprintf("https://bad%d.example/%d", i%10, i)
					stall(r.up(url))
					r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("bad", i), url, time.Minute))
				}
				for i := range 20 {
					r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("good", i), fmt.Sprint("https://good.example/", i), time.Minute))
				}
				r.start()
				defer r.stop()
				time.Sleep(5 * time.Minute)
				r.took()
				for i := range 20 {
					r.up(fmt.Sprint("https://good.example/", i)).set(func(u *upstream) { u.rev = "main@sha1:2222222222222222222222222222222222222222" })
				}
				time.Sleep(5 * time.Minute)
				runs, stored := 0, 0
				for _, run := range r.took() {
					if run.Object.Name[0] != 'g' {
						continue
					}
					runs++
					if run.Result.Outcome == source.Stored {
						stored++
					}
					if late := run.Started.Sub(run.Due) + run.Took; late > 3*time.Second {
						t.Errorf("%s: late by %s", run.Object, late)
					}
				}
				if runs < 80 || stored != 20 {
					t.Errorf("%d runs, %d stored", runs, stored)
				}
			})
		})
	}
}

// Ten thousand objects are run on time.
func TestCrowd(t *testing.T) {
	n := 10000
	if race {
		n = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Statuses, r.Emit = new(memory), nil
		for i := range n {
			url := fmt.Sprintf("https://h%d.example/%d", i%20, i%100)
			u := r.up(url)
			u.rev, u.hang = "", 20*time.Millisecond // nothing is stored
			r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("r", i), url, time.Minute))
		}
		var worst time.Duration
		runs := 0
		r.Observe = func(run serve.Run) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if runs++; run.Trigger == serve.Tick {
				worst = max(worst, run.Started.Sub(run.Due))
			}
		}
		r.start()
		defer r.stop()
		time.Sleep(time.Minute + 30*time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if worst > 3*time.Second || runs < 2*n-n/20 || runs > 3*n {
			t.Errorf("late by %s, %d runs", worst, runs)
		}
	})
}
