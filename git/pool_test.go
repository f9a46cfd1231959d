package git_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

// spoil does to a cache what may happen to it.
func spoil(t *testing.T, dir string, rng *rand.Rand) string {
	t.Helper()
	var entries []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			entries = append(entries, name)
		}
		return err
	})
	if err != nil || len(entries) == 0 {
		return fmt.Sprint("nothing to spoil ", err)
	}
	name := entries[rng.IntN(len(entries))]
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	did := "flipped"
	switch rng.IntN(4) {
	case 0:
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	case 1:
		did, b = "truncated", b[:rng.IntN(len(b))]
	case 2:
		did = "removed"
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		return did
	case 3:
		did = "emptied"
		for _, name := range entries {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		return did
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return did
}

// A story is a repository to which random things happen.
type story struct {
	repo *testenv.Repo
	rng  *rand.Rand
	tree fstest.MapFS
	n    int
}

func (s *story) commit(parents ...string) string {
	return s.repo.Commit(testenv.Commit{Branch: "main", Files: s.tree, Parents: parents})
}

func (s *story) file() string {
	names := slices.Sorted(maps.Keys(s.tree))
	return names[s.rng.IntN(len(names))]
}

// events are what can happen; the tree is never empty.
var events = []struct {
	name string
	do   func(s *story, file string)
}{
	{"edit", func(s *story, file string) {
		s.tree[file].Data = append(slices.Clip(s.tree[file].Data), fmt.Sprint(s.n)...)
		s.commit()
	}},
	{"add", func(s *story, _ string) {
		s.tree[fmt.Sprintf("new%d/a/b", s.n)] = &fstest.MapFile{Data: noise(uint64(s.n), 3000), Mode: 0o644}
		s.commit()
	}},
	{"remove", func(s *story, file string) {
		if len(s.tree) > 3 {
			delete(s.tree, file)
		}
		s.commit()
	}},
	{"rename", func(s *story, file string) {
		s.tree[fmt.Sprintf("moved%d", s.n)] = s.tree[file]
		delete(s.tree, file)
		s.commit()
	}},
	{"mode", func(s *story, file string) {
		f := *s.tree[file]
		f.Mode ^= 0o111
		s.tree[file] = &f
		s.commit()
	}},
	{"nothing", func(s *story, _ string) { s.commit() }},
	{"many", func(s *story, file string) {
		for i := range 5 {
			s.tree[file].Data = append(slices.Clip(s.tree[file].Data), fmt.Sprint(s.n, i)...)
			s.commit()
		}
	}},
	{"force-push", func(s *story, file string) {
		s.tree[file].Data = noise(uint64(s.n), 5000)
		s.commit(s.repo.ID("main~" + fmt.Sprint(s.rng.IntN(1+s.count()/2))))
	}},
	{"new root", func(s *story, file string) {
		s.tree[file].Data = noise(uint64(s.n), 5000)
		s.repo.Commit(testenv.Commit{Branch: "main", Files: s.tree, Parents: []string{}})
	}},
	{"merge", func(s *story, file string) {
		side := s.repo.Commit(testenv.Commit{Files: files("side", fmt.Sprint(s.n)), Parents: []string{s.repo.ID("main")}})
		s.tree["side"] = &fstest.MapFile{Data: fmt.Append(nil, s.n), Mode: 0o644}
		s.commit(s.repo.ID("main"), side)
	}},
	{"tags", func(s *story, file string) {
		s.repo.Tag(fmt.Sprintf("v1.%d.0", s.n), s.repo.ID("main"))
		s.repo.AnnotatedTag(fmt.Sprintf("v2.%d.0", s.n), s.repo.ID("main"), "release")
	}},
	{"branch", func(s *story, file string) {
		s.repo.Git("branch", "-f", "side", "main~"+fmt.Sprint(s.rng.IntN(1+s.count()/2)))
	}},
	{"gc", func(s *story, file string) { s.repo.Git("gc", "-q", "--prune=now") }},
}

func (s *story) count() int {
	return strings.Count(s.repo.Git("rev-list", "--first-parent", "main"), "\n")
}

func (s *story) next() string {
	s.n++
	e := events[s.rng.IntN(len(events))]
	e.do(s, s.file())
	return e.name
}

// ref returns one of the refs there are, or a commit.
func (s *story) ref() source.GitRepositoryRef {
	names := strings.Fields(s.repo.Git("for-each-ref", "--format=%(refname)"))
	switch name := names[s.rng.IntN(len(names))]; s.rng.IntN(5) {
	case 0:
		return source.GitRepositoryRef{Name: name}
	case 1:
		return source.GitRepositoryRef{Branch: "main", Commit: s.repo.ID("main")}
	}
	return source.GitRepositoryRef{Branch: "main"}
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
