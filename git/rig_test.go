package git_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// files makes a tree from path and content pairs.
func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1]), Mode: 0o644}
	}
	return m
}

// object returns a GitRepository that selects ref.
func object(url string, ref source.GitRepositoryRef) *source.GitRepository {
	return &source.GitRepository{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "GitRepository",
			Metadata: source.Metadata{Name: "app", Namespace: "default", Generation: 1}},
		Spec: source.GitRepositorySpec{URL: url, Ref: &ref, Timeout: source.Duration(time.Minute), Interval: source.Duration(time.Minute)},
	}
}

// fetch resolves, opens and packs, and returns the revision and the archive.
func fetch(t *testing.T, g *source.GitRepository, env source.Env) (source.Revision, []byte, source.Report) {
	t.Helper()
	rev, data, report, err := try(t.Context(), g, env)
	must(t, err)
	return rev, data, report
}

func try(ctx context.Context, g *source.GitRepository, env source.Env) (source.Revision, []byte, source.Report, error) {
	o := git.New(g, env)
	rev, _, err := o.Resolve(ctx, nil)
	if err != nil {
		return rev, nil, source.Report{}, err
	}
	c, err := o.Open(ctx, rev)
	if err != nil {
		return rev, nil, source.Report{}, err
	}
	defer c.Close()
	var b bytes.Buffer
	report, err := c.WriteTo(ctx, &b)
	return rev, b.Bytes(), report, err
}

// wantStep checks that an error has a reason, one of several separated by |, and says each
// part of say, separated by | too, and no credential. Without a reason there is to be none.
func wantStep(t *testing.T, err error, reason, say string) {
	t.Helper()
	if reason == "" && err == nil {
		return
	}
	if step, ok := errors.AsType[*source.StepError](err); !ok || !slices.Contains(strings.Split(reason, "|"), step.Reason) {
		t.Errorf("%v: want a StepError with reason %q", err, reason)
		return
	}
	for part := range strings.SplitSeq(say, "|") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not say %s", err, part)
		}
	}
	if strings.Contains(strings.ToLower(err.Error()), "canary") {
		t.Errorf("%v: shows a credential", err)
	}
}

// fails checks that a fetch fails for a reason; see wantStep.
func fails(t *testing.T, g *source.GitRepository, env source.Env, reason, say string) {
	t.Helper()
	_, _, _, err := try(t.Context(), g, env)
	wantStep(t, err, reason, say)
}

// spools returns a maker of spools, each of which must be closed at the end of
// the test, and how many were made.
func spools(t *testing.T) (temp func() (*os.File, error), made *atomic.Int64) {
	made = new(atomic.Int64)
	dir := t.TempDir()
	return func() (*os.File, error) {
		made.Add(1)
		f, err := os.CreateTemp(dir, "spool")
		t.Cleanup(func() {
			if f.Close() == nil {
				t.Error("a spool was left open")
			}
		})
		return f, err
	}, made
}

// contents returns the files of an archive by name.
func contents(t testing.TB, data []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	walk(t, data, func(tree fs.FS, name string, d fs.DirEntry) {
		if !d.IsDir() {
			b, err := fs.ReadFile(tree, name)
			must(t, err)
			found[name] = string(b)
		}
	})
	return found
}

// walk calls do for all that an archive holds.
func walk(t testing.TB, data []byte, do func(fs.FS, string, fs.DirEntry)) {
	t.Helper()
	tree, err := artifact.Read(bytes.NewReader(data), artifact.Limits{})
	must(t, err)
	defer tree.Close()
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			do(tree, name, d)
		}
		return err
	})
	must(t, err)
}

// emptyDirs returns the directories of an artifact that hold nothing.
func emptyDirs(t testing.TB, data []byte) (names []string) {
	t.Helper()
	walk(t, data, func(tree fs.FS, name string, d fs.DirEntry) {
		if entries, err := fs.ReadDir(tree, name); d.IsDir() && err == nil && len(entries) == 0 {
			names = append(names, name)
		}
	})
	return names
}

// history is a repository with a ref of every sort. Its file "at" tells where
// a commit is.
type history struct {
	*testenv.Repo
	ids map[string]string // commits by what "at" holds
}

