package git_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// fleet reconciles objects at once, and returns what became of each.
func fleet(t *testing.T, env source.Env, objects ...*source.GitRepository) (results []source.Result, errs []error) {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r := &source.Reconciler{Store: store}
	results, errs = make([]source.Result, len(objects)), make([]error, len(objects))
	var all sync.WaitGroup
	for i, g := range objects {
		all.Go(func() { results[i], errs[i] = r.Reconcile(t.Context(), g, git.New(g, env)) })
	}
	all.Wait()
	return results, errs
}

// many returns n objects of one repository, after edit.
func many(n int, url string, ref source.GitRepositoryRef, edit func(i int, g *source.GitRepository)) []*source.GitRepository {
	list := make([]*source.GitRepository, n)
	for i := range list {
		list[i] = object(url, ref)
		list[i].Metadata.Name = fmt.Sprint("object-", i)
		list[i].Spec.Timeout = source.Duration(time.Minute)
		if edit != nil {
			edit(i, list[i])
		}
	}
	return list
}

// counts returns how often a server was asked for what.
func counts(s *testenv.Server) string {
	n := map[testenv.Phase]int{}
	for _, q := range s.Requests() {
		n[q.Phase]++
	}
	return fmt.Sprintf("%d advertisements, %d lists, %d packs", n[testenv.Advertisement], n[testenv.LsRefs], n[testenv.Pack])
}

// sharing returns an environment of objects that share all they can.
func sharing(t *testing.T, secrets source.Secrets) source.Env {
	env := source.Env{Share: new(source.Share), Since: time.Now(), Reuse: new(source.Connections), Cache: newCache(t, t.TempDir()), Secrets: secrets}
	t.Cleanup(env.Reuse.Close)
	return env
}

// Objects of one repository and revision that are due together cost it one list
// of refs and one pack, whatever each makes of them.
func TestFleetAsksOnce(t *testing.T) {
	server := testenv.ServeHTTP(t, testenv.HTTP{}, one(t))
	env := sharing(t, nil)
	objects := many(20, server.Repo(), source.GitRepositoryRef{Branch: "main"}, func(i int, g *source.GitRepository) {
		if i%2 == 1 {
			ignore := "*.md"
			g.Spec.Ignore = &ignore
		}
	})
	results, errs := fleet(t, env, objects...)
	if got := counts(server); got != "1 advertisements, 1 lists, 1 packs" || errors.Join(errs...) != nil {
		t.Errorf("%s, %v", got, errs)
	}
	for i, r := range results {
		if r.Outcome != source.Stored || objects[i].Status.Artifact.Revision != objects[0].Status.Artifact.Revision {
			t.Errorf("object %d: %v at %v", i, r.Outcome, objects[i].Status.Artifact)
		}
	}
	server.Reset()
	env.Since = time.Now()
	if _, errs := fleet(t, env, objects...); counts(server) != "1 advertisements, 1 lists, 0 packs" || errors.Join(errs...) != nil {
		t.Errorf("again: %s, %v", counts(server), errs)
	}
}

// Since is when the latest answer that counts was asked for.
func TestFleetSeesPush(t *testing.T) {
	repo := one(t)
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	env := sharing(t, nil)
	resolve := func() string {
		rev, _, err := git.New(object(server.Repo(), source.GitRepositoryRef{Branch: "main"}), env).Resolve(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return rev.ID
	}
	before := resolve()
	repo.Commit(testenv.Commit{Branch: "main", Message: "pushed"})
	if got := resolve(); got != before {
		t.Errorf("an answer that counts is not used: %s", got)
	}
	env.Since = time.Now()
	if got := resolve(); got == before {
		t.Error("a push is not seen")
	}
}

// Objects that ask for different things, or as somebody else, are told on their own.
func TestFleetApart(t *testing.T) {
	repo := one(t)
	repo.Git("branch", "next", "main")
	server := testenv.ServeHTTP(t, testenv.HTTP{Allow: func(r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		return strings.HasPrefix(password, "good")
	}}, repo)
	secrets := sourcetest.Secrets{
		"default/alice": sourcetest.Secret("username", "alice", "password", "good-canary"),
		"default/same":  sourcetest.Secret("username", "alice", "password", "good-canary"),
		"other/alice":   sourcetest.Secret("username", "alice", "password", "bad-canary"),
		"default/bob":   sourcetest.Secret("username", "bob", "password", "good-canary"),
	}
	for name, c := range map[string]struct {
		edit    func(i int, g *source.GitRepository)
		want    string
		refused int
	}{
		"the same Secret":          {func(i int, g *source.GitRepository) {}, "1 advertisements, 1 lists, 0 packs", 0},
		"Secrets of equal content": {func(i int, g *source.GitRepository) { g.Spec.SecretRef.Name = []string{"alice", "same"}[i] }, "1 advertisements, 1 lists, 0 packs", 0},
		"another user":             {func(i int, g *source.GitRepository) { g.Spec.SecretRef.Name = []string{"alice", "bob"}[i] }, "2 advertisements, 2 lists, 0 packs", 0},
		"another namespace":        {func(i int, g *source.GitRepository) { g.Metadata.Namespace = []string{"default", "other"}[i] }, "2 advertisements, 1 lists, 0 packs", 1},
		"another branch": {func(i int, g *source.GitRepository) {
			g.Spec.Ref = &source.GitRepositoryRef{Branch: []string{"main", "next"}[i]}
		}, "2 advertisements, 2 lists, 0 packs", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server.Reset()
			env := sharing(t, secrets)
			refused := 0
			for _, g := range many(2, server.Repo(), source.GitRepositoryRef{Branch: "main"}, func(i int, g *source.GitRepository) {
				g.Spec.SecretRef = &source.LocalReference{Name: "alice"}
				c.edit(i, g)
			}) {
				o := git.New(g, env)
				_, _, err := o.Resolve(t.Context(), nil)
				if err != nil {
					refused++
					wantReason(t, err, auth)
				}
				if len(o.Secrets()) == 0 || strings.Contains(fmt.Sprint(err), "canary") {
					t.Errorf("its secrets are not known, or show: %v", err)
				}
			}
			if got := counts(server); got != c.want || refused != c.refused {
				t.Errorf("%s, %d refused, want %s, %d", got, refused, c.want, c.refused)
			}
		})
	}
}

// A server that says nothing keeps each object for as long as its own timeout says.
func TestFleetStalled(t *testing.T) {
	server := testenv.ServeHTTP(t, testenv.HTTP{Defect: &testenv.Defect{Do: testenv.Stall, Phase: testenv.LsRefs}}, one(t))
	env := sharing(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	objects := many(3, server.Repo(), source.GitRepositoryRef{Branch: "main"}, nil)
	errs := make([]error, len(objects))
	var all sync.WaitGroup
	for i, g := range objects {
		all.Go(func() { _, _, errs[i] = git.New(g, env).Resolve(ctx, nil) })
	}
	<-server.Stalled()
	cancel()
	all.Wait()
	if slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, context.Canceled) }) {
		t.Errorf("got %v", errs)
	}
}
