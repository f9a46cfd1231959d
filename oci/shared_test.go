package oci_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// sharing returns an environment of objects that share all they can.
func (r *rig) sharing() source.Env {
	r.Helper()
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: r.TempDir()})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { cache.Close() })
	env := source.Env{Secrets: r.secrets, Limits: r.limits, Cache: cache, Share: new(source.Share), Since: time.Now(), Reuse: new(source.Connections)}
	r.Cleanup(env.Reuse.Close)
	return env
}

// fleet reconciles n objects at once that edit makes different.
func (r *rig) fleet(n int, env source.Env, edit func(i int, obj *source.OCIRepository)) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		obj := r.object(fmt.Sprint("app-", i), nil)
		edit(i, obj)
		all.Go(func() {
			_, errs[i] = (&source.Reconciler{Store: r.Store}).Reconcile(r.Context(), obj, oci.New(obj, env, technologies))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Objects of one repository that are due together cost it what one of them
// does, whatever each selects and makes of it.
func TestFleetAsksOnce(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	for _, tag := range []string{"1.0.0", "1.1.0"} {
		r.g.Push("team/app", tag, files(t, "a", "1", "b", "2"))
	}
	env := r.sharing()
	r.phases()
	ranges := func(i int, obj *source.OCIRepository) {
		obj.Spec.Ref = &source.OCIRepositoryRef{SemVer: []string{"1.x", ">=1.1", "*"}[i%3]}
		obj.Spec.Ignore = &[]string{"", "a"}[i%2]
	}
	if err := r.fleet(12, env, ranges); err != nil {
		t.Fatal(err)
	}
	if got, want := r.phases(), "1 get blob, 1 get manifest, 1 head manifest, 1 list tags"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	env.Since = time.Now()
	if err := r.fleet(12, env, ranges); err != nil {
		t.Fatal(err)
	}
	if got, want := r.phases(), "1 get manifest, 1 head manifest, 1 list tags"; got != want { // the objects are new
		t.Errorf("again: got %s, want %s", got, want)
	}
}

// What one is told and sent is not for those who come with other credentials,
// from another namespace with its own, or by another name of a Secret, which
// messages have.
func TestFleetApart(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(i int, obj *source.OCIRepository)
		blobs   int // that are asked for with credentials
		refused string
	}{
		"the same":          {func(int, *source.OCIRepository) {}, 1, ""},
		"another Secret":    {func(i int, obj *source.OCIRepository) { obj.Spec.SecretRef.Name = []string{"login", "twin"}[i] }, 2, ""},
		"another namespace": {func(i int, obj *source.OCIRepository) { obj.Metadata.Namespace = []string{"default", "other"}[i] }, 1, "secret other/login"},
		"no Secret": {func(i int, obj *source.OCIRepository) {
			if i == 1 {
				obj.Spec.SecretRef = nil
			}
		}, 1, "no credentials were sent"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, testenv.RegistryConfig{Username: "user", Password: canary})
			r.g.Push("team/app", "latest", files(t, "a", "1"))
			r.secrets["default/twin"] = r.secrets["default/login"]
			r.secrets["other/login"] = login(r.g.Host, "wrong-"+canary)
			err := r.fleet(2, r.sharing(), c.edit)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) || strings.Contains(fmt.Sprint(err), canary) {
				t.Error(err)
			}
			blobs := 0
			for _, q := range r.g.Requests() {
				if q.Phase == testenv.GetBlob && q.Authorization != "" { // who has asked nothing yet is told to say who it is
					blobs++
				}
			}
			if blobs != c.blobs {
				t.Errorf("%d blobs are fetched, want %d", blobs, c.blobs)
			}
		})
	}
}

// A blob that is not what it should be is kept for nobody.
func TestFleetDamagedBlob(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	r.g.Push("team/app", "latest", files(t, "a", "1"))
	env := r.sharing()
	r.g.Break(&testenv.Defect{Do: testenv.Cut, After: 10, Phase: testenv.GetBlob, Times: 1})
	same := func(int, *source.OCIRepository) {}
	if err := r.fleet(1, env, same); err == nil {
		t.Error("half a blob is stored")
	}
	if err := r.fleet(1, env, same); err != nil {
		t.Error(err)
	}
}
