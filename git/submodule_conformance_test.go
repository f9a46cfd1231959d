package git_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// divided is a repository of which every directory is a submodule.
type divided struct {
	*remote
	modules *testenv.Repo
}

func (d divided) Publish(tree fstest.MapFS) error {
	top, parts := fstest.MapFS{}, map[string]fstest.MapFS{}
	for name, f := range tree {
		dir, rest, below := strings.Cut(name, "/")
		if below && parts[dir] == nil {
			parts[dir] = fstest.MapFS{}
		}
		if below {
			parts[dir][rest] = f
		} else if !f.Mode.IsDir() {
			top[name] = f
		}
	}
	var text strings.Builder
	for i, dir := range slices.Sorted(maps.Keys(parts)) {
		pin := d.modules.Commit(testenv.Commit{Branch: fmt.Sprintf("b%d", i), Files: parts[dir]})
		top[dir] = testenv.Gitlink(pin)
		fmt.Fprintf(&text, "[submodule %q]\n\tpath = %q\n\turl = ../modules.git\n", dir, dir)
	}
	maps.Copy(top, files(".gitmodules", text.String()))
	return d.remote.Publish(top)
}

func (d divided) Object() source.Object {
	g := d.remote.Object().(*source.GitRepository)
	g.Spec.RecurseSubmodules = true
	return g
}

func TestConformanceOfSubmodules(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, conforming(func(tb sourcetest.TB) sourcetest.Upstream {
		repo, modules := testenv.NewRepo(t), testenv.NewRepo(t)
		server := testenv.ServeAll(t, testenv.HTTP{Username: "user", Password: password}, map[string]*testenv.Repo{"repo.git": repo, "modules.git": modules})
		return divided{&remote{t: tb, repo: repo, server: server, ref: source.GitRepositoryRef{Branch: "main"}, mode: source.VerifyHEAD, signer: newSSHSigner(t)}, modules}
	}))
}
