package git_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// packs returns the bodies of the requests for packs.
func packs(s *testenv.Server) []string {
	var bodies []string
	for _, q := range s.Requests() {
		if q.Phase == testenv.Pack {
			bodies = append(bodies, string(q.Body))
		}
	}
	return bodies
}

// Some servers speak version 2 and yet send only what refs point to.
func TestRefusedWants(t *testing.T) {
	repo := testenv.NewRepo(t)
	first := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	tag := repo.AnnotatedTag("v1.0.0", first, "release")
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	refusal := "ERR want " + first + " not valid\n"
	refuse := &testenv.Defect{
		Phase: testenv.Pack, Do: testenv.Answer, Times: 1, Status: http.StatusOK,
		Header: http.Header{"Content-Type": {"application/x-git-upload-pack-result"}},
		Body:   "00" + strconv.FormatInt(int64(len(refusal)+4), 16) + refusal,
	}
	branch := git.New(object(server.Repo(), source.GitRepositoryRef{Branch: "main"}), source.Env{})
	onBranch, _, err := branch.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")}) // main moves on
	tagged := git.New(object(server.Repo(), source.GitRepositoryRef{Tag: "v1.0.0"}), source.Env{})
	onTag, _, err := tagged.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		origin *git.Origin
		rev    source.Revision
		want   string // in the second request
		notes  int
	}{
		{branch, onBranch, repo.ID("main"), 1},
		{tagged, onTag, tag, 0},
	} {
		server.Reset()
		server.Break(refuse)
		content, err := c.origin.Open(t.Context(), c.rev)
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		var b bytes.Buffer
		report, err := content.WriteTo(t.Context(), &b)
		if err != nil || len(report.Notes) != c.notes || contents(t, b.Bytes())["a"] != "1" {
			t.Errorf("%s: %v, notes %q", c.rev.ID, err, report.Notes)
		}
		if asked := packs(server); len(asked) != 2 || !strings.Contains(asked[1], "want "+c.want) {
			t.Errorf("%s: asked for %q, want %s", c.rev.ID, asked, c.want)
		}
	}
	// A pinned commit that is refused is not searched for in everything there is.
	server.Reset()
	server.Break(refuse)
	if _, _, _, err := try(t.Context(), object(server.Repo(), source.GitRepositoryRef{Commit: first}), source.Env{}); err == nil || len(packs(server)) != 1 {
		t.Errorf("pinned: %v after %d requests", err, len(packs(server)))
	}
}

// Deepening ends with the history, not with the largest depth.
func TestDeepeningEnds(t *testing.T) {
	repo := one(t)
	server := testenv.ServeHTTP(t, testenv.HTTP{V0: true, NoAnyWant: true}, repo)
	absent := strings.Repeat("1", 40)
	_, _, _, err := try(t.Context(), object(server.Repo(), source.GitRepositoryRef{Commit: absent}), source.Env{})
	if err == nil || !strings.Contains(err.Error(), absent) || len(packs(server)) != 1 {
		t.Errorf("%v after %d fetches, want 1", err, len(packs(server)))
	}
}

// A server without shallow fetches transfers its history, and a note says so.
func TestNoShallowFetches(t *testing.T) {
	repo := testenv.NewRepo(t)
	first := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	tip := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")})
	for _, config := range []testenv.HTTP{{}, {V0: true, NoAnyWant: true}} {
		behind, err := url.Parse(testenv.ServeHTTP(t, config, repo).URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(behind)
		proxy.ModifyResponse = func(r *http.Response) error {
			if strings.HasSuffix(r.Request.URL.Path, "/info/refs") {
				b, err := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(b, []byte("shallow"), []byte("swallow"))))
				return err
			}
			return nil
		}
		server := httptest.NewServer(proxy)
		defer server.Close()
		for _, row := range []struct {
			ref  source.GitRepositoryRef
			want string
		}{
			{source.GitRepositoryRef{Branch: "main"}, tip},
			{source.GitRepositoryRef{Commit: first}, first},
			{source.GitRepositoryRef{Commit: first, Branch: "main"}, first},
		} {
			rev, _, report := fetch(t, object(server.URL+"/repo.git", row.ref), source.Env{})
			if !strings.HasSuffix(rev.ID, row.want) || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "whole history") {
				t.Errorf("v0 %v, %+v: %s, notes %q", config.V0, row.ref, rev.ID, report.Notes)
			}
		}
	}
}

