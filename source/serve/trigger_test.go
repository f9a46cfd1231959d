package serve_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

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
