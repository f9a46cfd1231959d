package serve_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

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
