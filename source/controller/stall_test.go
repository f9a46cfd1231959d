package controller_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

// Hosts that stall, as many as there are slots, each for the first time, hold up
// another one for some seconds and not until their requests time out.
func TestSlotsOfStalledHostsAreLent(t *testing.T) {
	for name, stall := range map[string]func(u *upstream){
		"resolve": func(u *upstream) { u.hang = time.Hour },
		"content": func(u *upstream) { u.slow = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.Runs, r.PerHost, r.Fetches = 8, 4, 4
				for i := range 24 {
					url := fmt.Sprintf("https://bad%d.example/%d", i%8, i)
					stall(r.up(url))
					r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("bad", i), url, time.Hour))
				}
				r.start()
				defer r.stop()
				time.Sleep(time.Second)
				r.feed.put(controller.Desired{Objects: append(r.feed.now.Objects, repo("good", site, time.Hour))})
				time.Sleep(25 * time.Second)
				if runs := r.took(); len(runs) != 1 || runs[0].Object != named("good") || runs[0].Result.Outcome != source.Stored {
					t.Errorf("%+v", runs)
				}
				if s := r.Stats(); s.Running > 4*8 || s.Fetching > 4*4 {
					t.Errorf("%+v", s)
				}
				time.Sleep(10 * time.Minute)
				for i := range 24 { // slots are neither lost nor won
					r.up(fmt.Sprintf("https://bad%d.example/%d", i%8, i)).set(func(u *upstream) { u.hang, u.slow = 0, 0 })
				}
				time.Sleep(2 * time.Hour)
				if s := r.Stats(); s.Idle != 25 || s.Fetching != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}
