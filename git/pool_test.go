package git_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
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

// twentyFiles returns a tree of twenty files, 400 KB together.
func twentyFiles() fstest.MapFS {
	tree := fstest.MapFS{}
	for i := range uint64(20) {
		tree[fmt.Sprintf("dir%d/file%d", i%4, i)] = &fstest.MapFile{Data: noise(i, 20<<10), Mode: 0o644}
	}
	return tree
}

func TestIncremental(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := twentyFiles()
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	for name, c := range map[string]testenv.HTTP{"v2": {}, "v0": {V0: true}, "tips only": {V0: true, NoAnyWant: true}} {
		t.Run(name, func(t *testing.T) {
			server := testenv.ServeHTTP(t, c, repo)
			env := source.Env{Cache: newCache(t, t.TempDir())}
			g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
			fetch(t, g, env)
			tree["dir1/file5"].Data = append([]byte("changed for "+name), tree["dir1/file5"].Data...)
			repo.Commit(testenv.Commit{Branch: "main", Files: tree})
			server.Reset()
			_, data, _ := fetch(t, g, env)
			if _, sent := server.Bytes(); sent > 8<<10 {
				t.Errorf("%d bytes for one changed file", sent)
			}
			if _, want, _ := fetch(t, g, source.Env{}); !bytes.Equal(data, want) {
				t.Error("other bytes than without a cache")
			}
			server.Reset()
			fetch(t, g, env)
			for _, q := range server.Requests() {
				if q.Phase == testenv.Pack && !strings.Contains(string(q.Body), "ls-refs") {
					t.Errorf("fetched what is held: %s", q.Body)
				}
			}
		})
	}
}
