package git_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestEveryReferenceOverEveryTransport(t *testing.T) {
	h := newHistory(t)
	bySource := map[string][]byte{} // commit → archive: identical however it came
	for name, serve := range servers(t, h.Repo) {
		url, env := serve()
		for _, row := range rows {
			t.Run(name+"/"+row.name, func(t *testing.T) {
				ref := row.ref
				if ref.Commit != "" {
					ref.Commit = h.ids[ref.Commit]
				}
				g := object(url, ref)
				if strings.HasPrefix(url, "ssh:") {
					g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
				}
				rev, data, report := fetch(t, g, env)
				if want := row.label + "sha1:" + h.ids[row.at]; rev.ID != want {
					t.Errorf("revision %s, want %s", rev.ID, want)
				}
				if want := h.ids[row.at] + ".tar.gz"; rev.File != want {
					t.Errorf("file %s, want %s", rev.File, want)
				}
				if got, want := contents(t, data), map[string]string{"at": row.at, "dir/file": "same"}; !maps.Equal(got, want) {
					t.Errorf("content %v, want %v", got, want)
				}
				if want := "stored artifact for commit 'at " + row.at + "'"; report.Message != want {
					t.Errorf("message %q, want %q", report.Message, want)
				}
				if first, ok := bySource[row.at]; ok && !bytes.Equal(first, data) {
					t.Errorf("archive differs from that of another transport")
				}
				bySource[row.at] = data
			})
		}
	}
}

