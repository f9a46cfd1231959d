package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// sparseTestTree returns a tree that has files beside every directory that a test lists.
func sparseTestTree() fstest.MapFS {
	tree := files(
		"README.md", "top", ".sourceignore", "*.yaml\n",
		"deploy/app.yaml", "app", "deploy/base/x.yaml", "x", "deploy/base/deep/y.yaml", "y",
		"deploy-old/app.yaml", "old", "deploy.yaml", "beside",
		"docs/a.md", "a", "docs/.sourceignore", "*.txt\n", "docs/b.txt", "b", "docs/img/c.md", "c",
		"src/main.go", "main", "src/[x]*?/odd name .go", "odd", "src/x/plain.go", "plain",
	)
	tree["link"] = &fstest.MapFile{Data: []byte("deploy"), Mode: fs.ModeSymlink | 0o777}
	tree["deploy/link"] = &fstest.MapFile{Data: []byte("app.yaml"), Mode: fs.ModeSymlink | 0o777}
	tree["docs/run.sh"] = &fstest.MapFile{Data: []byte("#!"), Mode: 0o755}
	tree["module"] = testenv.Gitlink(strings.Repeat("1", 40))
	return tree
}

// sparse returns a GitRepository at the branch main that checks out dirs.
func sparse(url string, dirs ...string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	g.Spec.SparseCheckout = dirs
	if strings.HasPrefix(url, "ssh:") {
		g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
	}
	return g
}

func TestSparseCheckout(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: sparseTestTree()})
	rows := []struct {
		dirs []string
		want []string
	}{
		{[]string{"deploy"}, []string{"deploy/app.yaml", "deploy/base/deep/y.yaml", "deploy/base/x.yaml"}},
		{[]string{"./deploy/base/", "docs"}, []string{"deploy/base/deep/y.yaml", "deploy/base/x.yaml", "docs/.sourceignore", "docs/a.md", "docs/img/c.md", "docs/run.sh"}},
		{[]string{"deploy/base/deep", "deploy/base", "deploy//base", "deploy/base/deep"}, []string{"deploy/base/deep/y.yaml", "deploy/base/x.yaml"}},
		{[]string{"deploy/base", "deploy-old", "deploy"}, []string{"deploy-old/app.yaml", "deploy/app.yaml", "deploy/base/deep/y.yaml", "deploy/base/x.yaml"}},
		{[]string{"src/[x]*?"}, []string{"src/[x]*?/odd name .go"}},
		{[]string{"docs/img"}, []string{"docs/img/c.md"}}, // docs/.sourceignore is not in the worktree
		{[]string{"docs", "."}, []string{".sourceignore", "README.md", "docs/.sourceignore", "docs/a.md", "docs/img/c.md", "docs/run.sh", "src/[x]*?/odd name .go", "src/main.go", "src/x/plain.go"}},
	}
	archives := map[int][]byte{}
	for name, s := range servers(t, repo) {
		for i, row := range rows {
			if i != 1 && name != "http" && name != "http no filter" && name != "local" {
				continue // the trees decide what is checked out, over every transport
			}
			_, data, _ := fetch(t, sparse(s.url, row.dirs...), s.env)
			testenv.Equal(t, slices.Sorted(maps.Keys(contents(t, data))), row.want, "%s: %q: content", name, row.dirs)
			if first, ok := archives[i]; ok && !bytes.Equal(first, data) {
				t.Errorf("%s: %q: the archive differs from that of another transport", name, row.dirs)
			}
			archives[i] = data
		}
	}
}

func TestSparseCheckoutErrors(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: sparseTestTree()})
	all := servers(t, repo)
	for _, s := range []server{all["http"], all["http no filter"], all["local"]} {
		for _, row := range []struct {
			dir string
			say string
		}{
			{"absent", `directory "absent" does not exist`},
			{"deploy/base/absent/x", `directory "deploy/base/absent/x" does not exist`},
			{"Deploy/base", `"Deploy/base" does not exist|there is "deploy"|upper and lower case`},
			{"README.md", `"README.md" is a file|directory that holds it`},
			{"README.md/x", `"README.md/x" is no directory|"README.md" is a file`},
			{"link", `"link" is a symbolic link`},
			{"link/base", `"link" is a symbolic link`},
			{"module", `"module" is a submodule|spec.recurseSubmodules`},
		} {
			_, _, _, err := try(t.Context(), sparse(s.url, "docs", row.dir), s.env)
			wantRecoverableError(t, err, gitFailed, row.say+"|spec.sparseCheckout[1]")
		}
	}
}

