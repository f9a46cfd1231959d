package git_test

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// inPart is the directory that is checked out.
const inPart = "in/here"

// together is a remote with all that a GitRepository can ask for: of its sparse
// checkout the folder sub comes from another source, deploy is a submodule, and
// the other files are LFS objects. What is fetched is cached.
type together struct {
	*remote
	modules *testenv.Repo
	objects *testenv.LFS
	part    *includedSources
}

func (o *together) Publish(tree fstest.MapFS) error {
	included := fstest.MapFS{"sub": {Mode: fs.ModeDir | 0o755}}
	module := fstest.MapFS{}
	rest := files(".gitattributes", "* filter=lfs\n.sourceignore !filter\n")
	for name, f := range tree {
		switch dir, below, _ := strings.Cut(name, "/"); {
		case dir == "sub":
			included[name] = f
		case dir == "deploy" && below != "":
			module[below] = f
		case dir == "deploy":
		case f.Mode.Type() == 0 && !strings.HasPrefix(path.Base(name), ".sourceignore"):
			pointer := *f
			pointer.Data = []byte(o.objects.Add(string(f.Data)))
			rest[name] = &pointer
		default:
			rest[name] = f
		}
	}
	all := files("beside/a", "a", "beside/b", "b", ".gitmodules", "[submodule \"m\"]\n\tpath = "+inPart+"/deploy\n\turl = ../modules.git\n")
	for name, f := range rest {
		all[inPart+"/"+name] = f
	}
	all[inPart+"/deploy"] = testenv.Gitlink(o.modules.Commit(testenv.Commit{Branch: "main", Files: module}))
	if err := o.remote.Publish(all); err != nil {
		return err
	}
	o.part.objects = nil
	o.part.tree("part", included)
	return nil
}

func (o *together) Object() source.Object {
	g := o.remote.Object().(*source.GitRepository)
	g.Spec.RecurseSubmodules, g.Spec.LFS, g.Spec.SparseCheckout = true, true, []string{inPart}
	g.Spec.Include = including("", "part:sub:"+inPart+"/sub").Spec.Include
	return g
}

func (o *together) Origin(obj source.Object) source.Origin {
	env := o.part.env()
	env.Secrets, env.Cache = o.credentials(), o.cache
	return git.New(obj.(*source.GitRepository), env)
}

func (o *together) Traffic() sourcetest.Traffic {
	t := o.remote.Traffic()
	for _, q := range o.server.Requests() {
		if q.Phase == testenv.LFSObject {
			t.Content++
		}
	}
	t.Content += o.part.opened.Load()
	return t
}

func TestConformanceTogether(t *testing.T) {
	t.Parallel()
	kind := conforming(func(tb sourcetest.TB) sourcetest.Upstream {
		repo, modules, objects := testenv.NewRepo(t), testenv.NewRepo(t), new(testenv.LFS)
		server := testenv.ServeAll(t, testenv.HTTP{Username: "user", Password: password, LFS: objects}, map[string]*testenv.Repo{"repo.git": repo, "modules.git": modules})
		return &together{&remote{t: tb, repo: repo, server: server, ref: source.GitRepositoryRef{SemVer: "1.x"}, mode: source.VerifyTagAndHEAD,
			signer: newSSHSigner(t), cache: newCache(t, t.TempDir())}, modules, objects, newIncludedSources(t)}
	})
	kind.Under = inPart
	sourcetest.Run(t, kind)
}