func TestReferenceErrors(t *testing.T) {
	h := newHistory(t)
	url := testenv.ServeHTTP(t, testenv.HTTP{}, h.Repo).Repo()
	absentID := strings.Repeat("1", 40)
	for name, row := range map[string]struct {
		ref     source.GitRepositoryRef
		invalid bool
		say     []string
	}{
		"default branch":       {source.GitRepositoryRef{}, false, []string{`branch "master"`, "refs/heads/main", "spec.ref.branch"}},
		"branch":               {source.GitRepositoryRef{Branch: "nope"}, false, []string{`branch "nope"`}},
		"prefix of a branch":   {source.GitRepositoryRef{Branch: "mai"}, false, []string{`branch "mai"`}},
		"tag":                  {source.GitRepositoryRef{Tag: "nope"}, false, []string{`tag "nope"`, "spec.ref.tag"}},
		"name":                 {source.GitRepositoryRef{Name: "refs/nope"}, false, []string{"refs/nope"}},
		"semver without match": {source.GitRepositoryRef{SemVer: ">=2.0.0"}, false, []string{"no match found for semver", ">=2.0.0"}},
		"semver malformed":     {source.GitRepositoryRef{SemVer: "latest!"}, true, []string{"spec.ref.semver", "latest!"}},
		"commit malformed":     {source.GitRepositoryRef{Commit: "abc"}, true, []string{"spec.ref.commit"}},
		"commit absent":        {source.GitRepositoryRef{Commit: absentID}, false, []string{absentID}},
		"commit off branch":    {source.GitRepositoryRef{Commit: h.ids["pull"], Branch: "main"}, false, []string{h.ids["pull"], `"main"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := try(t.Context(), object(url, row.ref), source.Env{})
			var step *source.StepError
			if !errors.As(err, &step) || step.Reason != "GitOperationFailed" {
				t.Fatalf("%v: want a StepError with reason GitOperationFailed", err)
			}
			if errors.Is(err, source.ErrInvalid) != row.invalid {
				t.Errorf("%v: invalid = %v", err, !row.invalid)
			}
			for _, s := range row.say {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v: does not say %s", err, s)
				}
			}
		})
	}
}

func TestEmptyRepository(t *testing.T) {
	for _, v0 := range []bool{false, true} {
		url := testenv.ServeHTTP(t, testenv.HTTP{V0: v0}, testenv.NewRepo(t)).Repo()
		_, _, _, err := try(t.Context(), object(url, source.GitRepositoryRef{Branch: "main"}), source.Env{})
		var step *source.StepError
		if !errors.As(err, &step) || step.Reason != "EmptyGitRepository" {
			t.Errorf("v0 %v: %v: want reason EmptyGitRepository", v0, err)
		}
	}
}

// Versions of equal precedence: the tag of the youngest commit wins (reference A9).
func TestSemverTies(t *testing.T) {
	repo := testenv.NewRepo(t)
	for _, v := range []struct {
		tag   string
		after time.Duration
	}{
		{"v0.0.1", 0}, {"v0.1.0+build-1", 10 * time.Minute}, {"v0.1.0+build-3", time.Hour}, {"v0.1.0+build-2", 30 * time.Minute}, {"0.2.0", 2 * time.Hour},
	} {
		repo.Tag(v.tag, repo.Commit(testenv.Commit{Branch: "main", Files: files("version", v.tag), Time: testenv.Epoch.Add(v.after)}))
	}
	repo.AnnotatedTag("v0.1.0+build-0", repo.ID("v0.0.1"), "old") // led to, but not pointed to
	for _, c := range []testenv.HTTP{{}, {NoFilter: true}, {V0: true, NoAnyWant: true}} {
		server := testenv.ServeHTTP(t, c, repo)
		for constraint, want := range map[string]string{">0.1.0": "0.2.0", "<0.2.0": "v0.1.0+build-3", "0.1.x": "v0.1.0+build-3"} {
			o := git.New(object(server.Repo(), source.GitRepositoryRef{SemVer: constraint}), source.Env{})
			rev, state, err := o.Resolve(t.Context(), nil)
			if err != nil || !strings.HasPrefix(rev.ID, want+"@") {
				t.Errorf("%s: %v, %v; want %s", constraint, rev.ID, err, want)
			}
			server.Reset()
			again, _, err := o.Resolve(t.Context(), state)
			if err != nil || again.ID != rev.ID {
				t.Errorf("%s: again %v, %v", constraint, again.ID, err)
			}
			if n := len(server.Requests()); n > 2 {
				t.Errorf("%s: %d requests for unmoved tags, want 2", constraint, n)
			}
			for _, torn := range []string{"{", `{"tags":null}`, `{"tags":["x"],"wins":"x"}`, strings.ReplaceAll(string(state), "build-3", "build-9")} {
				if again, _, err := o.Resolve(t.Context(), source.State(torn)); err != nil || again.ID != rev.ID {
					t.Errorf("%s: state %s: %v, %v", constraint, torn, again.ID, err)
				}
			}
		}
	}
}

// crowd makes a repository whose refs release, v1.0.0 and refs/pull/1/head
// stand among n refs whose names begin with each of the prefixes.
func crowd(t *testing.T, n int, prefixes ...string) (*testenv.Repo, string) {
	repo := testenv.NewRepo(t)
	id := repo.Commit(testenv.Commit{Branch: "release", Files: files("a", "1")})
	refs := []string{"refs/heads/release", "refs/tags/v1.0.0", "refs/pull/1/head"}
	for i := range n {
		for _, p := range prefixes {
			refs = append(refs, fmt.Sprintf("%s%d", p, i))
		}
	}
	slices.Sort(refs)
	var packed bytes.Buffer // by hand: git update-ref writes a file for each
	fmt.Fprintln(&packed, "# pack-refs with: peeled fully-peeled sorted")
	for _, name := range refs {
		fmt.Fprintln(&packed, id, name)
	}
	if err := os.WriteFile(filepath.Join(repo.Dir, "packed-refs"), packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return repo, id
}

// An unchanged origin costs at most two requests and 8 KB however many refs
// there are, and a pinned commit costs none.
func TestCostOfUnchanged(t *testing.T) {
	repo, id := crowd(t, 5000, "refs/heads/a", "refs/tags/v2.", "refs/pull/2/")
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	for _, row := range []struct {
		ref      source.GitRepositoryRef
		requests int
	}{
		{source.GitRepositoryRef{Branch: "release"}, 2},
		{source.GitRepositoryRef{Tag: "v1.0.0"}, 2},
		{source.GitRepositoryRef{Name: "refs/pull/1/head"}, 2},
		{source.GitRepositoryRef{Commit: id}, 0},
		{source.GitRepositoryRef{Commit: id, Branch: "release"}, 0},
	} {
		server.Reset()
		if _, _, err := git.New(object(server.Repo(), row.ref), source.Env{}).Resolve(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		received, sent := server.Bytes()
		if n := len(server.Requests()); n != row.requests || received+sent > 8<<10 {
			t.Errorf("%+v: %d requests, %d bytes; want %d and at most 8192", row.ref, n, received+sent, row.requests)
		}
	}
}

// Links are left out and reported; submodules are empty directories.
func TestLeftOut(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := files("a", "1")
	tree["link"] = &fstest.MapFile{Data: []byte("a"), Mode: fs.ModeSymlink | 0o777}
	tree["module"] = testenv.Gitlink(strings.Repeat("1", 40))
	tree["run.sh"] = &fstest.MapFile{Data: []byte("#!"), Mode: 0o755}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	_, data, report := fetch(t, object(testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo(), source.GitRepositoryRef{Branch: "main"}), source.Env{})
	if got := slices.Sorted(maps.Keys(contents(t, data))); !slices.Equal(got, []string{"a", "run.sh"}) || !slices.Equal(emptyDirs(t, data), []string{"module"}) {
		t.Errorf("content %v", got)
	}
	var out []string
	for _, l := range report.LeftOut {
		out = append(out, l.Name+" "+l.Mode.Type().String()[:1])
	}
	if !slices.Equal(out, []string{"link L"}) || !slices.Equal(report.Notes, []string{"submodules are empty directories without spec.recurseSubmodules: module"}) {
		t.Errorf("left out %v, notes %q", out, report.Notes)
	}
}

func TestInvalidURL(t *testing.T) {
	for _, url := range []string{"", "git@example.com:x/y", "file:///x", "git://example.com/x", "ext::sh -c x", "https:///x", "https://exa\nmple.com/x", "https://[::1/x"} {
		_, _, err := git.New(object(url, source.GitRepositoryRef{}), source.Env{}).Resolve(t.Context(), nil)
		var step *source.StepError
		if !errors.Is(err, source.ErrInvalid) || !errors.As(err, &step) || step.Reason != "URLInvalid" {
			t.Errorf("%q: %v: want ErrInvalid and reason URLInvalid", url, err)
		}
	}
}

func TestIgnoreRules(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: files(
		"a.txt", "a", "b.jpg", "b", ".gitignore", "c", "docs/d.md", "d", "docs/.sourceignore", "*.md\n!keep.md\n", "docs/keep.md", "k", "docs/deep/e.md", "e")})
	url := testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo()
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	_, data, _ := fetch(t, g, source.Env{})
	if got, want := slices.Sorted(maps.Keys(contents(t, data))), []string{"a.txt", "b.jpg", "docs/.sourceignore", "docs/keep.md"}; !slices.Equal(got, want) {
		t.Errorf("content %v, want %v", got, want)
	}
	ignore := "/*\n!/docs/deep/*.md\n" // spec.ignore has the last word, below excluded directories too
	g.Spec.Ignore = &ignore
	_, data, _ = fetch(t, g, source.Env{})
	if got, want := slices.Sorted(maps.Keys(contents(t, data))), []string{"docs/deep/e.md"}; !slices.Equal(got, want) {
		t.Errorf("content %v, want %v", got, want)
	}
}
