package git_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/git/internal/objecttest"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func newCache(t testing.TB, dir string) *artifact.Cache {
	t.Helper()
	c, err := artifact.OpenCache(artifact.CacheConfig{Dir: dir})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// noise returns n bytes that do not compress; they differ for each seed.
func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// twentyFiles returns a tree of 20 files, 120 KB in all.
func twentyFiles() fstest.MapFS {
	tree := fstest.MapFS{}
	for i := range uint64(20) {
		tree[fmt.Sprintf("dir%d/file%d", i%4, i)] = &fstest.MapFile{Data: noise(i, 6<<10), Mode: 0o644}
	}
	return tree
}

// A changed commit transfers only the change, and a commit that is held transfers
// nothing.
func TestIncremental(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepo(t)
	tree := twentyFiles()
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	all := servers(t, repo)
	for name, s := range all {
		if name == "local" || name == "ssh" || name == "http no filter" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			env := s.env
			env.Cache = newCache(t, t.TempDir())
			g := s.object(source.GitRepositoryRef{Branch: "main"})
			fetch(t, g, env)
			var before, after int64
			for i := range 2 {
				tree["dir1/file5"].Data = append(fmt.Appendf(nil, "change %d for %s\n", i, name), tree["dir1/file5"].Data...)
				repo.Commit(testenv.Commit{Branch: "main", Files: tree})
				if s.web != nil {
					s.web.Reset()
				}
				_, data, _ := fetch(t, g, env)
				if s.web != nil {
					if _, after = s.web.Bytes(); after > before+8<<10 {
						t.Errorf("%d bytes for one changed file", after)
					}
				}
				local := all["local"]
				if _, want, _ := fetch(t, local.object(*g.Spec.Ref), local.env); !bytes.Equal(data, want) {
					t.Error("other bytes than without a cache")
				}
			}
			if s.web == nil {
				return
			}
			s.web.Reset()
			fetch(t, g, env)
			testenv.Equal(t, packRequests(s.web), nil, "fetched what is held")
		})
	}
}

// Whatever happens to the branch and to the cache, the archive equals that of a fetch
// without a cache.
func TestCacheSurvivesDamage(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		repo := testenv.NewRepoIn(t, format)
		tree := twentyFiles()
		commit := func(parents ...string) string {
			return repo.Commit(testenv.Commit{Branch: "main", Files: tree, Parents: parents})
		}
		first := commit()
		all := servers(t, repo)
		for name, s := range all {
			plain := all["local"]   // equals the others, see TestEveryReferenceOverEveryTransport
			if format == "sha256" { // local repositories with SHA-256 are not supported
				plain = s
			}
			if name != "http" && (format == "sha256" || name != "http v0 tips only" && name != "ssh v0") {
				continue
			}
			t.Run(format+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				env := s.env
				env.Cache = newCache(t, dir)
				entries := func(do func(file string, b []byte)) {
					found, err := filepath.Glob(filepath.Join(dir, "entry", "*", "*"))
					must(t, err)
					for _, file := range found {
						if b, err := os.ReadFile(file); err == nil {
							do(file, b)
						}
					}
				}
				damaging := []int{2, 4, 6}
				for i, step := range []func(){
					func() { tree["dir0/file0"].Data = fmt.Append(tree["dir0/file0"].Data, name); commit() },
					func() {
						delete(tree, "dir1/file1")
						tree["new/a/b"] = &fstest.MapFile{Data: noise(99, 3000), Mode: 0o755}
						commit()
					},
					func() { entries(func(file string, b []byte) { b[len(b)/2] ^= 1; os.WriteFile(file, b, 0o600) }) },
					func() { tree["dir2/file2"].Data = noise(98, 5000); commit(first) },
					func() { entries(func(file string, b []byte) { os.WriteFile(file, b[:len(b)/3], 0o600) }); commit() },
					func() {
						commit(repo.ID("main"), repo.Commit(testenv.Commit{Files: files("side", "x"), Parents: []string{first}}))
					},
					func() { entries(func(file string, _ []byte) { os.Remove(file) }) },
					func() {
						repo.Commit(testenv.Commit{Branch: "main", Files: tree, Parents: []string{}})
						repo.Git("gc", "-q", "--prune=now")
					},
					func() { first = commit() },
				} {
					if name != "http" && slices.Contains(damaging, i) {
						continue // damage to an entry does not depend on the transport
					}
					step()
					refs := []source.GitRepositoryRef{{Branch: "main"}, {Branch: "main", Commit: repo.ID("main")}}
					for _, ref := range refs[:1+i%2] {
						g := s.object(ref)
						rev, data, _ := fetch(t, g, env)
						if wantRev, want, _ := fetch(t, plain.object(ref), plain.env); rev.ID != wantRev.ID || !bytes.Equal(data, want) {
							t.Fatalf("step %d, %+v: other bytes with the cache", i, ref)
						}
					}
				}
			})
		}
	}
}

