package git_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func newCache(t testing.TB, dir string) *artifact.Cache {
	t.Helper()
	c, err := artifact.OpenCache(artifact.CacheConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// noise returns n bytes that do not compress, other ones for each seed.
func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// twentyFiles returns a tree of 400 KB.
func twentyFiles() fstest.MapFS {
	tree := fstest.MapFS{}
	for i := range uint64(20) {
		tree[fmt.Sprintf("dir%d/file%d", i%4, i)] = &fstest.MapFile{Data: noise(i, 20<<10), Mode: 0o644}
	}
	return tree
}

// packRequests returns the requests for packs that a server got.
func packRequests(s *testenv.Server) (bodies []string) {
	for _, q := range s.Requests() {
		if strings.Contains(string(q.Body), "want ") {
			bodies = append(bodies, string(q.Body))
		}
	}
	return bodies
}

// A wireServer is a server of some sort.
type wireServer struct {
	url    string
	env    source.Env
	ssh    bool
	server *testenv.Server // nil over ssh
}

func (w wireServer) object(ref source.GitRepositoryRef) *source.GitRepository {
	g := object(w.url, ref)
	if w.ssh {
		g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
	}
	return g
}

// wireServers are the sorts of servers that differ in how a fetch is negotiated.
func wireServers(t *testing.T, repo *testenv.Repo) map[string]wireServer {
	all := map[string]wireServer{}
	for name, c := range map[string]testenv.HTTP{
		"http": {}, "http v0": {V0: true}, "http v0 tips only": {V0: true, NoAnyWant: true},
		"http no shallow": {NoShallow: true}, "http v0 no shallow": {V0: true, NoShallow: true},
	} {
		s := testenv.ServeHTTP(t, c, repo)
		all[name] = wireServer{url: s.Repo(), server: s}
	}
	for name, serve := range servers(t, repo) {
		if strings.HasPrefix(name, "ssh") {
			url, env := serve()
			env.Secrets = maps.Clone(env.Secrets.(sourcetest.Secrets)) // servers puts all keys into one
			all[name] = wireServer{url: url, env: env, ssh: true}
		}
	}
	return all
}

// A change transfers the change, a commit that is held nothing at all.
func TestIncremental(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := twentyFiles()
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	for name, s := range wireServers(t, repo) {
		t.Run(name, func(t *testing.T) {
			env := s.env
			env.Cache = newCache(t, t.TempDir())
			g := s.object(source.GitRepositoryRef{Branch: "main"})
			fetch(t, g, env)
			var before, after int64
			for i := range 3 {
				tree["dir1/file5"].Data = append(fmt.Appendf(nil, "change %d for %s\n", i, name), tree["dir1/file5"].Data...)
				repo.Commit(testenv.Commit{Branch: "main", Files: tree})
				if s.server != nil {
					s.server.Reset()
				}
				_, data, _ := fetch(t, g, env)
				if s.server != nil {
					if _, after = s.server.Bytes(); after > before+8<<10 {
						t.Errorf("%d bytes for one changed file", after)
					}
				}
				if _, want, _ := fetch(t, g, s.env); !bytes.Equal(data, want) {
					t.Error("other bytes than without a cache")
				}
			}
			if s.server == nil {
				return
			}
			s.server.Reset()
			fetch(t, g, env)
			if list := packRequests(s.server); len(list) > 0 {
				t.Errorf("fetched what is held: %q", list)
			}
		})
	}
}

// Whatever happens to a branch, and to the cache on the way, the bytes are those
// of a fetch without a cache.
func TestCacheSurvivesDamage(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		repo := testenv.NewRepoIn(t, format)
		tree := twentyFiles()
		commit := func(parents ...string) string {
			return repo.Commit(testenv.Commit{Branch: "main", Files: tree, Parents: parents})
		}
		first := commit()
		for name, s := range wireServers(t, repo) {
			if format == "sha256" && name != "http" && name != "http v0" {
				continue
			}
			t.Run(format+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				env := s.env
				env.Cache = newCache(t, dir)
				entries := func(do func(file string, b []byte)) {
					found, err := filepath.Glob(filepath.Join(dir, "entry", "*", "*"))
					if err != nil {
						t.Fatal(err)
					}
					for _, file := range found {
						if b, err := os.ReadFile(file); err == nil {
							do(file, b)
						}
					}
				}
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
					step()
					for _, ref := range []source.GitRepositoryRef{{Branch: "main"}, {Branch: "main", Commit: repo.ID("main")}} {
						g := s.object(ref)
						rev, data, _ := fetch(t, g, env)
						if plain, want, _ := fetch(t, g, s.env); rev.ID != plain.ID || !bytes.Equal(data, want) {
							t.Fatalf("step %d, %+v: other bytes with the cache", i, ref)
						}
					}
				}
			})
		}
	}
}

// Whoever has other credentials does not profit, and none of them is written down.
func TestCredentialsShareNothing(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: twentyFiles()})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
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
		if n := len(packRequests(server)); n != row.fetches {
			t.Errorf("%d: secret %q, %s: %d fetches, want %d", i, row.secret, row.url, n, row.fetches)
		}
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
	if err != nil {
		t.Fatal(err)
	}
}

// However many objects and processes share an upstream, what they share is
// fetched once.
func TestSharedUpstream(t *testing.T) {
	repo := testenv.NewRepo(t)
	id := repo.Commit(testenv.Commit{Branch: "main", Files: twentyFiles()})
	repo.Git("branch", "same", id)
	repo.AnnotatedTag("v1.0.0", id, "release")
	for name, refs := range map[string][]source.GitRepositoryRef{
		"one branch":         {{Branch: "main"}, {Branch: "main"}, {Branch: "main"}},
		"two branches, tags": {{Branch: "main"}, {Branch: "same"}, {SemVer: "1.x"}, {Tag: "v1.0.0"}, {Commit: id}},
		"sparse and whole":   {{Branch: "main"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
			dir := t.TempDir()
			var wg sync.WaitGroup
			archives := make([][]byte, len(refs))
			for i, ref := range refs {
				g := object(server.Repo(), ref)
				g.Metadata.Name = fmt.Sprint("app", i)
				env := source.Env{Cache: newCache(t, dir)} // each as if in a process of its own
				wg.Go(func() {
					var err error
					if _, archives[i], _, err = try(t.Context(), g, env); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if list := packRequests(server); len(list) != 1 {
				t.Errorf("%d fetches: %q", len(list), list)
			}
			for _, a := range archives {
				if !bytes.Equal(a, archives[0]) {
					t.Error("different bytes")
				}
			}
			if name == "sparse and whole" {
				g := object(server.Repo(), refs[0])
				g.Spec.SparseCheckout = []string{"dir1"}
				server.Reset()
				if _, data, _ := fetch(t, g, source.Env{Cache: newCache(t, dir)}); len(contents(t, data)) != 5 || len(packRequests(server)) > 0 {
					t.Errorf("sparse: %d files, fetched %q", len(contents(t, data)), packRequests(server))
				}
			}
		})
	}
}