// What a shallow clone does not hold cannot be proved, which is not the same as
// a commit that is not on the branch.
func TestProofInShallowClone(t *testing.T) {
	repo := testenv.NewRepo(t)
	first := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	for range 3 {
		repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")})
	}
	clone := filepath.Join(t.TempDir(), "clone")
	repo.Git("clone", "-q", "--depth=2", "file://"+filepath.ToSlash(repo.Dir), clone)
	const at = "https://example.com/app"
	env := source.Env{Local: map[string]string{at: clone}}
	_, _, _, err := try(t.Context(), object(at, source.GitRepositoryRef{Commit: first, Branch: "main"}), env)
	if err == nil || !strings.Contains(err.Error(), "history is incomplete") || !strings.Contains(err.Error(), "--unshallow") {
		t.Errorf("%v", err)
	}
	rev, _, _ := fetch(t, object(at, source.GitRepositoryRef{Commit: repo.ID("main"), Branch: "main"}), env)
	if !strings.HasSuffix(rev.ID, repo.ID("main")) {
		t.Errorf("tip: %v", rev)
	}
}

// Repositories in the SHA-256 object format are fetched from servers like all others.
func TestSHA256(t *testing.T) {
	repo := testenv.NewRepoIn(t, "sha256")
	first := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1", "d/b", "2")})
	repo.AnnotatedTag("v1.0.0", first, "release")
	tip := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1", "d/b", "3")})
	for name, s := range map[string]struct {
		url string
		env source.Env
	}{
		"http":    {testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo(), source.Env{}},
		"http v0": {testenv.ServeHTTP(t, testenv.HTTP{V0: true, NoAnyWant: true}, repo).Repo(), source.Env{}},
	} {
		for _, row := range []struct {
			ref   source.GitRepositoryRef
			id, b string
		}{
			{source.GitRepositoryRef{Branch: "main"}, "main@sha256:" + tip, "3"},
			{source.GitRepositoryRef{SemVer: "1.x"}, "v1.0.0@sha256:" + first, "2"},
			{source.GitRepositoryRef{Commit: first}, "sha256:" + first, "2"},
			{source.GitRepositoryRef{Commit: first, Branch: "main"}, "main@sha256:" + first, "2"},
		} {
			rev, data, _ := fetch(t, object(s.url, row.ref), s.env)
			if rev.ID != row.id || contents(t, data)["d/b"] != row.b {
				t.Errorf("%s: revision %s with %v, want %s", name, rev.ID, contents(t, data), row.id)
			}
		}
		_, _, _, err := try(t.Context(), object(s.url, source.GitRepositoryRef{Commit: strings.Repeat("1", 40)}), s.env)
		if err == nil {
			t.Errorf("%s: a SHA-1 commit in a SHA-256 repository", name)
		}
	}
}

// The contexts of Resolve and Open may end as soon as they return.
func TestContentOutlivesContexts(t *testing.T) {
	repo := one(t)
	for name, serve := range servers(t, repo) {
		url, env := serve()
		g := object(url, source.GitRepositoryRef{Branch: "main"})
		if strings.HasPrefix(url, "ssh:") {
			g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
		}
		o := git.New(g, env)
		ctx, cancel := context.WithCancel(t.Context())
		rev, _, err := o.Resolve(ctx, nil)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		c, err := o.Open(ctx, rev)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := c.WriteTo(t.Context(), io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}

// Whatever happens, every spool is closed.
func TestSpoolsAreClosed(t *testing.T) {
	h := newHistory(t)
	var mu sync.Mutex
	var spools []*os.File
	dir := t.TempDir()
	env := source.Env{Limits: artifact.Limits{Temp: func() (*os.File, error) {
		mu.Lock()
		defer mu.Unlock()
		f, err := os.CreateTemp(dir, "spool")
		spools = append(spools, f)
		return f, err
	}}}
	for _, config := range []testenv.HTTP{
		{}, {NoFilter: true}, {V0: true, NoAnyWant: true},
		{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Cut, After: 150}},
		{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Flip, After: 150}},
	} {
		url := testenv.ServeHTTP(t, config, h.Repo).Repo()
		for _, ref := range []source.GitRepositoryRef{
			{Branch: "main"}, {SemVer: "1.x"}, {Commit: h.ids["one"]}, {Commit: strings.Repeat("1", 40)},
			{Commit: h.ids["one"], Branch: "main"}, {Commit: h.ids["pull"], Branch: "main"},
		} {
			_, _, _, err := try(t.Context(), object(url, ref), env)
			if i := slices.IndexFunc(spools, func(f *os.File) bool { return f.Close() == nil }); i >= 0 {
				t.Errorf("%+v, %+v: a spool is open (the error was %v)", config, ref, err)
			}
		}
	}
	if len(spools) < 20 {
		t.Errorf("only %d spools were made", len(spools))
	}
}