// An object with other credentials cannot use the cached data, and no credential is
// written to the cache.
func TestCredentialsShareNothing(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: twentyFiles()})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	dir := t.TempDir()
	login := func(user, password string) source.Secret {
		return source.Secret{Data: map[string][]byte{"username": []byte(user), "password": []byte(password)}}
	}
	env := source.Env{Cache: newCache(t, dir), Secrets: sourcetest.Secrets{
		"default/a": login("a", password), "default/b": login("b", password), "default/c": login("a", password+"x"), "default/again": login("a", password),
		"default/proxy": {Data: map[string][]byte{"address": []byte("http://127.0.0.1:1")}},
	}}
	for i, row := range []struct {
		secret, url string
		fetches     int
	}{
		{"", server.Repo(), 1}, {"a", server.Repo(), 1}, {"b", server.Repo(), 1}, {"c", server.Repo(), 1},
		{"again", server.Repo(), 0}, {"", server.Repo(), 0}, {"b", server.Repo(), 0},
		{"", strings.Replace(server.Repo(), "://", "://a:"+"pw@", 1), 1},
		{"", server.Repo() + "/", 1},
	} {
		g := object(row.url, source.GitRepositoryRef{Branch: "main"})
		if row.secret != "" {
			g.Spec.SecretRef = &source.LocalReference{Name: row.secret}
		}
		server.Reset()
		fetch(t, g, env)
		testenv.Equal(t, len(packRequests(server)), row.fetches, "%d: secret %q, %s: fetches", i, row.secret, row.url)
	}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		if strings.Contains(name, password) || bytes.Contains(b, []byte(password)) || bytes.Contains(b, []byte(server.URL)) {
			t.Errorf("%s shows what it is about", name)
		}
		return err
	})
	must(t, err)
}

