package headgate_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// setOf returns a set of GitRepositories at server, from lines "name: included included".
func setOf(server string, lines ...string) *source.Set {
	set := new(source.Set)
	for _, line := range lines {
		name, included, _ := strings.Cut(line, ":")
		g := &source.GitRepository{Spec: source.GitRepositorySpec{URL: server + "/" + name}}
		g.Metadata.Name = name
		for _, other := range strings.Fields(included) {
			g.Spec.Include = append(g.Spec.Include, source.GitRepositoryInclude{Repository: source.IncludeReference{Name: other}})
		}
		set.Objects = append(set.Objects, g)
	}
	return set
}

// resultOrder returns the names of the objects in the order of the results.
func resultOrder(t *testing.T, set *source.Set, o headgate.Options) []string {
	t.Helper()
	if o.Store == nil {
		o.Store = openStore(t)
	}
	var names []string
	for r, err := range headgate.Fetch(t.Context(), set, o) {
		if r.Object == nil {
			t.Fatal(err)
		}
		names = append(names, r.Object.Head().Metadata.Name)
	}
	return names
}

func openStore(t *testing.T) *artifact.Store {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

// With one object at a time, objects come in the order of the set, except that included objects
// come first.
func TestFetchInOrder(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for want, lines := range map[string][]string{
		"a b c":     {"a:", "b:", "c:"},
		"c a b":     {"a: c", "b: c", "c:"},
		"c b a d":   {"a: b", "b: c", "c: none", "d: a"},
		"b a":       {"a: b", "b: a"},
		"a":         {"a: a"},
		"d b c a e": {"a: b c", "b: d", "c: d", "d:", "e: a"},
	} {
		if got := strings.Join(resultOrder(t, setOf(server.URL, lines...), headgate.Options{Parallel: 1}), " "); got != want {
			t.Errorf("%q: order %q, want %q", lines, got, want)
		}
	}
}

// Objects that do not need each other run concurrently, and not level by level: fast ends while
// slow is blocked, and slow has started by then.
func TestFetchConcurrently(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/slow") {
			close(started)
			<-release // blocks forever if it fails
		}
		if strings.HasPrefix(r.URL.Path, "/first") {
			<-started // blocks forever if it fails
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	var names []string
	for r, err := range headgate.Fetch(t.Context(), setOf(server.URL, "fast: first", "first:", "slow:"), headgate.Options{Parallel: 2, Store: openStore(t)}) {
		if err == nil {
			t.Errorf("%s was fetched", r.Object.Head())
		}
		names = append(names, r.Object.Head().Metadata.Name)
		if len(names) == 2 {
			close(release)
		}
	}
	if want := []string{"first", "fast", "slow"}; !slices.Equal(names, want) {
		t.Errorf("ended: %q, want %q", names, want)
	}
}

// With many objects, each begins only after all objects that it needs have ended.
func TestFetchMany(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	lines := make([]string, 300)
	for i := range lines {
		lines[i] = fmt.Sprintf("n%d: n%d n%d", i, i*2+1, i*3+2)
	}
	slices.Reverse(lines)
	set := setOf(server.URL, lines...)
	needs := map[string][]string{} // of an object, by its name
	for i, before := range source.Order(set.Objects) {
		for _, b := range before {
			name := set.Objects[i].Head().Metadata.Name
			needs[name] = append(needs[name], set.Objects[b].Head().Metadata.Name)
		}
	}
	var mu sync.Mutex
	ended, began := map[string]bool{}, map[string]bool{}
	emit := func(e source.Event) {
		mu.Lock()
		defer mu.Unlock()
		name := e.InvolvedObject.Name
		began[name] = true
		for _, other := range needs[name] {
			if !ended[other] {
				t.Errorf("%s began before %s ended", name, other)
			}
		}
	}
	for r := range headgate.Fetch(t.Context(), set, headgate.Options{Parallel: 8, Store: openStore(t), Emit: emit}) {
		mu.Lock()
		ended[r.Object.Head().Metadata.Name] = true
		mu.Unlock()
	}
	if len(ended) != len(lines) || len(began) != len(lines) {
		t.Errorf("%d results, %d objects that began", len(ended), len(began))
	}
}

// Fetch fetches only the requested objects and the objects that they need.
func TestFetchRequested(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	set := setOf(server.URL, "other:", "base:", "app: base")
	if got := resultOrder(t, set, headgate.Options{Objects: set.Objects[2:]}); !slices.Equal(got, []string{"base", "app"}) {
		t.Errorf("ended: %q", got)
	}
	if got := resultOrder(t, set, headgate.Options{Objects: set.Objects[2:], Until: source.StepResolve}); !slices.Equal(got, []string{"app"}) {
		t.Errorf("resolved: %q", got)
	}
}

// Leaving the loop cancels running objects, and no other object begins.
func TestFetchBreak(t *testing.T) {
	requests := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path
		if strings.HasPrefix(r.URL.Path, "/slow") {
			<-r.Context().Done() // blocks forever if it fails
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	for r := range headgate.Fetch(t.Context(), setOf(server.URL, "slow:", "fast:", "last:"), headgate.Options{Parallel: 2, Store: openStore(t)}) {
		if name := r.Object.Head().Metadata.Name; name != "fast" {
			t.Errorf("%s ended first", name)
		}
		break
	}
	server.Close() // waits for its handlers
	close(requests)
	for path := range requests {
		if strings.HasPrefix(path, "/last") {
			t.Error("last was asked for")
		}
	}
}

// Fetch fills in the defaults of objects made in Go, and reports why it cannot begin.
func TestFetchDefaults(t *testing.T) {
	repo := testenv.NewRepo(t)
	commit := repo.Commit(testenv.Commit{Branch: "master", Message: "first", Files: fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	set := setOf(server.Repo(), "app:")
	set.Objects[0].(*source.GitRepository).Spec.URL = server.Repo()
	options := headgate.Options{Store: openStore(t)}
	for r, err := range headgate.Fetch(t.Context(), set, options) {
		if err != nil || r.Outcome != source.Stored || r.Object.Artifact().Revision != "master@sha1:"+commit {
			t.Errorf("%v, %s: %v", err, r.Outcome, r.Object.Artifact())
		}
	}
	for _, o := range []headgate.Options{{}, {Store: options.Store, Until: source.StepBuild}} {
		for r, err := range headgate.Fetch(t.Context(), set, o) {
			if r.Object != nil || err == nil {
				t.Errorf("%v: %v", o, err)
			}
		}
	}
}

// New returns no origin for an object that another program publishes.
func TestOriginsExternal(t *testing.T) {
	var origins headgate.Origins
	if _, err := origins.New(new(source.ExternalArtifact), source.Env{}); !errors.Is(err, source.ErrInvalid) {
		t.Error(err)
	}
}

var must = testenv.Must
