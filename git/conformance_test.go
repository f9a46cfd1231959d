package git_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

const password = "cAnArY-passw0rd/+="

// remote is a Git server with one branch, for the conformance suite.
type remote struct {
	greets bool // the server speaks version 0, of which every check has a greeting
	t      sourcetest.TB
	repo   *testenv.Repo
	tags   int
	server *testenv.Server
	ref    source.GitRepositoryRef
	mode   string // of spec.verify under the defects Signed and Forged
	signer *sshSigner
	cache  *artifact.Cache
	defect sourcetest.Defect
}

func (r *remote) Publish(tree fstest.MapFS) error {
	commit := r.repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	r.tags++
	name := r.newest()
	r.repo.Tag(name, commit)
	if r.defect == sourcetest.Signed {
		r.signer.resign(r.repo, name)
	}
	return nil
}

// defects translates those of the suite into those of the server.
var defects = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         testenv.Status(http.StatusNotFound),
	sourcetest.Denied:       testenv.Status(http.StatusForbidden),
	sourcetest.Truncated:    {Phase: testenv.Pack, Do: testenv.End, After: 200},
	sourcetest.Leaking:      {Status: http.StatusInternalServerError, Body: "cannot serve https://user:" + password + "@example.com/x?token=" + password},
	sourcetest.StallResolve: {Phase: testenv.LsRefs, Do: testenv.Stall, After: -1}, // of a server that is known, which is not greeted
	sourcetest.StallFetch:   {Phase: testenv.Pack, Do: testenv.Stall, After: 100},
	"stall ls-refs":         {Phase: testenv.LsRefs, Do: testenv.Stall, After: 10},
	"cut":                   {Phase: testenv.Pack, Do: testenv.Cut, After: 150},
	"flipped":               {Phase: testenv.Pack, Do: testenv.Flip, After: 150},
}

func (r *remote) Break(d sourcetest.Defect) <-chan struct{} {
	r.defect = d
	switch d {
	case sourcetest.Signed:
		r.signer.resign(r.repo, r.newest())
	case sourcetest.Forged:
		forge(r.repo, "commit", "refs/heads/main")
		forge(r.repo, "tag", "refs/tags/"+r.newest())
	}
	if d == sourcetest.StallResolve && r.greets {
		return r.server.Break(&testenv.Defect{Phase: testenv.Advertisement, Do: testenv.Stall, After: -1})
	}
	return r.server.Break(defects[d])
}

func (r *remote) newest() string {
	return fmt.Sprint("v1.0.", r.tags)
}

// forge changes an object after it was signed.
func forge(repo *testenv.Repo, kind, ref string) {
	repo.Ref(ref, repo.Object(kind, bytes.Replace(repo.Raw(kind, repo.ID(ref)), []byte("tester"), []byte("texter"), 1)))
}

func (r *remote) Object() source.Object {
	g := object(r.server.Repo(), r.ref)
	g.Metadata.Generation, g.Spec.Interval = 0, source.Duration(time.Hour)
	g.Spec.SecretRef = &source.LocalReference{Name: "login"}
	switch r.defect {
	case sourcetest.Signed, sourcetest.Forged:
		g.Spec.Verify = &source.GitRepositoryVerification{Mode: r.mode, SecretRef: source.LocalReference{Name: "keys"}}
	case sourcetest.Invalid:
		g.Spec.URL = "file:///etc"
	case sourcetest.NoSecret:
		g.Spec.SecretRef.Name = "absent"
	case "wrong password":
		g.Spec.SecretRef.Name = "wrong"
	case "no branch":
		g.Spec.Ref = &source.GitRepositoryRef{Branch: "absent"}
	}
	return g
}

func (r *remote) Origin(obj source.Object) source.Origin {
	return git.New(obj.(*source.GitRepository), source.Env{Secrets: r.credentials(), Cache: r.cache})
}

func (r *remote) credentials() source.Secrets {
	secrets := sourcetest.Secrets{
		"default/login": sourcetest.Secret("username", "user", "password", password),
		"default/wrong": sourcetest.Secret("username", "user", "password", "other-"+password),
	}
	if r.signer != nil {
		secrets["default/keys"] = sourcetest.Secret("a.sshpub", string(r.signer.public()))
	}
	return secrets
}

func (r *remote) Traffic() sourcetest.Traffic {
	var t sourcetest.Traffic
	for _, q := range r.server.Requests() {
		t.Requests++
		if q.Phase == testenv.Pack {
			t.Content++
		}
	}
	return t
}

func (r *remote) Secrets() []string { return []string{password, url.QueryEscape(password)} }

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		ref    source.GitRepositoryRef
		config testenv.HTTP
		verify string
	}{
		"branch":                {source.GitRepositoryRef{Branch: "main"}, testenv.HTTP{}, source.VerifyHEAD},
		"semver over version 0": {source.GitRepositoryRef{SemVer: "1.x"}, testenv.HTTP{V0: true, NoAnyWant: true}, source.VerifyTagAndHEAD},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := c.config
			config.Username, config.Password = "user", password
			kind := conforming(func(tb sourcetest.TB) sourcetest.Upstream {
				repo := testenv.NewRepo(t)
				return &remote{t: tb, repo: repo, server: testenv.ServeHTTP(t, config, repo), ref: c.ref, mode: c.verify, signer: newSSHSigner(t), greets: config.V0}
			})
			if config.V0 { // what is in a pack, and in a Secret, is the same in every version
				kind.Only(sourcetest.Gone, sourcetest.Denied, sourcetest.Truncated)
				kind.Hostile = nil
			}
			sourcetest.Run(t, kind)
		})
	}
}

// conforming describes a GitRepository whose upstreams are remotes.
func conforming(open func(sourcetest.TB) sourcetest.Upstream) sourcetest.Kind {
	return sourcetest.Kind{
		Name: "GitRepository",
		Open: open,
		Drift: func(obj source.Object) {
			ignore := "/nothing-of-that-name\n"
			obj.(*source.GitRepository).Spec.Ignore = &ignore
		},
		Failures: []sourcetest.Failure{
			{Defect: sourcetest.Gone, Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "not found"},
			{Defect: sourcetest.Denied, Outcome: source.Failed, Condition: "FetchFailed", Reason: "AuthenticationFailed", Message: "authentication failed"},
			{Defect: "wrong password", Outcome: source.Failed, Condition: "FetchFailed", Reason: "AuthenticationFailed", Message: "authentication failed"},
			{Defect: sourcetest.NoSecret, Outcome: source.Failed, Condition: "FetchFailed", Reason: "AuthenticationFailed", Message: "default/absent"},
			{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "URLInvalid", Message: "want http, https or ssh"},
			{Defect: sourcetest.Truncated, Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed"},
			{Defect: sourcetest.Leaking, Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "500"},
			{Defect: "cut", Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed"},
			{Defect: "flipped", Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed"},
		},
		Verifies:     true,
		Stalls:       []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch},
		Hostile:      []string{"../up", "a/../../up", ".git/config", "a/.GIT/hooks/x", `a\b`, "git~1", "a\x00b"},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	}
}

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
	kind.Only(sourcetest.Gone, "wrong password", "cut")
	sourcetest.Run(t, kind)
}