// pktLines returns the lines of a request, without their line breaks; "" is a mark.
func pktLines(t *testing.T, body string) (lines []string) {
	t.Helper()
	for len(body) >= 4 {
		n, err := strconv.ParseUint(body[:4], 16, 16)
		if err != nil || int(n) > len(body) {
			t.Fatalf("request %q: %v", body, err)
		}
		if n < 4 {
			lines, body = append(lines, ""), body[4:]
			continue
		}
		lines, body = append(lines, strings.TrimSuffix(body[4:n], "\n")), body[n:]
	}
	return lines
}

// wants returns the ids that a request asks for, sorted.
func wants(t *testing.T, body string) (ids []string) {
	t.Helper()
	for _, l := range pktLines(t, body) {
		if id, ok := strings.CutPrefix(l, "want "); ok {
			id, _, _ = strings.Cut(id, " ")
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// blobs returns the ids of files of a tree, sorted, each once.
func blobs(repo *testenv.Repo, tree fstest.MapFS, names ...string) (ids []string) {
	for _, name := range names {
		ids = append(ids, repo.Object("blob", tree[name].Data))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// packCounter returns an Env that records the number of objects in every pack.
func packCounter(env source.Env) (source.Env, func() []int64) {
	var mu sync.Mutex
	var totals []int64
	env.Progress = func(p source.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(totals); p.Done < p.Total || n == 0 || totals[n-1] != p.Total {
			if n == 0 || totals[n-1] != p.Total {
				totals = append(totals, p.Total)
			}
		}
	}
	return env, func() []int64 { mu.Lock(); defer mu.Unlock(); return slices.Clone(totals) }
}

// A lean fetch transfers the commit, its trees, and the files that are packed
// or decide what is packed: each object once, and nothing else.
func TestPartialFetch(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepo(t)
	tree := sparseTestTree()
	for i := range 30 { // so that less than nine tenths of the tree are packed
		tree[fmt.Sprintf("other/%d.go", i)] = &fstest.MapFile{Data: []byte(strconv.Itoa(i)), Mode: 0o644}
	}
	tree["deploy/copy.yaml"] = tree["deploy/app.yaml"]
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	const trees = 11 + 1 // all trees, and the commit
	unfiltered := testenv.ServeGit(t, testenv.GitConfig{NoFilter: true}, repo)
	for name, row := range map[string]struct {
		dirs   []string
		ignore string
		first  []string // files whose content decides what is packed
		rest   []string // the other files that are packed
	}{
		"one directory":        {dirs: []string{"deploy"}, rest: []string{"deploy/app.yaml", "deploy/base/x.yaml", "deploy/base/deep/y.yaml"}},
		"with ignore file":     {dirs: []string{"docs"}, first: []string{"docs/.sourceignore"}, rest: []string{"docs/a.md", "docs/img/c.md", "docs/run.sh"}},
		"below an ignore file": {dirs: []string{"docs/img"}, rest: []string{"docs/img/c.md"}},
		"with spec.ignore": {dirs: []string{"deploy", "docs"}, ignore: "deep/\n*.md\n", first: []string{"docs/.sourceignore"},
			rest: []string{"deploy/app.yaml", "deploy/base/x.yaml", "docs/run.sh"}},
		"spec.ignore alone": {ignore: "/*\n!/deploy\n!*.yaml\n", first: []string{".sourceignore", "docs/.sourceignore"}, // the first excludes *.yaml
			rest: []string{"deploy/base/x.yaml", "deploy/base/deep/y.yaml", "deploy/app.yaml", "deploy-old/app.yaml", "deploy.yaml"}},
		"nothing is left": {dirs: []string{"docs/img"}, ignore: "/*\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, config := range []testenv.GitConfig{{}, {V0: true}} {
				if config.V0 && name != "one directory" && name != "with spec.ignore" {
					continue // the requests are the same in every version
				}
				server := testenv.ServeGit(t, config, repo)
				g := sparse(server.Repo(), row.dirs...)
				if row.ignore != "" {
					g.Spec.Ignore = &row.ignore
				}
				env, counted := packCounter(source.Env{})
				_, data, report := fetch(t, g, env)
				_, full, _ := fetch(t, withURL(g, unfiltered.Repo()), source.Env{})
				if !bytes.Equal(data, full) {
					t.Errorf("the archive differs from that of a whole fetch")
				}
				requests := packRequests(server)
				want := [][]string{{repo.ID("main")}}
				objects := []int64{trees}
				for _, names := range [][]string{row.first, row.rest} {
					if ids := blobs(repo, tree, names...); len(ids) > 0 {
						want = append(want, ids)
						objects = append(objects, int64(len(ids)))
					}
				}
				if len(requests) != len(want) {
					t.Fatalf("%d requests %q, want %d", len(requests), requests, len(want))
				}
				for i, body := range requests {
					testenv.Equal(t, wants(t, body), want[i], "request %d wants", i)
				}
				if got := counted(); !slices.Equal(got, objects) || len(report.Notes) > 0 {
					t.Errorf("packs of %d objects, notes %q; want %d and none", got, report.Notes, objects)
				}
			}
		})
	}
}

func withURL(g *source.GitRepository, url string) *source.GitRepository {
	other := *g
	other.Spec.URL = url
	return &other
}

// The whole tree is fetched at once if a partial fetch would not be cheaper.
func TestPartialFetchNotWorthwhile(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := files(".sourceignore", "# nothing\n")
	for i := range 19 {
		tree[fmt.Sprintf("%c/%d.txt", 'a'+i%10, i)] = &fstest.MapFile{Data: []byte(strconv.Itoa(i)), Mode: 0o644}
	}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	for ignore, want := range map[string]struct{ requests, notes int }{
		"*.md\nREADME.txt\n!docs/\n# docs/\n\n": {1, 0}, // excludes no directory
		"absent\n":                              {3, 1}, // excludes nothing: trees, the ignore file, and then everything
		"/a\n":                                  {3, 0},
	} {
		server.Reset()
		g := sparse(server.Repo())
		g.Spec.Ignore = &ignore
		_, _, report := fetch(t, g, source.Env{})
		if requests := packRequests(server); len(requests) != want.requests || len(report.Notes) != want.notes {
			t.Errorf("%q: %d requests, notes %q; want %d and %d", ignore, len(requests), report.Notes, want.requests, want.notes)
		}
	}
}

// rewriteRequests starts a proxy between a client and a server. change rewrites the requests
// for packs, or answers a request itself if it returns an answer.
func rewriteRequests(server *testenv.GitServer, change func(n int, body string) (rewritten, answer string)) (url string, requests func() []string) {
	n := 0
	server.Break(&testenv.Defect{Phase: testenv.Pack, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		n++ // a client has one request at a time
		body, answer := change(n, string(b))
		if answer != "" {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			io.WriteString(w, answer)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(body))
		next.ServeHTTP(w, r)
	}})
	return server.Repo(), func() []string { return packRequests(server) }
}

func pkt(line string) string { return fmt.Sprintf("%04x%s", len(line)+4, line) }

// without removes a line from a request.
func without(body, line string) string { return strings.Replace(body, pkt(line+"\n"), "", 1) }

// swap replaces an id in a request.
func swap(body, id, by string) string { return strings.ReplaceAll(body, id, by) }

// If a server does not support partial fetches, the only cost is a note, the tries
// and the whole fetch.
func TestPartialFetchFallsBack(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := sparseTestTree()
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	x, y := repo.Object("blob", tree["deploy/base/x.yaml"].Data), repo.Object("blob", tree["README.md"].Data)
	g := sparse("", "deploy")
	_, want, _ := fetch(t, withURL(g, testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo()), source.Env{})
	refuse := func(text string) string { return pkt("ERR " + text + "\n") }
	only := func(n int, change func(string) (string, string)) func(int, string) (string, string) {
		return func(i int, body string) (string, string) {
			if i == n {
				return change(body)
			}
			return body, ""
		}
	}
	for name, row := range map[string]struct {
		config   testenv.GitConfig
		change   func(n int, body string) (string, string)
		requests int
		notes    int
	}{
		"no filters":              {testenv.GitConfig{NoFilter: true}, nil, 1, 1},
		"version 0, tips only":    {testenv.GitConfig{V0: true, NoAnyWant: true}, nil, 1, 1},
		"the filter is refused":   {testenv.GitConfig{}, only(1, func(b string) (string, string) { return "", refuse("filter 'blob:none' not supported") }), 2, 1},
		"the filter is ignored":   {testenv.GitConfig{}, func(_ int, b string) (string, string) { return without(b, "filter blob:none"), "" }, 1, 0},
		"blobs are refused":       {testenv.GitConfig{}, only(2, func(b string) (string, string) { return "", refuse("upload-pack: not our ref " + x) }), 3, 1},
		"blobs are no such thing": {testenv.GitConfig{}, only(2, func(b string) (string, string) { return "", "0008NAK\n" }), 3, 1},
		"a blob is left out":      {testenv.GitConfig{}, only(2, func(b string) (string, string) { return without(b, "want "+x), "" }), 3, 1},
		"another blob is sent":    {testenv.GitConfig{}, only(2, func(b string) (string, string) { return swap(b, x, y), "" }), 3, 1},
		"more than the blob": {testenv.GitConfig{}, only(2, func(b string) (string, string) {
			return strings.Replace(b, pkt("want "+x+"\n"), pkt("want "+x+"\n")+pkt("want "+y+"\n"), 1), ""
		}), 3, 1},
		"a tree is sent": {testenv.GitConfig{}, only(2, func(b string) (string, string) { return swap(b, x, repo.ID("main:src")), "" }), 3, 1},
	} {
		change := row.change
		if change == nil {
			change = func(_ int, b string) (string, string) { return b, "" }
		}
		at, requests := rewriteRequests(testenv.ServeGit(t, row.config, repo), change)
		_, data, report, err := try(t.Context(), withURL(g, at), source.Env{})
		if err != nil || !bytes.Equal(data, want) {
			t.Errorf("%s: %v, or another archive", name, err)
			continue
		}
		if n := len(requests()); n != row.requests || len(report.Notes) != row.notes {
			t.Errorf("%s: %d requests, notes %q; want %d and %d", name, n, report.Notes, row.requests, row.notes)
		}
		for _, note := range report.Notes {
			if !strings.Contains(note, "whole tree was transferred") {
				t.Errorf("%s: note %q", name, note)
			}
		}
	}
}

// A failure that a whole fetch cannot avoid ends soon, with an error that names the
// cause.
func TestPartialFetchHostile(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: sparseTestTree()})
	x := repo.Object("blob", sparseTestTree()["deploy/base/x.yaml"].Data)
	pass := func(b string) (string, string) { return b, "" }
	for name, row := range map[string]struct {
		first, second, third func(body string) (string, string)
		requests             int
		say                  string
	}{
		"a blob is never sent": {pass, func(b string) (string, string) { return without(b, "want "+x), "" },
			func(b string) (string, string) {
				return strings.Replace(b, pkt("done\n"), pkt("filter blob:none\n")+pkt("done\n"), 1), ""
			}, 3, "is not in the pack"},
		"no trees": {func(b string) (string, string) {
			return strings.Replace(b, pkt("filter blob:none\n"), pkt("filter tree:0\n"), 1), ""
		}, nil, nil, 1, "is not in the pack"},
		"no commit":           {func(b string) (string, string) { return swap(b, repo.ID("main"), x), "" }, nil, nil, 1, repo.ID("main")},
		"the files break off": {pass, func(b string) (string, string) { return "", pkt("packfile\n") + pkt("\x01PACK") }, nil, 2, "ends early"},
		"the trees break off": {func(b string) (string, string) { return "", pkt("packfile\n") + pkt("\x01PACK") }, nil, nil, 1, "ends early"},
		"nothing is sent":     {pass, func(b string) (string, string) { return "", pkt("packfile\n") + "0000" }, nil, 2, "holds no pack"},
		"a pack of nobody":    {pass, func(b string) (string, string) { return "", pkt("packfile\n") + pkt("\x01PACK") + "0000" }, nil, 2, "truncated"},
	} {
		at, requests := rewriteRequests(testenv.ServeGit(t, testenv.GitConfig{}, repo), func(n int, b string) (string, string) {
			if f := append([]func(string) (string, string){row.first, row.second, row.third}, nil, nil, nil)[n-1]; f != nil {
				return f(b)
			}
			return b, ""
		})
		wantFetchError(t, sparse(at, "deploy"), source.Env{}, gitFailed, row.say)
		testenv.Equal(t, len(requests()), row.requests, "%s: requests", name)
	}
}

