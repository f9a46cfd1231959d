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

// A tree of any history gives the same bytes with a cache and without, whatever
// happens to the cache on the way.
func TestCacheChangesNothing(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		repo := testenv.NewRepoIn(t, format)
		story := &story{repo: repo, rng: rand.New(rand.NewPCG(7, 7)), tree: twentyFiles()}
		story.commit()
		for name, s := range wireServers(t, repo) {
			if format == "sha256" && name != "http" && name != "http v0" {
				continue
			}
			t.Run(format+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				env := s.env
				env.Cache = newCache(t, dir)
				steps := 8
				if name == "http" {
					steps = 25
				}
				for range steps {
					did := story.next()
					ref := story.ref()
					g := s.object(ref)
					if story.rng.IntN(8) == 0 {
						did += ", " + spoil(t, dir, story.rng)
					}
					rev, data, _ := fetch(t, g, env)
					if plain, want, _ := fetch(t, g, s.env); rev.ID != plain.ID || !bytes.Equal(data, want) {
						t.Fatalf("%s, %+v: other bytes with the cache", did, ref)
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

// After many fetches the cache holds about what a few commits take.
func TestLayersAreMerged(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := twentyFiles()
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	dir := t.TempDir()
	env := source.Env{Cache: newCache(t, dir)}
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	for i := range 40 {
		tree["dir2/file2"].Data = noise(uint64(1000+i), 20<<10)
		repo.Commit(testenv.Commit{Branch: "main", Files: tree})
		server.Reset()
		_, data, _ := fetch(t, g, env)
		if _, sent := server.Bytes(); i > 0 && sent > 50<<10 {
			t.Errorf("fetch %d: %d bytes", i, sent)
		}
		if got := contents(t, data)["dir2/file2"]; got != string(tree["dir2/file2"].Data) {
			t.Errorf("fetch %d: other content", i)
		}
	}
	var total, count int64
	err := filepath.WalkDir(filepath.Join(dir, "entry"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if info.Size() < 300<<10 || info.Size() > 430<<10 { // not what compressed blocks take
			total += info.Size()
			count++
		}
		return err
	})
	if err != nil || count > 20 || total > 2<<20 {
		t.Errorf("%d entries with %d bytes: %v", count, total, err)
	}
	server.Reset()
	fetch(t, object(server.Repo(), source.GitRepositoryRef{Commit: repo.ID("main")}), env)
	if list := packRequests(server); len(list) > 0 {
		t.Errorf("fetched what is held: %q", list)
	}
}
