package git_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// forest is a tree with something beside everything that a test lists.
func forest() fstest.MapFS {
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

// sparse returns a GitRepository at the branch main with some directories.
func sparse(url string, dirs ...string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	g.Spec.SparseCheckout = dirs
	if strings.HasPrefix(url, "ssh:") {
		g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
	}
	return g
}

func TestSparseCheckout(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: forest()})
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
	for name, serve := range servers(t, repo) {
		url, env := serve()
		for i, row := range rows {
			_, data, _ := fetch(t, sparse(url, row.dirs...), env)
			if got := slices.Sorted(maps.Keys(contents(t, data))); !slices.Equal(got, row.want) {
				t.Errorf("%s: %q: content %q, want %q", name, row.dirs, got, row.want)
			}
			if first, ok := archives[i]; ok && !bytes.Equal(first, data) {
				t.Errorf("%s: %q: the archive differs from that of another transport", name, row.dirs)
			}
			archives[i] = data
		}
	}
}

func TestSparseCheckoutErrors(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: forest()})
	for name, serve := range servers(t, repo) {
		url, env := serve()
		for _, row := range []struct {
			dir string
			say []string
		}{
			{"absent", []string{`directory "absent" does not exist`}},
			{"deploy/base/absent/x", []string{`directory "deploy/base/absent/x" does not exist`}},
			{"Deploy/base", []string{`"Deploy/base" does not exist`, `there is "deploy"`, "upper and lower case"}},
			{"README.md", []string{`"README.md" is a file`, "directory that holds it"}},
			{"README.md/x", []string{`"README.md/x" is no directory`, `"README.md" is a file`}},
			{"link", []string{`"link" is a symbolic link`}},
			{"link/base", []string{`"link" is a symbolic link`}},
			{"module", []string{`"module" is a submodule`, "spec.recurseSubmodules"}},
		} {
			_, _, _, err := try(t.Context(), sparse(url, "docs", row.dir), env)
			var step *source.StepError
			if !errors.As(err, &step) || step.Step != source.StepFetch || step.Reason != "GitOperationFailed" || errors.Is(err, source.ErrInvalid) {
				t.Errorf("%s: %q: %v: want a failure of the fetch, GitOperationFailed", name, row.dir, err)
				continue
			}
			for _, s := range append(row.say, "spec.sparseCheckout[1]") {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%s: %q: %v: does not say %s", name, row.dir, err, s)
				}
			}
		}
	}
}

// Entries that cannot be directories of any repository stall the object.
func TestSparseCheckoutInvalid(t *testing.T) {
	for _, dir := range []string{"", "/", "/docs", "..", "../x", "docs/..", "docs/../src", `docs\img`, "docs\x00", "docs\n/*", "./..", "docs/./../x"} {
		g := sparse("https://example.com/x", "docs", dir)
		_, _, err := git.New(g, source.Env{}).Resolve(t.Context(), nil)
		if !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), "spec.sparseCheckout[1]") {
			t.Errorf("%q: %v: want ErrInvalid that names the entry", dir, err)
		}
		g.Spec.URL = "https://example.com/x"
		if err := source.Validate(g); err == nil || !strings.Contains(err.Error(), "spec.sparseCheckout[1]") {
			t.Errorf("%q: Validate: %v", dir, err)
		}
	}
}
