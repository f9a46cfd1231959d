package chart_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestRepositoryStoresWhatTheServerHas(t *testing.T) {
	for name, c := range map[string]testenv.ChartsConfig{"yaml": {}, "json": {JSON: true}, "gzip": {Gzip: true}, "gzip, json": {Gzip: true, JSON: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRepositorySetup(t, c)
			for i := range 40 {
				r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0." + string(rune('0'+i%10)) + string(rune('0'+i/10))})
			}
			obj := r.object(nil)
			r.run(obj, source.Stored)
			if got := r.bytes(obj.Artifact()); !bytes.Equal(got, r.s.Index()) {
				t.Errorf("stored %d bytes, which are not the %d of the server", len(got), len(r.s.Index()))
			}
			if r.s.Requests()[0].Header.Get("Accept-Encoding") != "gzip" {
				t.Error("compression was not asked for")
			}
			if compressed := r.s.ContentBytes() < int64(len(r.s.Index())); compressed != c.Gzip {
				t.Errorf("%d bytes came for %d", r.s.ContentBytes(), len(r.s.Index()))
			}
			if !strings.HasSuffix(obj.Status.URL, "/pkgrepository/default/charts/index.yaml") {
				t.Errorf("status.url %s", obj.Status.URL)
			}
		})
	}
}

func TestRepositoryUnchangedCostsOne304(t *testing.T) {
	for name, c := range map[string]testenv.ChartsConfig{
		"ETag and date": {}, "weak ETag": {Weak: true}, "ETag alone": {NoDate: true}, "date alone": {NoETag: true}, "gzip": {Gzip: true, Weak: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepositorySetup(t, c)
			r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
			r.run(r.object(nil), source.Stored)
			r.asked(200)
			for range 3 {
				r.run(r.object(nil), source.Unchanged)
				r.asked(304)
			}
			r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
			obj := r.object(nil)
			r.run(obj, source.Stored)
			r.asked(200)
			if !bytes.Equal(r.bytes(obj.Artifact()), r.s.Index()) {
				t.Error("the new artifact is not the new index")
			}
			r.run(r.object(nil), source.Unchanged)
			r.asked(304)
		})
	}
}

func TestRepositoryInAnotherOrderIsNoNewArtifact(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	entry := func(name, version string) string {
		return "  - {name: " + name + ", version: " + version + ", urls: [" + name + ".tgz], digest: \"" + strings.Repeat("0", 64) + "\"}\n"
	}
	r.s.SetIndex([]byte("apiVersion: v1\nentries:\n  a:\n" + entry("a", "1.0.0") + entry("a", "2.0.0") + "  b:\n" + entry("b", "1.0.0")))
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.s.SetIndex([]byte("entries:\n  b:\n" + entry("b", "1.0.0") + "  a:\n" + entry("a", "2.0.0") + entry("a", "1.0.0") + "apiVersion: v1\ngenerated: \"2026-01-01T00:00:00Z\"\n"))
	r.run(obj, source.Unchanged)
	r.run(obj, source.Unchanged)
	r.asked(200, 200, 304)
}

// The server stamps its index anew at each request, so the bytes that are lost
// are nowhere any more.
func TestRepositoryLostArtifactOfBytesThatAreGone(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{Restamp: true})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	lost := *obj.Artifact()
	r.lose(&lost)
	r.run(obj, source.Stored)
	if obj.Artifact().Revision == lost.Revision {
		t.Error("another index goes by the revision of the one that is lost")
	}
	r.bytes(obj.Artifact())
	r.run(obj, source.Unchanged)
}

// An index that changes between Resolve and Open is another revision.
func TestRepositoryMovesOn(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	first := r.origin(obj)
	rev, state, err := first.Resolve(t.Context(), nil)
	must(t, err)
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	later := r.origin(obj)
	if _, err := later.Open(t.Context(), rev); !errors.Is(err, source.ErrMoved) {
		t.Fatalf("open: %v", err)
	}
	now, _, err := later.Resolve(t.Context(), state)
	if err != nil || now.ID == rev.ID {
		t.Fatalf("resolved %s, %v", now.ID, err)
	}
	c, err := later.Open(t.Context(), now)
	must(t, err)
	c.Close()
	if c, err = first.Open(t.Context(), rev); err != nil { // which the first origin has kept
		t.Fatal(err)
	}
	c.Close()
}