// The limits apply equally to files that are fetched later and to a whole fetch.
func TestPartialFetchLimits(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := files("big/file", strings.Repeat("0123456789abcdef", 1<<12))
	for i := range 50 {
		tree[fmt.Sprintf("copies/%d", i)] = &fstest.MapFile{Data: []byte(strings.Repeat("x", 1000)), Mode: 0o644}
		tree[fmt.Sprintf("other/%d", i)] = &fstest.MapFile{Data: []byte(strconv.Itoa(i)), Mode: 0o644}
	}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	for _, row := range []struct {
		dir    string
		limits artifact.Limits
		say    string // "" is success
	}{
		{"big", artifact.Limits{FileBytes: 1000}, "ObjectBytes"},
		{"big", artifact.Limits{Bytes: 60_000}, "InflatedBytes"},
		{"copies", artifact.Limits{Bytes: 49_000}, "the tree holds 50000 bytes"}, // one blob fifty times
		{"copies", artifact.Limits{Bytes: 60_000, FileBytes: 10_000}, ""},        // big is not fetched
		{"copies", artifact.Limits{Entries: 20}, "20"},
	} {
		row.limits.Temp = testenv.NewTempFiles(t).Create
		server.Reset()
		_, _, _, err := try(t.Context(), sparse(server.Repo(), row.dir), source.Env{Limits: row.limits})
		if row.say == "" && err != nil || row.say != "" && (err == nil || !strings.Contains(err.Error(), row.say)) {
			t.Errorf("%s, %+v: %v: want %q", row.dir, row.limits, err, row.say)
		}
		if n := len(packRequests(server)); n > 2 {
			t.Errorf("%s, %+v: %d requests", row.dir, row.limits, n)
		}
	}
}