// All objects and processes that share an upstream and a cache fetch shared data only
// once.
func TestSharedUpstream(t *testing.T) {
	repo := testenv.NewRepo(t)
	id := repo.Commit(testenv.Commit{Branch: "main", Files: twentyFiles()})
	repo.Git("branch", "same", id)
	repo.AnnotatedTag("v1.0.0", id, "release")
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	dir := t.TempDir()
	refs := []source.GitRepositoryRef{{Branch: "main"}, {Branch: "main"}, {Branch: "same"}, {SemVer: "1.x"}, {Tag: "v1.0.0"}, {Commit: id}}
	var wg sync.WaitGroup
	archives := make([][]byte, len(refs))
	for i, ref := range refs {
		g := object(server.Repo(), ref)
		g.Metadata.Name = fmt.Sprint("app", i)
		env := source.Env{Cache: newCache(t, dir)} // like a process of its own
		wg.Go(func() {
			var err error
			if _, archives[i], _, err = try(t.Context(), g, env); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	testenv.Equal(t, len(packRequests(server)), 1, "fetches")
	for _, a := range archives {
		if !bytes.Equal(a, archives[0]) {
			t.Error("different bytes")
		}
	}
	g := object(server.Repo(), refs[0])
	g.Spec.SparseCheckout = []string{"dir1"}
	server.Reset()
	if _, data, _ := fetch(t, g, source.Env{Cache: newCache(t, dir)}); len(contents(t, data)) != 5 || len(packRequests(server)) > 0 {
		t.Errorf("sparse: %d files, fetched %q", len(contents(t, data)), packRequests(server))
	}
}

// packed returns a pack with an object, or with a delta on base.
func packed(kind byte, base, content string) []byte {
	id, _ := hex.DecodeString(base)
	p := objecttest.NewPack(2, 1)
	p.Add(kind, content, id...)
	return p.Sum()
}

// respondToFetch answers the first requests for packs in version 2, as many as times says,
// with body.
func respondToFetch(body string, times int) *testenv.Defect {
	return &testenv.Defect{Phase: testenv.Pack, Status: http.StatusOK, Times: times,
		Header: http.Header{"Content-Type": {"application/x-git-upload-pack-result"}}, Body: body}
}

// packResponse returns the answer to a fetch that sends pack.
func packResponse(pack []byte) string { return pkt("packfile\n") + pkt("\x01"+string(pack)) + "0000" }

// A server that learns which commit is held may answer with a hostile pack. The answer
// is refused, everything is fetched instead, and only complete commits are stored.
func TestHostileDifference(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepo(t)
	tree := twentyFiles()
	old := repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	dir := t.TempDir()
	env := source.Env{Cache: newCache(t, dir)}
	fetch(t, g, env)

	tree["dir1/file5"].Data = []byte("changed")
	id := repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	absent := "1111111111111111111111111111111111111111"
	blob := repo.Object("blob", tree["dir0/file0"].Data)
	empty := objecttest.NewPack(2, 0).Sum()
	for defect, pack := range map[string][]byte{
		"base that is nowhere":          packed(7, absent, "\x05\x05\x90\x05"),
		"delta on itself":               packed(7, id, "\x05\x05\x90\x05"),
		"delta that does not fit":       packed(7, blob, "\x05\x05\x90\x05"),
		"copy beyond the base":          packed(7, blob, "\x80\xa0\x01\x05\xb3\xff\xff\x05\x00"),
		"nothing":                       empty,
		"another object":                packed(3, "", "not asked for"),
		"the commit alone":              packed(1, "", string(repo.Raw("commit", id))),
		"the old commit":                packed(1, "", string(repo.Raw("commit", old))),
		"a commit of other content":     packed(1, "", string(repo.Raw("commit", id))+"more\n"),
		"a pack that is damaged":        append(bytes.Clone(empty), 1),
		"a pack of another hash length": empty[:14],
	} {
		t.Run(defect, func(t *testing.T) {
			cacheDir := t.TempDir()
			must(t, os.CopyFS(cacheDir, os.DirFS(dir)))
			env := source.Env{Cache: newCache(t, cacheDir)}
			server.Break(respondToFetch(packResponse(pack), 0))
			if _, _, _, err := try(t.Context(), g, env); err == nil {
				t.Fatal("no error")
			}
			server.Break(nil)
			server.Reset()
			_, data, _ := fetch(t, g, env)
			if _, sent := server.Bytes(); sent > 8<<10 {
				t.Errorf("what was held is forgotten: %d bytes", sent)
			}
			testenv.Equal(t, contents(t, data)["dir1/file5"], "changed", "other content")

			must(t, os.RemoveAll(cacheDir))
			must(t, os.CopyFS(cacheDir, os.DirFS(dir)))
			server.Break(respondToFetch(packResponse(pack), 1))
			server.Reset()
			if _, again, _ := fetch(t, g, source.Env{Cache: newCache(t, cacheDir)}); !bytes.Equal(again, data) {
				t.Error("other bytes after a fall-back")
			}
			if list := packRequests(server); len(list) != 2 || bytes.Contains([]byte(list[1]), []byte("have ")) {
				t.Errorf("requests %q", list)
			}
			server.Break(nil)
		})
	}
}

// If a server is busy, no further fetch is tried.
func TestBusyServer(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: twentyFiles()})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	env := source.Env{Cache: newCache(t, t.TempDir())}
	fetch(t, g, env)
	repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusNotFound} {
		server.Break(&testenv.Defect{Phase: testenv.Pack, Status: status})
		server.Reset()
		if _, _, _, err := try(t.Context(), g, env); err == nil || len(packRequests(server)) != 1 {
			t.Errorf("status %d: %v after requests %q", status, err, packRequests(server))
		}
	}
}