func TestRepositoryFromADirectory(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	dir, obj := t.TempDir(), r.object(nil)
	r.local = map[string]string{obj.Spec.URL: dir}
	r.refused(obj, "Failed", "run helm repo index", "index.yaml")
	must(t, os.WriteFile(filepath.Join(dir, "index.yaml"), r.s.Index(), 0o644))
	r.run(obj, source.Stored)
	if !bytes.Equal(r.bytes(obj.Artifact()), r.s.Index()) {
		t.Error("the artifact is not the file")
	}
	r.run(obj, source.Unchanged)
	must(t, os.WriteFile(filepath.Join(dir, "index.yaml"), []byte("[]"), 0o644))
	r.refused(obj, "IndexationFailed", dir)
	r.asked()
}

// Whatever follows the index, all of what the server has is what is stored.
func TestRepositoryStoresWhatFollowsTheIndex(t *testing.T) {
	for _, end := range []string{"", "...\n"} { // the second ends the document
		r := newRepositorySetup(t, testenv.ChartsConfig{})
		r.s.SetIndex([]byte("apiVersion: v1\nentries: {}\n" + end + strings.Repeat("# more\n", 40_000)))
		obj := r.object(nil)
		r.run(obj, source.Stored)
		if got := r.bytes(obj.Artifact()); !bytes.Equal(got, r.s.Index()) {
			t.Errorf("after %q: stored %d of %d bytes", end, len(got), len(r.s.Index()))
		}
	}
}

func TestRepositoryReportsProgress(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.s.SetIndex([]byte("apiVersion: v1\nentries: {}\n" + strings.Repeat("# more\n", 1<<20)))
	var done []int64
	env := source.Env{Limits: r.limits, Progress: func(p source.Progress) {
		if p.Object != "pkgrepository/default/charts" || p.Total != int64(len(r.s.Index())) || p.Unit != "bytes" {
			t.Errorf("progress %+v", p)
		}
		done = append(done, p.Done)
	}}
	obj := r.object(nil)
	r.Stored(obj, chart.NewRepository(obj, env))
	if len(done) < 3 || len(done) > 10 || !slices.IsSorted(done) {
		t.Errorf("progress %v", done)
	}
}

// A date says which second it was, and the index may change twice in one.
func TestRepositoryChangedTwiceInOneSecond(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{NoETag: true, NoDate: true})
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	modified := now
	r.s.Break(serving(func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
		w.Header().Set("Date", now.Format(http.TimeFormat))
		http.ServeContent(w, req, "", modified, bytes.NewReader(r.s.Index()))
	}))
	obj := r.object(nil)
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	r.run(obj, source.Stored)
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	now = now.Add(time.Hour)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	r.asked(200, 200, 304)
}

// sharing returns an environment of objects that share all they can.
func (r *repositorySetup) sharing() source.Env {
	r.Helper()
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: r.TempDir()})
	must(r, err)
	r.Cleanup(func() { cache.Close() })
	env := source.Env{Secrets: r.secrets, Cache: cache, Share: new(source.Share), Since: time.Now(), Reuse: new(source.Connections)}
	r.Cleanup(env.Reuse.Close)
	return env
}

// A repositories is objects of one repository, with what each remembers.
type repositories struct {
	*repositorySetup
	mu     sync.Mutex
	states map[string]source.State
	status map[string]source.Status
}

// run reconciles n objects at once, and returns what the server was asked for: the statuses of its answers.
func (f *repositories) run(n int, env source.Env, edit func(i int, obj *source.PkgRepository)) (asked []int, err error) {
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

func (f *repositories) one(obj *source.PkgRepository, name string, last source.State, env source.Env) error {
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

func newRepositories(t *testing.T, c testenv.ChartsConfig) *repositories {
	r := newRepositorySetup(t, c)
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	return &repositories{repositorySetup: r, states: map[string]source.State{}, status: map[string]source.Status{}}
}

// Objects of one repository that are due together cost it what one of them does.
func TestRepositoryFleetAsksOnce(t *testing.T) {
	f := newRepositories(t, testenv.ChartsConfig{})
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
			f := newRepositories(t, testenv.ChartsConfig{Username: "user", Password: repoCanary})
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