// If a server stalls between the trees and the files, the fetch ends with the
// context.
func TestPartialFetchStalls(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: sparseTestTree()})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone home")
	at, requests := rewriteRequests(testenv.ServeGit(t, testenv.GitConfig{}, repo), func(n int, b string) (string, string) {
		if n == 2 {
			cancel(cause)
		}
		return b, ""
	})
	if _, _, _, err := try(ctx, sparse(at, "deploy"), source.Env{}); !errors.Is(err, cause) || len(requests()) != 2 {
		t.Errorf("%v after %d requests", err, len(requests()))
	}
}

// Submodules, LFS objects and includes find the files that they need in a partial
// fetch, and the artifact equals that of a whole fetch.
func TestPartialFetchUnderLayers(t *testing.T) {
	large := new(testenv.LFS)
	app, lib := testenv.NewRepo(t), testenv.NewRepo(t)
	inLib := commitFiles(lib, map[string]string{"lib.c": "int", "skip/x": "x"})
	tree := map[string]string{
		".gitattributes": "*.bin filter=lfs\n", "top.txt": "top", ".sourceignore": "nothing",
		"deploy/app.yaml": "app", "deploy/large.bin": large.Add("large content"), "deploy/.sourceignore": "*.log\n",
		"docs/.gitattributes": "plain.bin -filter\n", "docs/plain.bin": large.Add("not asked for"), "docs/x.log": "log",
	}
	for i := range 30 {
		tree["beside/"+strings.Repeat("x", i+1)] = strings.Repeat("y", i)
	}
	commitFiles(app, tree, submodule{"deploy/lib", "../lib.git", inLib}, submodule{"beside/lib", "../lib.git", inLib})
	repos := map[string]*testenv.Repo{"org/app.git": app, "org/lib.git": lib}
	part := testenv.ServeRepos(t, testenv.GitConfig{LFS: large}, repos)
	unfiltered := testenv.ServeRepos(t, testenv.GitConfig{LFS: large, NoFilter: true}, repos)
	include := []source.GitRepositoryInclude{{Repository: source.IncludeReference{Name: "other"}, FromPath: "in", ToPath: "deploy"}}
	sources := newIncludedSources(t)
	env := sources.env()
	sources.tree("other", files("in/app.yaml", "from other", "in/more/y.log", "y", "in/more/.sourceignore", "!y.log\n"))
	for name, row := range map[string]struct {
		change func(*source.GitRepositorySpec)
		want   map[string]string // some of the files; "" for those that must not be there
	}{
		"a submodule alone": {func(s *source.GitRepositorySpec) {
			s.RecurseSubmodules, s.SparseCheckout = true, []string{"deploy/lib"}
		},
			map[string]string{"deploy/lib/lib.c": "int", "deploy/app.yaml": ""}},
		"all": {func(s *source.GitRepositorySpec) { s.RecurseSubmodules, s.LFS, s.Include = true, true, include },
			map[string]string{"deploy/app.yaml": "from other", "deploy/more/y.log": "y", "deploy/large.bin": "large content", "docs/plain.bin": testenv.LFSPointer("8c1aa5b2", 0)[:40],
				"deploy/lib/lib.c": "int", "deploy/lib/skip/x": "x", "beside/lib/lib.c": ""}},
		"all, by ignore rules": {func(s *source.GitRepositorySpec) {
			s.SparseCheckout, s.Ignore = nil, new("/beside/\nskip/\n")
			s.RecurseSubmodules, s.LFS, s.Include = true, true, include
		}, map[string]string{"top.txt": "top", "deploy/lib/lib.c": "int", "deploy/lib/skip/x": "", "docs/x.log": "log"}},
	} {
		g := sparse(part.URL+"/org/app.git", "deploy", "docs")
		row.change(&g.Spec)
		part.Reset()
		_, data, report := fetch(t, g, env)
		_, want, _ := fetch(t, withURL(g, unfiltered.URL+"/org/app.git"), env)
		got := contents(t, data)
		if !bytes.Equal(data, want) {
			t.Errorf("%s: %v, but a whole fetch makes %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(contents(t, want))))
		}
		for file, text := range row.want {
			if got, ok := got[file]; ok != (text != "") || text != "" && !strings.HasPrefix(got, strings.SplitN(text, "\n", 2)[0]) {
				t.Errorf("%s: %s is %q, %v; want %q", name, file, got, ok, text)
			}
		}
		fellBack := slices.ContainsFunc(report.Notes, func(note string) bool { return strings.Contains(note, "whole tree") })
		if n := strings.Count(strings.Join(packRequests(part), ""), "filter blob:none"); n != 1 || fellBack {
			t.Errorf("%s: %d requests for trees, notes %q; want 1 and no fall-back", name, n, report.Notes)
		}
	}
}

// A sparse checkout applies to a plain directory that replaces a repository too.
func TestSparseCheckoutOfDirectory(t *testing.T) {
	dir := t.TempDir()
	tree := sparseTestTree()
	maps.DeleteFunc(tree, func(_ string, f *fstest.MapFile) bool { return !f.Mode.IsRegular() })
	must(t, os.CopyFS(dir, tree))
	const at = "https://example.com/app"
	env := source.Env{Local: map[string]string{at: dir}}
	_, data, _ := fetch(t, sparse(at, "./docs/", "deploy/base"), env)
	want := []string{"deploy/base/deep/y.yaml", "deploy/base/x.yaml", "docs/.sourceignore", "docs/a.md", "docs/img/c.md", "docs/run.sh"}
	testenv.Equal(t, slices.Sorted(maps.Keys(contents(t, data))), want, "content")
	for entry, say := range map[string]string{"absent": "does not exist", "README.md": "is a file", "../x": "must not", "Docs": `there is "docs"`} {
		_, _, _, err := try(t.Context(), sparse(at, "docs", entry), env)
		if err == nil || !strings.Contains(err.Error(), say) || !strings.Contains(err.Error(), "spec.sparseCheckout[1]") {
			t.Errorf("%q: %v: want an error that says %q", entry, err, say)
		}
	}
}

// If the cache already holds the repository, it is used instead of a partial fetch.
func TestPartialFetchAndCache(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: sparseTestTree()})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	env := source.Env{Cache: newCache(t, t.TempDir())}
	g := sparse(server.Repo(), "deploy")
	var first []byte
	for _, step := range []struct {
		name         string
		object       *source.GitRepository
		packs, notes int
	}{
		{"cold", g, 2, 0}, {"still cold", g, 2, 0}, {"everything", sparse(server.Repo()), 1, 1 /* a submodule */}, {"warm", g, 0, 0},
	} {
		server.Reset()
		_, data, report := fetch(t, step.object, env)
		if n := len(packRequests(server)); n != step.packs || len(report.Notes) != step.notes {
			t.Errorf("%s: %d packs, notes %q; want %d and %d", step.name, n, report.Notes, step.packs, step.notes)
		}
		if step.object == g && first != nil && !bytes.Equal(data, first) {
			t.Errorf("%s: another archive", step.name)
		}
		if step.object == g {
			first = data
		}
	}
}