// If the cache cannot be written, fetches work as they do without a cache.
func TestCacheThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepo(t)
	tree := twentyFiles()
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	_, want, _ := fetch(t, g, source.Env{})
	for _, blocked := range []string{"tmp", "lock", "entry"} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, blocked), nil, 0o600))
		for range 2 {
			if _, data, _ := fetch(t, g, source.Env{Cache: newCache(t, dir)}); !bytes.Equal(data, want) {
				t.Errorf("%s: other bytes", blocked)
			}
		}
	}
	small, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir(), MaxBytes: 30 << 10})
	must(t, err)
	defer small.Close()
	for range 2 {
		if _, data, _ := fetch(t, g, source.Env{Cache: small}); !bytes.Equal(data, want) {
			t.Error("small: other bytes")
		}
	}
}

// A new repository at the same URL, even in another object format, replaces the old
// one in the cache.
func TestRepositoryIsReplaced(t *testing.T) {
	repos := map[string]*testenv.Repo{}
	server := testenv.ServeRepos(t, testenv.GitConfig{}, repos)
	g := object(server.URL+"/repo.git", source.GitRepositoryRef{Branch: "main"})
	env := source.Env{Cache: newCache(t, t.TempDir())}
	for i, format := range []string{"sha1", "sha1", "sha256", "sha256", "sha1"} {
		repos["repo.git"] = testenv.NewRepoIn(t, format)
		repos["repo.git"].Commit(testenv.Commit{Branch: "main", Files: files("at", fmt.Sprint(i))})
		if _, data, _ := fetch(t, g, env); contents(t, data)["at"] != fmt.Sprint(i) {
			t.Errorf("%d: other content", i)
		}
	}
}

// Data fetched with credentials of a provider is not given to a submodule of another
// object, which reaches the same repository without credentials.
func TestLoginsShareNothing(t *testing.T) {
	private, public := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := commitFiles(private, map[string]string{"secret": "1"})
	guarded := testenv.ServeRepos(t, testenv.GitConfig{Allow: func(r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer t0ken-canary"
	}}, map[string]*testenv.Repo{"app.git": private})
	open := testenv.ServeRepos(t, testenv.GitConfig{}, map[string]*testenv.Repo{"app.git": public})
	commitFiles(public, map[string]string{"a": "1"}, submodule{"stolen", guarded.URL + "/app.git", pin})

	i := &issuer{credential: source.Credential{Token: "t0ken-canary"}}
	env := source.Env{Login: i.login, Cache: newCache(t, t.TempDir())}
	owner, other := recursiveObject(guarded.URL+"/app.git"), recursiveObject(open.URL+"/app.git")
	owner.Spec.Provider, other.Spec.Provider = "azure", "azure"
	fetch(t, owner, env)
	wantRecoverableFetchError(t, other, env, authFailed, `submodule "stolen"|no credentials were sent`)
}