func newHistory(t *testing.T, format string) history {
	h := history{testenv.NewRepoIn(t, format), map[string]string{}}
	commit := func(branch, at string) {
		h.ids[at] = h.Commit(testenv.Commit{Branch: branch, Message: "at " + at, Files: files("at", at, "dir/file", "same")})
	}
	commit("main", "one")
	h.Tag("v0.9.0", h.ids["one"])
	commit("main", "two")
	h.AnnotatedTag("v1.0.0", h.ids["two"], "release")
	commit("main", "three")
	h.Git("branch", "feature/x", h.ids["two"])
	commit("feature/x", "x")
	h.Git("branch", "tmp", h.ids["one"])
	commit("tmp", "pull")
	h.Ref("refs/pull/1/head", h.ids["pull"])
	h.Git("branch", "-D", "tmp")
	h.Tag("v1.1.0-rc.1", h.ids["three"])
	h.Tag("not-a-version", h.ids["three"])
	h.Tag("v9", h.ids["three"])
	return h
}

// rows select every sort of ref: want tells the revision's label and the commit.
var rows = []struct {
	name  string
	ref   source.GitRepositoryRef // commits by name, see history.ids
	label string
	at    string
}{
	{"branch", source.GitRepositoryRef{Branch: "main"}, "main@", "three"},
	{"branch with slash", source.GitRepositoryRef{Branch: "feature/x"}, "feature/x@", "x"},
	{"tag", source.GitRepositoryRef{Tag: "v0.9.0"}, "v0.9.0@", "one"},
	{"annotated tag", source.GitRepositoryRef{Tag: "v1.0.0"}, "v1.0.0@", "two"},
	{"semver", source.GitRepositoryRef{SemVer: ">=0.1.0"}, "v1.0.0@", "two"},
	{"semver pre-release", source.GitRepositoryRef{SemVer: ">=1.0.0-0"}, "v1.1.0-rc.1@", "three"},
	{"name of branch", source.GitRepositoryRef{Name: "refs/heads/main"}, "refs/heads/main@", "three"},
	{"name of tag", source.GitRepositoryRef{Name: "refs/tags/v1.0.0"}, "refs/tags/v1.0.0@", "two"},
	{"name of peeled tag", source.GitRepositoryRef{Name: "refs/tags/v1.0.0^{}"}, "refs/tags/v1.0.0^{}@", "two"},
	{"name of pull request", source.GitRepositoryRef{Name: "refs/pull/1/head"}, "refs/pull/1/head@", "pull"},
	{"name HEAD", source.GitRepositoryRef{Name: "HEAD"}, "HEAD@", "three"},
	{"commit that is a tip", source.GitRepositoryRef{Commit: "three"}, "", "three"},
	{"commit in the past", source.GitRepositoryRef{Commit: "one"}, "", "one"},
	{"commit on branch", source.GitRepositoryRef{Commit: "one", Branch: "feature/x"}, "feature/x@", "one"},
	{"tip of branch", source.GitRepositoryRef{Commit: "x", Branch: "feature/x"}, "feature/x@", "x"},
	// precedence: commit, name, semver, tag, branch
	{"tag over branch", source.GitRepositoryRef{Branch: "main", Tag: "v0.9.0"}, "v0.9.0@", "one"},
	{"semver over tag", source.GitRepositoryRef{Tag: "v0.9.0", SemVer: "1.x"}, "v1.0.0@", "two"},
	{"name over semver", source.GitRepositoryRef{Name: "refs/pull/1/head", SemVer: "1.x"}, "refs/pull/1/head@", "pull"},
	{"commit over name", source.GitRepositoryRef{Commit: "two", Name: "refs/pull/1/head"}, "", "two"},
}

// A server is one way to reach a repository.
type server struct {
	url string
	env source.Env
	web *testenv.Server // nil over ssh and of a local one
}

func (s server) object(ref source.GitRepositoryRef) *source.GitRepository {
	g := object(s.url, ref)
	if strings.HasPrefix(s.url, "ssh:") {
		g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
	}
	return g
}

// servers are the ways to reach one repository.
func servers(t *testing.T, repo *testenv.Repo) map[string]server {
	all := map[string]server{"local": {url: "https://example.com/app", env: source.Env{Local: map[string]string{"https://example.com/app": repo.Dir}}}}
	for name, c := range map[string]testenv.HTTP{
		"http": {}, "http no filter": {NoFilter: true}, "http no shallow": {NoShallow: true}, "http v0": {V0: true}, "http v0 tips only": {V0: true, NoAnyWant: true},
	} {
		s := testenv.ServeHTTP(t, c, repo)
		all[name] = server{s.Repo(), source.Env{}, s}
	}
	for name, c := range map[string]testenv.SSH{"ssh": {}, "ssh v0": {NoEnv: true}} {
		identity, public := testenv.UserKey(t, "")
		c.Users = append(c.Users, public)
		s := testenv.ServeSSH(t, c, repo)
		all[name] = server{s.Repo(), source.Env{Secrets: sourcetest.Secrets{
			"default/keys": sourcetest.Secret("identity", string(identity), "known_hosts", string(s.KnownHosts(false)))}}, nil}
	}
	return all
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
