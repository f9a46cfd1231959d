package chart_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// sharing returns an environment of objects that share all they can.
func (r *repoRig) sharing() source.Env {
	r.Helper()
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: r.TempDir()})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { cache.Close() })
	env := source.Env{Secrets: r.secrets, Cache: cache, Share: new(source.Share), Since: time.Now(), Reuse: new(source.Connections)}
	r.Cleanup(env.Reuse.Close)
	return env
}

// A repoFleet is objects of one repository, with what each remembers.
type repoFleet struct {
	*repoRig
	mu     sync.Mutex
	states map[string]source.State
	status map[string]source.PkgRepositoryStatus
}

// run reconciles n objects at once, and returns what the server was asked for: the statuses of its answers.
func (f *repoFleet) run(n int, env source.Env, edit func(i int, obj *source.PkgRepository)) (asked []int, err error) {
	errs := make([]error, n)
	var all sync.WaitGroup
	before := len(f.s.Requests())
	for i := range n {
		obj := f.object(nil)
		obj.Metadata.Name = fmt.Sprint("charts-", i)
		edit(i, obj)
		name := obj.Metadata.Namespace + "/" + obj.Metadata.Name
		f.mu.Lock() // the objects before have begun
		obj.Status = f.status[name]
		last := f.states[name]
		f.mu.Unlock()
		all.Go(func() { errs[i] = f.one(obj, name, last, env) })
	}
	all.Wait()
	for _, q := range f.s.Requests()[before:] {
		asked = append(asked, q.Status)
	}
	return asked, errors.Join(errs...)
}

func (f *repoFleet) one(obj *source.PkgRepository, name string, last source.State, env source.Env) error {
	var next source.State
	reconciler := &source.Reconciler{Store: f.Store,
		Load: func(context.Context, source.Object) (source.State, error) { return last, nil },
		Save: func(_ context.Context, _ source.Object, s source.State) error { next = s; return nil }}
	_, err := reconciler.Reconcile(f.Context(), obj, chart.NewRepository(obj, env))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[name], f.status[name] = next, obj.Status
	if err == nil && obj.Artifact() == nil {
		err = errors.New("no artifact")
	}
	return err
}

func newRepoFleet(t *testing.T, c testenv.ChartsConfig) *repoFleet {
	r := newRepoRig(t, c)
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	return &repoFleet{repoRig: r, states: map[string]source.State{}, status: map[string]source.PkgRepositoryStatus{}}
}

// Objects of one repository that are due together cost it what one of them does.
func TestRepositoryFleetAsksOnce(t *testing.T) {
	f := newRepoFleet(t, testenv.ChartsConfig{})
	env := f.sharing()
	same := func(int, *source.PkgRepository) {}
	for _, want := range []string{"[200]", "[304]", "[304]"} {
		env.Since = time.Now()
		if asked, err := f.run(10, env, same); fmt.Sprint(asked) != want || err != nil {
			t.Errorf("asked %v, %v, want %v", asked, err, want)
		}
	}
	f.s.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	env.Since = time.Now()
	if asked, err := f.run(12, env, same); fmt.Sprint(asked) != "[200 200]" || err != nil { // two of them are new
		t.Errorf("asked %v, %v", asked, err)
	}
}

// Those of other credentials are told on their own.
func TestRepositoryFleetApart(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(i int, obj *source.PkgRepository)
		want    string
		refused string
	}{
		"the same": {func(int, *source.PkgRepository) {}, "[200]", ""},
		"no Secret": {func(i int, obj *source.PkgRepository) {
			if i == 1 {
				obj.Spec.SecretRef = nil
			}
		}, "[200 401]", "401"},
		"who passes them on": {func(i int, obj *source.PkgRepository) { obj.Spec.PassCredentials = i == 1 }, "[200 200]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRepoFleet(t, testenv.ChartsConfig{Username: "user", Password: repoCanary})
			f.secrets["default/login"] = source.Secret{Data: map[string][]byte{"username": []byte("user"), "password": []byte(repoCanary)}}
			env := f.sharing()
			total := []int{}
			var errs []error
			for i := range 2 { // one after the other, so that the order is known
				asked, err := f.run(1, env, func(_ int, obj *source.PkgRepository) {
					obj.Metadata.Name = fmt.Sprint("own-", i)
					obj.Spec.SecretRef = &source.LocalReference{Name: "login"}
					c.edit(i, obj)
				})
				total, errs = append(total, asked...), append(errs, err)
			}
			err := errors.Join(errs...)
			if fmt.Sprint(total) != c.want || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("asked %v, %v; want %v", total, err, c.want)
			}
		})
	}
}
