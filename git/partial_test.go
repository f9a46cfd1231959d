package git_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

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

// blobs returns the ids of files, sorted, each once.
func blobs(repo *testenv.Repo, names ...string) []string {
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = repo.ID("main:" + name)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// packCounter is an Env that notes the number of objects in every pack.
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
	repo := testenv.NewRepo(t)
	tree := forest()
	for i := range 30 { // so that what is packed is not most of the tree
		tree[fmt.Sprintf("other/%d.go", i)] = &fstest.MapFile{Data: []byte(strconv.Itoa(i)), Mode: 0o644}
	}
	tree["deploy/copy.yaml"] = tree["deploy/app.yaml"]
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	trees := len(slices.Compact(slices.Sorted(slices.Values(strings.Fields(repo.Git("ls-tree", "-rt", "-d", "--format=%(objectname)", "main")))))) - 1 + 1 + 1 // no submodule; the root; the commit
	for name, row := range map[string]struct {
		dirs   []string
		ignore string
		first  []string // files whose content decides
		rest   []string // files that are packed, less those
	}{
		"one directory":        {dirs: []string{"deploy"}, rest: []string{"deploy/app.yaml", "deploy/base/x.yaml", "deploy/base/deep/y.yaml"}},
		"with ignore file":     {dirs: []string{"docs"}, first: []string{"docs/.sourceignore"}, rest: []string{"docs/a.md", "docs/img/c.md", "docs/run.sh"}},
		"below an ignore file": {dirs: []string{"docs/img"}, rest: []string{"docs/img/c.md"}},
		"with spec.ignore": {dirs: []string{"deploy", "docs"}, ignore: "deep/\n*.md\n", first: []string{"docs/.sourceignore"},
			rest: []string{"deploy/app.yaml", "deploy/base/x.yaml", "docs/run.sh"}},
		"spec.ignore alone": {ignore: "/*\n!/deploy\n", first: []string{".sourceignore", "docs/.sourceignore"}, rest: []string{"deploy/base/x.yaml", "deploy/base/deep/y.yaml", "deploy/app.yaml"}},
		"nothing is left":   {dirs: []string{"docs/img"}, ignore: "/*\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "spec.ignore alone" { // .sourceignore excludes *.yaml, spec.ignore comes later
				row.ignore += "!*.yaml\n"
				row.rest = append(row.rest, "deploy-old/app.yaml", "deploy.yaml")
			}
			for _, config := range []testenv.HTTP{{}, {V0: true}} {
				server := testenv.ServeHTTP(t, config, repo)
				g := sparse(server.Repo(), row.dirs...)
				if row.ignore != "" {
					g.Spec.Ignore = &row.ignore
				}
				env, counted := packCounter(source.Env{})
				_, data, report := fetch(t, g, env)
				_, full, _ := fetch(t, withURL(g, testenv.ServeHTTP(t, testenv.HTTP{NoFilter: true}, repo).Repo()), source.Env{})
				if !bytes.Equal(data, full) {
					t.Errorf("the archive differs from that of a whole fetch")
				}
				asked := packs(server)
				want := [][]string{{repo.ID("main")}}
				objects := []int64{int64(trees)}
				for _, names := range [][]string{row.first, row.rest} {
					if ids := blobs(repo, names...); len(ids) > 0 {
						want = append(want, ids)
						objects = append(objects, int64(len(ids)))
					}
				}
				if len(asked) != len(want) {
					t.Fatalf("%d requests %q, want %d", len(asked), asked, len(want))
				}
				for i, body := range asked {
					if got := wants(t, body); !slices.Equal(got, want[i]) {
						t.Errorf("request %d wants %q, should want %q", i, got, want[i])
					}
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

// The whole tree is fetched at once where that is no worse.
func TestPartialFetchNotWorthwhile(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := files(".sourceignore", "# nothing\n")
	for i := range 19 {
		tree[fmt.Sprintf("%c/%d.txt", 'a'+i%10, i)] = &fstest.MapFile{Data: []byte(strconv.Itoa(i)), Mode: 0o644}
	}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	for ignore, want := range map[string]struct{ requests, notes int }{
		"*.md\nREADME.txt\n!docs/\n# docs/\n\n": {1, 0}, // excludes no directory
		"absent\n":                              {3, 1}, // nor does this: trees, the ignore file, and then everything
		"/a\n":                                  {3, 0},
	} {
		server.Reset()
		g := sparse(server.Repo())
		g.Spec.Ignore = &ignore
		_, _, report := fetch(t, g, source.Env{})
		if asked := packs(server); len(asked) != want.requests || len(report.Notes) != want.notes {
			t.Errorf("%q: %d requests, notes %q; want %d and %d", ignore, len(asked), report.Notes, want.requests, want.notes)
		}
	}
}
