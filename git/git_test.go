package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestEveryReferenceOverEveryTransport(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		h := newHistory(t, format)
		bySource := map[string][]byte{} // commit → archive: identical over all transports
		for name, s := range servers(t, h.Repo) {
			if format == "sha256" && name != "http" && name != "http v0 tips only" {
				continue
			}
			// The selection does not depend on the server that lists the refs. How
			// the objects of a branch, a tag and a commit of each sort are
			// transferred does.
			allRows := format == "sha1" && (name == "http" || name == "local" || name == "http v0 tips only")
			for _, row := range rows {
				if !allRows && !slices.Contains([]string{"branch", "annotated tag", "commit in the past", "commit on branch"}, row.name) {
					continue
				}
				if strings.Contains(row.name, " over ") && name != "http" && name != "local" {
					continue // the deciding field is chosen before any request
				}
				t.Run(format+"/"+name+"/"+row.name, func(t *testing.T) {
					ref := row.ref
					if ref.Commit != "" {
						ref.Commit = h.ids[ref.Commit]
					}
					rev, data, report := fetch(t, s.object(ref), s.env)
					if want := row.label + format + ":" + h.ids[row.at]; rev.ID != want || rev.File != h.ids[row.at]+".tar.gz" {
						t.Errorf("revision %s, want %s, file %s", rev.ID, want, rev.File)
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
	sha256 := newHistory(t, "sha256")
	url := testenv.ServeGit(t, testenv.GitConfig{}, sha256.Repo).Repo()
	if _, _, _, err := try(t.Context(), object(url, source.GitRepositoryRef{Commit: strings.Repeat("1", 40)}), source.Env{}); err == nil {
		t.Error("a SHA-1 commit in a SHA-256 repository")
	}
}

func TestReferenceErrors(t *testing.T) {
	h := newHistory(t, "sha1")
	url := testenv.ServeGit(t, testenv.GitConfig{}, h.Repo).Repo()
	absentID := strings.Repeat("1", 40)
	for name, row := range map[string]struct {
		ref     source.GitRepositoryRef
		invalid bool
		say     string
	}{
		"default branch":       {source.GitRepositoryRef{}, false, `branch "master"|refs/heads/main|spec.ref.branch`},
		"branch":               {source.GitRepositoryRef{Branch: "nope"}, false, `branch "nope"`},
		"prefix of a branch":   {source.GitRepositoryRef{Branch: "mai"}, false, `branch "mai"`},
		"tag":                  {source.GitRepositoryRef{Tag: "nope"}, false, `tag "nope"|spec.ref.tag`},
		"name":                 {source.GitRepositoryRef{Name: "refs/nope"}, false, `refs/nope`},
		"semver without match": {source.GitRepositoryRef{SemVer: ">=2.0.0"}, false, `no match found for semver|>=2.0.0`},
		"semver malformed":     {source.GitRepositoryRef{SemVer: "latest!"}, true, `spec.ref.semver|latest!`},
		"commit malformed":     {source.GitRepositoryRef{Commit: "abc"}, true, `spec.ref.commit`},
		"commit absent":        {source.GitRepositoryRef{Commit: absentID}, false, absentID},
		"commit off branch":    {source.GitRepositoryRef{Commit: h.ids["pull"], Branch: "main"}, false, h.ids["pull"] + "|" + `"main"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := try(t.Context(), object(url, row.ref), source.Env{})
			wantStep(t, err, gitFailed, row.say)
			if errors.Is(err, source.ErrInvalid) != row.invalid {
				t.Errorf("%v: invalid = %v", err, !row.invalid)
			}
		})
	}
}

func TestEmptyRepository(t *testing.T) {
	for _, v0 := range []bool{false, true} {
		url := testenv.ServeGit(t, testenv.GitConfig{V0: v0}, testenv.NewRepo(t)).Repo()
		wantFetchError(t, object(url, source.GitRepositoryRef{Branch: "main"}), source.Env{}, "EmptyGitRepository", "")
	}
}

// Among versions of equal precedence the tag of the youngest commit wins (reference
// A9).
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
	repo.AnnotatedTag("v0.1.0+build-0", repo.ID("v0.0.1"), "old") // the tag leads to the commit, no ref points to it
	for _, c := range []testenv.GitConfig{{}, {NoFilter: true}, {V0: true, NoAnyWant: true}} {
		server := testenv.ServeGit(t, c, repo)
		for constraint, want := range map[string]string{">0.1.0": "0.2.0", "0.1.x": "v0.1.0+build-3"} {
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

// newRepoWithRefs makes a repository with the refs release, v1.0.0 and refs/pull/1/head, and n
// refs whose names begin with each of the prefixes.
func newRepoWithRefs(t *testing.T, n int, prefixes ...string) (*testenv.Repo, string) {
	repo := testenv.NewRepo(t)
	id := repo.Commit(testenv.Commit{Branch: "release", Files: files("a", "1")})
	refs := []string{"refs/heads/release", "refs/tags/v1.0.0", "refs/pull/1/head"}
	for i := range n {
		for _, p := range prefixes {
			refs = append(refs, fmt.Sprintf("%s%d", p, i))
		}
	}
	slices.Sort(refs)
	var packed bytes.Buffer // written directly, because git update-ref writes a file for each ref
	fmt.Fprintln(&packed, "# pack-refs with: peeled fully-peeled sorted")
	for _, name := range refs {
		fmt.Fprintln(&packed, id, name)
	}
	must(t, os.WriteFile(filepath.Join(repo.Dir, "packed-refs"), packed.Bytes(), 0o644))
	return repo, id
}

// An unchanged origin costs at most two requests and 8 KB however many refs
// there are, and a pinned commit costs none.
func TestCostOfUnchanged(t *testing.T) {
	repo, id := newRepoWithRefs(t, 5000, "refs/heads/a", "refs/tags/v2.", "refs/pull/2/")
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
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

// Symbolic links are left out and reported; submodules are empty directories.
func TestLeftOut(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := files("a", "1")
	tree["link"] = &fstest.MapFile{Data: []byte("a"), Mode: fs.ModeSymlink | 0o777}
	tree["module"] = testenv.Gitlink(strings.Repeat("1", 40))
	tree["run.sh"] = &fstest.MapFile{Data: []byte("#!"), Mode: 0o755}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	_, data, report := fetch(t, object(testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo(), source.GitRepositoryRef{Branch: "main"}), source.Env{})
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
		if wantStep(t, err, "URLInvalid", ""); !errors.Is(err, source.ErrInvalid) {
			t.Errorf("%q: %v: want ErrInvalid", url, err)
		}
	}
}

// A ref may lead to anything; only a commit can be fetched.
func TestRefsThatLeadToNoCommit(t *testing.T) {
	repo := newOneFileRepo(t)
	tree := repo.Tree(files("a", "1"))
	repo.Tag("tree", tree)
	repo.AnnotatedTag("annotated", tree, "a tag of a tree")
	repo.AnnotatedTag("nested", repo.ID("refs/tags/annotated"), "a tag of a tag of a tree")
	url := testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo()
	for _, tag := range []string{"tree", "annotated", "nested"} {
		_, _, _, err := try(t.Context(), object(url, source.GitRepositoryRef{Tag: tag}), source.Env{})
		if err == nil || !strings.Contains(err.Error(), "tree") {
			t.Errorf("%s: %v: want an error that says that it is a tree", tag, err)
		}
	}
}

// A blob of zeros is a small pack: the limit applies to the inflated size.
func TestLimits(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := files("small", "1")
	tree["zeros"] = files("", "")[""]
	tree["zeros"].Data = make([]byte, 3<<20)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	url := testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo()
	for name, limits := range map[string]artifact.Limits{
		"bytes":      {Bytes: 2 << 20},
		"file bytes": {FileBytes: 2 << 20},
		"entries":    {Entries: 1},
	} {
		_, _, _, err := try(t.Context(), object(url, source.GitRepositoryRef{Branch: "main"}), source.Env{Limits: limits})
		if err == nil || !strings.Contains(err.Error(), "limit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, limits := range []artifact.Limits{{Bytes: 4 << 20, Entries: 2}, {Bytes: -1, FileBytes: -1, Entries: -1}} {
		_, data, _ := fetch(t, object(url, source.GitRepositoryRef{Branch: "main"}), source.Env{Limits: limits})
		if len(data) > 1<<20 {
			t.Errorf("%d bytes for zeros", len(data))
		}
	}
}

// packRequests returns the bodies of the requests for packs.
func packRequests(s *testenv.GitServer) []string {
	var bodies []string
	for _, q := range s.Requests() {
		if q.Phase == testenv.Pack {
			bodies = append(bodies, string(q.Body))
		}
	}
	return bodies
}

// Some servers speak version 2 and still send only what refs point to.
func TestRefusedWants(t *testing.T) {
	repo := testenv.NewRepo(t)
	first := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	tag := repo.AnnotatedTag("v1.0.0", first, "release")
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	refuse := respondToFetch(pkt("ERR want "+first+" not valid\n"), 1)
	branch := git.New(object(server.Repo(), source.GitRepositoryRef{Branch: "main"}), source.Env{})
	onBranch, _, err := branch.Resolve(t.Context(), nil)
	must(t, err)
	repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")}) // main moves on
	tagged := git.New(object(server.Repo(), source.GitRepositoryRef{Tag: "v1.0.0"}), source.Env{})
	onTag, _, err := tagged.Resolve(t.Context(), nil)
	must(t, err)
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
		must(t, err)
		defer content.Close()
		var b bytes.Buffer
		report, err := content.WriteTo(t.Context(), &b)
		if err != nil || len(report.Notes) != c.notes || contents(t, b.Bytes())["a"] != "1" {
			t.Errorf("%s: %v, notes %q", c.rev.ID, err, report.Notes)
		}
		if requests := packRequests(server); len(requests) != 2 || !strings.Contains(requests[1], "want "+c.want) {
			t.Errorf("%s: asked for %q, want %s", c.rev.ID, requests, c.want)
		}
	}
	// A pinned commit that is refused is not searched for in the whole repository.
	server.Reset()
	server.Break(refuse)
	if _, _, _, err := try(t.Context(), object(server.Repo(), source.GitRepositoryRef{Commit: first}), source.Env{}); err == nil || len(packRequests(server)) != 1 {
		t.Errorf("pinned: %v after %d requests", err, len(packRequests(server)))
	}
}

// Deepening ends when the history ends, not at the largest depth.
func TestDeepeningEnds(t *testing.T) {
	repo := newOneFileRepo(t)
	server := testenv.ServeGit(t, testenv.GitConfig{V0: true, NoAnyWant: true}, repo)
	absent := strings.Repeat("1", 40)
	_, _, _, err := try(t.Context(), object(server.Repo(), source.GitRepositoryRef{Commit: absent}), source.Env{})
	if err == nil || !strings.Contains(err.Error(), absent) || len(packRequests(server)) != 1 {
		t.Errorf("%v after %d fetches, want 1", err, len(packRequests(server)))
	}
}

// A server without shallow fetches transfers its history, and a note says so.
func TestNoShallowFetches(t *testing.T) {
	repo := testenv.NewRepo(t)
	first := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	tip := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")})
	for _, config := range []testenv.GitConfig{{NoShallow: true}, {NoShallow: true, V0: true, NoAnyWant: true}} {
		url := testenv.ServeGit(t, config, repo).Repo()
		for want, refs := range map[string][]source.GitRepositoryRef{tip: {{Branch: "main"}}, first: {{Commit: first}, {Commit: first, Branch: "main"}}} {
			for _, ref := range refs {
				rev, _, report := fetch(t, object(url, ref), source.Env{})
				if !strings.HasSuffix(rev.ID, want) || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "whole history") {
					t.Errorf("v0 %v, %+v: %s, notes %q", config.V0, ref, rev.ID, report.Notes)
				}
			}
		}
	}
}

// In a shallow clone a missing commit cannot be proved to be on the branch. The error
// differs from that for a commit that is not on the branch.
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

// Every spool is closed, after success and after failure.
func TestSpoolsAreClosed(t *testing.T) {
	h := newHistory(t, "sha1")
	spools := testenv.NewTempFiles(t)
	env := source.Env{Limits: artifact.Limits{Temp: spools.Create}}
	for _, config := range []testenv.GitConfig{
		{}, {NoFilter: true}, {V0: true, NoAnyWant: true},
		{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Cut, After: 150}},
		{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Flip, After: 150}},
	} {
		url := testenv.ServeGit(t, config, h.Repo).Repo()
		for _, ref := range []source.GitRepositoryRef{
			{Branch: "main"}, {Commit: strings.Repeat("1", 40)}, {Commit: h.ids["one"], Branch: "main"}, {Commit: h.ids["pull"], Branch: "main"},
		} {
			try(t.Context(), object(url, ref), env)
		}
	}
	if spools.Created() < 15 {
		t.Errorf("only %d spools were made", spools.Created())
	}
}

// This example fetches and stores the newest release of a repository, with the
// credentials of a Secret.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec:
  url: https://git.example.org/app
  ref: {semver: ^1.2}
  interval: 5m
  secretRef: {name: login}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {username: ci, password: topsecret}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.GitRepository)
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, git.New(app, source.Env{Secrets: &set})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
