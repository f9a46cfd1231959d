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

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

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
