package controller_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

// A Secret that was rotated while nobody ran counts when somebody does, one
// that was not costs no run, and what is saved tells nobody what it was.
func TestSecretRotatedWhileDown(t *testing.T) {
	for name, rotated := range map[string]bool{"rotated": true, "same": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.up(site).secret = "login"
				r.feed.now = controller.Desired{Objects: []source.Object{repo("a", site, 24*time.Hour)}, Secrets: words{"login": "hunter2"}}
				r.start()
				r.stop()
				r.took()
				text, err := r.Ledger.Memo()
				if err != nil || len(text) == 0 || bytes.Contains(text, []byte("hunter2")) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte("hunter2")))) {
					t.Errorf("%s %v", text, err)
				}
				if rotated {
					r.feed.now.Secrets = words{"login": "hunter3"}
				}
				for range 2 { // the second time it is known
					r.start2(t)
					runs := r.took()
					r.stop()
					if rotated && (len(runs) != 1 || runs[0].Trigger != controller.Secret) || !rotated && len(runs) != 0 {
						t.Errorf("%+v", runs)
					}
					rotated = false
				}
			})
		})
	}
}

// A memo that is damaged harms nothing.
func TestDamagedMemo(t *testing.T) {
	for _, text := range []string{"{", `{"key":"AAAA"}`, `{"objects":[{"lookups":[{"sum":"AAAAAAAA"}]}]}`} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			if err := r.Ledger.SetMemo([]byte(text)); err != nil {
				t.Fatal(err)
			}
			r.up(site).secret = "login"
			r.feed.now = controller.Desired{Objects: []source.Object{repo("a", site, 24*time.Hour)}, Secrets: words{"login": "x"}}
			r.start()
			defer r.stop()
			if runs := r.took(); len(runs) != 1 || runs[0].Err != nil {
				t.Errorf("%+v", runs)
			}
		})
	}
}

// words are Secrets with one key.
type words map[string]string

func (w words) Secret(_ context.Context, _, name string) (source.Secret, error) {
	word, found := w[name]
	if !found {
		return source.Secret{}, fs.ErrNotExist
	}
	return source.Secret{Data: map[string][]byte{"password": []byte(word)}}, nil
}

func (w words) PullSecrets(context.Context, string, string) ([]source.Secret, error) { return nil, nil }

// What is saved of an object that is suspended is its document, though it never
// ran, or ran with another one.
func TestSuspendedIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		never, later := repo("never", site, time.Hour), repo("later", "https://two.example/b", time.Hour)
		never.Spec.Suspend = true
		r.feed.now.Objects = []source.Object{never, later}
		r.start()
		defer r.stop()
		check := func(name string, suspend bool) {
			t.Helper()
			obj, err := r.Ledger.Object(named(name))
			if err != nil || obj.Plan().Suspend != suspend {
				t.Errorf("%s: %+v %v", name, obj, err)
			}
		}
		check("never", true)
		check("later", false)
		held := *later
		held.Spec.Suspend = true
		r.feed.put(controller.Desired{Objects: []source.Object{never, &held}})
		settle()
		check("later", true)
		if obj, _ := r.Ledger.Object(named("later")); obj.Artifact() == nil {
			t.Error("its status is lost")
		}
		// while it runs
		r.up(later.Spec.URL).set(func(u *upstream) { u.hang = 10 * time.Second })
		edited := *later
		edited.Spec.Interval++
		r.feed.put(controller.Desired{Objects: []source.Object{never, &edited}})
		settle()
		held = edited
		held.Spec.Suspend = true
		r.feed.put(controller.Desired{Objects: []source.Object{never, &held}})
		time.Sleep(time.Minute)
		check("later", true)
	})
}

// A watcher who was away while more was removed than is kept is told to watch again.
func TestWatchBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Retention = time.Second
		r.Ledger = nil
		for i := range 1100 {
			o := repo(fmt.Sprint("r", i), site, time.Hour)
			o.Spec.Suspend = true
			r.feed.now.Objects = append(r.feed.now.Objects, o)
		}
		r.start()
		defer r.stop()
		first, ended := true, make(chan error, 1)
		release := make(chan struct{})
		go func() {
			ended <- r.Watch(t.Context(), func(controller.View) {
				if first {
					first = false
					<-release
				}
			})
		}()
		settle()
		r.feed.put(controller.Desired{})
		time.Sleep(time.Minute)
		close(release)
		if err := <-ended; !errors.Is(err, controller.ErrBehind) {
			t.Error(err)
		}
	})
}
