package git_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// large is a repository of which some files stand for LFS objects.
func large(t *testing.T, objects *testenv.LFS) *testenv.Repo {
	repo := testenv.NewRepo(t)
	tree := files(
		".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\nsmall.bin !filter\n",
		"a.bin", objects.Add("content of a"),
		"dir/.gitattributes", "raw.* filter=lfs\nplain.bin -filter\n",
		"dir/raw.dat", objects.Add(strings.Repeat("raw", 100_000)),
		"dir/again.bin", objects.Add("content of a"),
		"dir/plain.bin", objects.Add("never asked for 1"),
		"small.bin", objects.Add("never asked for 2"),
		"empty.bin", "",
		"hidden/b.bin", objects.Add("never asked for 3"),
		"text.md", "text\n",
	)
	tree["run.bin"] = &fstest.MapFile{Data: []byte(objects.Add("#!/bin/sh\n")), Mode: 0o755}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	return repo
}

// want is what large holds once its pointers are replaced.
func want() map[string]string {
	return map[string]string{
		"a.bin": "content of a", "dir/again.bin": "content of a", "dir/raw.dat": strings.Repeat("raw", 100_000),
		"dir/plain.bin": pointer("never asked for 1"), "small.bin": pointer("never asked for 2"),
		"empty.bin": "", "text.md": "text\n", "run.bin": "#!/bin/sh\n",
	}
}

func pointer(content string) string { return new(testenv.LFS).Add(content) }

func lfsObject(url string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	ignore := "hidden/\n"
	g.Spec.LFS, g.Spec.Ignore = true, &ignore
	return g
}

func phases(s *testenv.Server, phase testenv.Phase) (found []testenv.Request) {
	for _, q := range s.Requests() {
		if q.Phase == phase {
			found = append(found, q)
		}
	}
	return found
}

func TestLFS(t *testing.T) {
	objects := new(testenv.LFS)
	repo := large(t, objects)
	server := testenv.ServeHTTP(t, testenv.HTTP{LFS: objects, Username: "alice", Password: "s3cret pass"}, repo)
	g := lfsObject(server.Repo())
	g.Spec.SecretRef = &source.LocalReference{Name: "login"}
	env := source.Env{Secrets: memory{"default/login": data("username", "alice", "password", "s3cret pass")}}
	_, archive, report := fetch(t, g, env)
	if got := contents(t, archive); !maps.Equal(got, want()) {
		t.Errorf("content %v", slices.Sorted(maps.Keys(got)))
		for name, text := range want() {
			if got[name] != text {
				t.Errorf("%s: %.80q, want %.80q", name, got[name], text)
			}
		}
	}
	if len(report.Notes) != 0 {
		t.Errorf("notes %q", report.Notes)
	}
	if n := len(phases(server, testenv.LFSObject)); n != 3 {
		t.Errorf("%d downloads, want 3", n)
	}
	g.Spec.LFS = false
	_, archive, report = fetch(t, g, env)
	if got := contents(t, archive); got["a.bin"] != pointer("content of a") {
		t.Errorf("without lfs: %q", got["a.bin"])
	}
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "6 files are Git LFS pointers") {
		t.Errorf("notes %q", report.Notes)
	}
}