// A program that now runs as another user gets nothing from the cache that the server
// would refuse, not even a pinned commit.
func TestCacheRequiresLogin(t *testing.T) {
	repo := newOneFileRepo(t)
	server := testenv.ServeGit(t, testenv.GitConfig{Bearer: "t0ken-canary"}, repo)
	env := source.Env{Cache: newCache(t, t.TempDir())}
	g := object(server.Repo(), source.GitRepositoryRef{Commit: repo.ID("main")})
	g.Spec.Provider = "azure"
	env.Login = (&issuer{credential: source.Credential{Token: "t0ken-canary"}}).login
	fetch(t, g, env)
	server.Reset()
	if fetch(t, g, env); len(packRequests(server)) > 0 {
		t.Errorf("fetched what is held: %q", packRequests(server))
	}
	env.Login = (&issuer{credential: source.Credential{Token: "somebody else"}}).login
	wantFetchError(t, g, env, authFailed, "")
}

// reconcileAll reconciles objects concurrently, and returns their results and errors.
func reconcileAll(t *testing.T, env source.Env, objects ...*source.GitRepository) (results []source.Result, errs []error) {
	t.Helper()
	r := &source.Reconciler{Store: openStore(t)}
	results, errs = make([]source.Result, len(objects)), make([]error, len(objects))
	var all sync.WaitGroup
	for i, g := range objects {
		all.Go(func() { results[i], errs[i] = r.Reconcile(t.Context(), g, git.New(g, env)) })
	}
	all.Wait()
	return results, errs
}

// newObjects returns n objects of one repository, each changed by edit.
func newObjects(n int, url string, ref source.GitRepositoryRef, edit func(i int, g *source.GitRepository)) []*source.GitRepository {
	list := make([]*source.GitRepository, n)
	for i := range list {
		list[i] = object(url, ref)
		list[i].Metadata.Name = fmt.Sprint("object-", i)
		if edit != nil {
			edit(i, list[i])
		}
	}
	return list
}

// counts returns how many requests of each kind a server received.
func counts(s *testenv.GitServer) string {
	return fmt.Sprintf("%d advertisements, %d lists, %d packs", s.Count(testenv.Advertisement), s.Count(testenv.LsRefs), s.Count(testenv.Pack))
}

// sharedEnv returns an environment in which objects share requests, connections and a
// cache.
func sharedEnv(t *testing.T, secrets source.Secrets) source.Env {
	env := source.Env{Share: new(source.Share), Since: time.Now(), Reuse: new(source.Connections), Cache: newCache(t, t.TempDir()), Secrets: secrets}
	t.Cleanup(env.Reuse.Close)
	return env
}

// Objects of one repository and revision that are due together cost the server one
// list of refs and one pack, even if they pack different files.
func TestFleetAsksOnce(t *testing.T) {
	server := testenv.ServeGit(t, testenv.GitConfig{}, newOneFileRepo(t))
	env := sharedEnv(t, nil)
	objects := newObjects(20, server.Repo(), source.GitRepositoryRef{Branch: "main"}, func(i int, g *source.GitRepository) {
		if i%2 == 1 {
			g.Spec.Ignore = new("*.md")
		}
	})
	results, errs := reconcileAll(t, env, objects...)
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
	if _, errs := reconcileAll(t, env, objects...); counts(server) != "1 advertisements, 1 lists, 0 packs" || errors.Join(errs...) != nil {
		t.Errorf("again: %s, %v", counts(server), errs)
	}
}

// Objects that request different refs, or use other credentials, get answers of their
// own.
func TestFleetApart(t *testing.T) {
	repo := newOneFileRepo(t)
	repo.Git("branch", "next", "main")
	server := testenv.ServeGit(t, testenv.GitConfig{Allow: func(r *http.Request) bool {
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
			env := sharedEnv(t, secrets)
			refused := 0
			for _, g := range newObjects(2, server.Repo(), source.GitRepositoryRef{Branch: "main"}, func(i int, g *source.GitRepository) {
				g.Spec.SecretRef = &source.LocalReference{Name: "alice"}
				c.edit(i, g)
			}) {
				o := git.New(g, env)
				_, _, err := o.Resolve(t.Context(), nil)
				if err != nil {
					refused++
					wantStep(t, err, authFailed, "")
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
