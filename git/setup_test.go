package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var files = testenv.Files

// object returns a GitRepository that selects ref.
func object(url string, ref source.GitRepositoryRef) *source.GitRepository {
	return &source.GitRepository{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "GitRepository",
			Metadata: source.Metadata{Name: "app", Namespace: "default", Generation: 1}},
		Spec: source.GitRepositorySpec{URL: url, Ref: &ref, Timeout: source.Duration(time.Minute), Interval: source.Duration(time.Minute)},
	}
}

// fetch resolves, opens and packs g, and returns the revision, the archive and the
// report.
func fetch(t *testing.T, g *source.GitRepository, env source.Env) (source.Revision, []byte, source.Report) {
	t.Helper()
	rev, data, report, err := try(t.Context(), g, env)
	must(t, err)
	return rev, data, report
}

func try(ctx context.Context, g *source.GitRepository, env source.Env) (source.Revision, []byte, source.Report, error) {
	o := git.New(g, env)
	rev, _, err := o.Resolve(ctx, nil)
	if err != nil {
		return rev, nil, source.Report{}, err
	}
	c, err := o.Open(ctx, rev)
	if err != nil {
		return rev, nil, source.Report{}, err
	}
	defer c.Close()
	var b bytes.Buffer
	report, err := c.WriteTo(ctx, &b)
	return rev, b.Bytes(), report, err
}

// wantStep checks that an error has a reason, one of several separated by |, that it
// contains each part of say, separated by | too, and that it shows no credential.
// Without a reason err must be nil.
func wantStep(t *testing.T, err error, reason, say string) {
	t.Helper()
	if reason == "" && err == nil {
		return
	}
	if step, ok := errors.AsType[*source.StepError](err); !ok || !slices.Contains(strings.Split(reason, "|"), step.Reason) {
		t.Errorf("%v: want a StepError with reason %q", err, reason)
		return
	}
	for part := range strings.SplitSeq(say, "|") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not say %s", err, part)
		}
	}
	if strings.Contains(strings.ToLower(err.Error()), "canary") {
		t.Errorf("%v: shows a credential", err)
	}
}

// wantFetchError checks that a fetch fails for a reason; see wantStep.
func wantFetchError(t *testing.T, g *source.GitRepository, env source.Env, reason, say string) {
	t.Helper()
	_, _, _, err := try(t.Context(), g, env)
	wantStep(t, err, reason, say)
}

// openArchive returns the tree of an archive.
func openArchive(t testing.TB, data []byte) fs.FS {
	t.Helper()
	tree, err := artifact.Read(bytes.NewReader(data), artifact.Limits{})
	must(t, err)
	t.Cleanup(func() { tree.Close() })
	return tree
}

// contents returns the files of an archive by name.
func contents(t testing.TB, data []byte) map[string]string {
	t.Helper()
	return testenv.Contents(t, openArchive(t, data))
}

// emptyDirs returns the directories of an archive that hold nothing.
func emptyDirs(t testing.TB, data []byte) (names []string) {
	t.Helper()
	tree := openArchive(t, data)
	must(t, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if entries, _ := fs.ReadDir(tree, name); d.IsDir() && len(entries) == 0 {
			names = append(names, name)
		}
		return err
	}))
	return names
}

// A history is a repository with a ref of every sort. Its file "at" names the commit.
type history struct {
	*testenv.Repo
	ids map[string]string // commits by the content of "at"
}

func newHistory(t *testing.T, format string) history {
	h := history{testenv.NewRepoIn(t, format), map[string]string{}}
	commit := func(branch, at string) {
		h.ids[at] = h.Commit(testenv.Commit{Branch: branch, Message: "at " + at, Files: files("at", at, "dir/file", "same")})
	}
	commit("main", "one")
	h.Tag("v0.9.0", h.ids["one"])
	commit("main", "two")
	h.AnnotatedTag("v1.0.0", h.ids["two"], "release")
	commit("main", "three")
	h.Git("branch", "feature/x", h.ids["two"])
	commit("feature/x", "x")
	h.Git("branch", "tmp", h.ids["one"])
	commit("tmp", "pull")
	h.Ref("refs/pull/1/head", h.ids["pull"])
	h.Git("branch", "-D", "tmp")
	h.Tag("v1.1.0-rc.1", h.ids["three"])
	h.Tag("not-a-version", h.ids["three"])
	h.Tag("v9", h.ids["three"])
	return h
}

// rows select every sort of ref; label and at are those of the expected revision and
// commit.
var rows = []struct {
	name  string
	ref   source.GitRepositoryRef // commits by name, see history.ids
	label string
	at    string
}{
	{"branch", source.GitRepositoryRef{Branch: "main"}, "main@", "three"},
	{"branch with slash", source.GitRepositoryRef{Branch: "feature/x"}, "feature/x@", "x"},
	{"tag", source.GitRepositoryRef{Tag: "v0.9.0"}, "v0.9.0@", "one"},
	{"annotated tag", source.GitRepositoryRef{Tag: "v1.0.0"}, "v1.0.0@", "two"},
	{"semver", source.GitRepositoryRef{SemVer: ">=0.1.0"}, "v1.0.0@", "two"},
	{"semver pre-release", source.GitRepositoryRef{SemVer: ">=1.0.0-0"}, "v1.1.0-rc.1@", "three"},
	{"name of branch", source.GitRepositoryRef{Name: "refs/heads/main"}, "refs/heads/main@", "three"},
	{"name of tag", source.GitRepositoryRef{Name: "refs/tags/v1.0.0"}, "refs/tags/v1.0.0@", "two"},
	{"name of peeled tag", source.GitRepositoryRef{Name: "refs/tags/v1.0.0^{}"}, "refs/tags/v1.0.0^{}@", "two"},
	{"name of pull request", source.GitRepositoryRef{Name: "refs/pull/1/head"}, "refs/pull/1/head@", "pull"},
	{"name HEAD", source.GitRepositoryRef{Name: "HEAD"}, "HEAD@", "three"},
	{"commit that is a tip", source.GitRepositoryRef{Commit: "three"}, "", "three"},
	{"commit in the past", source.GitRepositoryRef{Commit: "one"}, "", "one"},
	{"commit on branch", source.GitRepositoryRef{Commit: "one", Branch: "feature/x"}, "feature/x@", "one"},
	{"tip of branch", source.GitRepositoryRef{Commit: "x", Branch: "feature/x"}, "feature/x@", "x"},
	// precedence: commit, name, semver, tag, branch
	{"tag over branch", source.GitRepositoryRef{Branch: "main", Tag: "v0.9.0"}, "v0.9.0@", "one"},
	{"semver over tag", source.GitRepositoryRef{Tag: "v0.9.0", SemVer: "1.x"}, "v1.0.0@", "two"},
	{"name over semver", source.GitRepositoryRef{Name: "refs/pull/1/head", SemVer: "1.x"}, "refs/pull/1/head@", "pull"},
	{"commit over name", source.GitRepositoryRef{Commit: "two", Name: "refs/pull/1/head"}, "", "two"},
}

// A server is one way to reach a repository.
type server struct {
	url string
	env source.Env
	web *testenv.GitServer // nil over ssh and for a local repository
}

func (s server) object(ref source.GitRepositoryRef) *source.GitRepository {
	g := object(s.url, ref)
	if strings.HasPrefix(s.url, "ssh:") {
		g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
	}
	return g
}

// servers returns all ways to reach one repository, by name.
func servers(t *testing.T, repo *testenv.Repo) map[string]server {
	all := map[string]server{"local": {url: "https://example.com/app", env: source.Env{Local: map[string]string{"https://example.com/app": repo.Dir}}}}
	for name, c := range map[string]testenv.GitConfig{
		"http": {}, "http no filter": {NoFilter: true}, "http no shallow": {NoShallow: true}, "http v0": {V0: true}, "http v0 tips only": {V0: true, NoAnyWant: true},
	} {
		s := testenv.ServeGit(t, c, repo)
		all[name] = server{s.Repo(), source.Env{}, s}
	}
	for name, c := range map[string]testenv.SSHConfig{"ssh": {}, "ssh v0": {NoEnv: true}} {
		s, keys := serveSSH(t, c, map[string]*testenv.Repo{"repo.git": repo})
		all[name] = server{s.Repo(), source.Env{Secrets: keys}, nil}
	}
	return all
}

// serveSSH serves repositories over ssh to clients with the key of the Secret
// default/keys.
func serveSSH(t *testing.T, c testenv.SSHConfig, repos map[string]*testenv.Repo) (*testenv.SSHServer, sourcetest.Secrets) {
	identity, public := testenv.UserKey(t, "")
	c.Users = []ssh.PublicKey{public}
	s := testenv.ServeSSH(t, c, repos)
	return s, sourcetest.Secrets{"default/keys": sourcetest.Secret("identity", string(identity), "known_hosts", string(s.KnownHosts(false)))}
}

var must = testenv.Must

const password = "cAnArY-passw0rd/+="

// remote is a Git server with one branch, for the conformance suite.
type remote struct {
	greets bool // the server speaks version 0, so every check begins with a greeting
	t      sourcetest.TB
	repo   *testenv.Repo
	tags   int
	server *testenv.GitServer
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
		r.signer.signMainAndTag(r.repo, name)
	}
	return nil
}

// defects maps the defects of the suite to those of the server.
var defects = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         testenv.Status(http.StatusNotFound),
	sourcetest.Denied:       testenv.Status(http.StatusForbidden),
	sourcetest.Truncated:    {Phase: testenv.Pack, Do: testenv.End, After: 200},
	sourcetest.Leaking:      {Status: http.StatusInternalServerError, Body: "cannot serve https://user:" + password + "@example.com/x?token=" + password},
	sourcetest.StallResolve: {Phase: testenv.LsRefs, Do: testenv.Stall, After: -1}, // a known server gets no greeting
	sourcetest.StallFetch:   {Phase: testenv.Pack, Do: testenv.Stall, After: 100},
	"stall ls-refs":         {Phase: testenv.LsRefs, Do: testenv.Stall, After: 10},
	"cut":                   {Phase: testenv.Pack, Do: testenv.Cut, After: 150},
	"flipped":               {Phase: testenv.Pack, Do: testenv.Flip, After: 150},
}

func (r *remote) Break(d sourcetest.Defect) <-chan struct{} {
	r.defect = d
	switch d {
	case sourcetest.Signed:
		r.signer.signMainAndTag(r.repo, r.newest())
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
	return sourcetest.Traffic{Requests: r.server.Count(), Content: int64(r.server.Count(testenv.Pack))}
}

func (r *remote) Secrets() []string { return []string{password, url.QueryEscape(password)} }

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		ref    source.GitRepositoryRef
		config testenv.GitConfig
		verify string
	}{
		"branch":                {source.GitRepositoryRef{Branch: "main"}, testenv.GitConfig{}, source.VerifyHEAD},
		"semver over version 0": {source.GitRepositoryRef{SemVer: "1.x"}, testenv.GitConfig{V0: true, NoAnyWant: true}, source.VerifyTagAndHEAD},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := c.config
			config.Username, config.Password = "user", password
			kind := conforming(func(tb sourcetest.TB) sourcetest.Upstream {
				t := tb.(*testing.T)
				repo := testenv.NewRepo(t)
				return &remote{t: tb, repo: repo, server: testenv.ServeGit(t, config, repo), ref: c.ref, mode: c.verify, signer: newSSHSigner(t), greets: config.V0}
			})
			if config.V0 { // packs and Secrets are the same in every version
				kind.KeepFailures(sourcetest.Gone, sourcetest.Denied, sourcetest.Truncated)
				kind.Variant, kind.Hostile = true, nil
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
			obj.(*source.GitRepository).Spec.Ignore = new("/nothing-of-that-name\n")
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

// sparseDir is the directory that is checked out.
const sparseDir = "in/here"

// A combinedRemote is a remote that uses everything a GitRepository supports: of its
// sparse checkout, the folder sub comes from another source, deploy is a submodule,
// and the other files are LFS objects. A cache keeps what is fetched.
type combinedRemote struct {
	*remote
	modules *testenv.Repo
	objects *testenv.LFS
	part    *includedSources
}

func (o *combinedRemote) Publish(tree fstest.MapFS) error {
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
	all := files("beside/a", "a", "beside/b", "b", ".gitmodules", "[submodule \"m\"]\n\tpath = "+sparseDir+"/deploy\n\turl = ../modules.git\n")
	for name, f := range rest {
		all[sparseDir+"/"+name] = f
	}
	all[sparseDir+"/deploy"] = testenv.Gitlink(o.modules.Commit(testenv.Commit{Branch: "main", Files: module}))
	if err := o.remote.Publish(all); err != nil {
		return err
	}
	o.part.objects = nil
	o.part.tree("part", included)
	return nil
}

func (o *combinedRemote) Object() source.Object {
	g := o.remote.Object().(*source.GitRepository)
	g.Spec.RecurseSubmodules, g.Spec.LFS, g.Spec.SparseCheckout = true, true, []string{sparseDir}
	g.Spec.Include = including("", "part:sub:"+sparseDir+"/sub").Spec.Include
	return g
}

func (o *combinedRemote) Origin(obj source.Object) source.Origin {
	env := o.part.env()
	env.Secrets, env.Cache = o.credentials(), o.cache
	return git.New(obj.(*source.GitRepository), env)
}

func (o *combinedRemote) Traffic() sourcetest.Traffic {
	t := o.remote.Traffic()
	t.Content += int64(o.server.Count(testenv.LFSObject)) + o.part.opened.Load()
	return t
}

func TestConformanceTogether(t *testing.T) {
	t.Parallel()
	kind := conforming(func(tb sourcetest.TB) sourcetest.Upstream {
		t := tb.(*testing.T)
		repo, modules, objects := testenv.NewRepo(t), testenv.NewRepo(t), new(testenv.LFS)
		server := testenv.ServeRepos(t, testenv.GitConfig{Username: "user", Password: password, LFS: objects}, map[string]*testenv.Repo{"repo.git": repo, "modules.git": modules})
		return &combinedRemote{&remote{t: tb, repo: repo, server: server, ref: source.GitRepositoryRef{SemVer: "1.x"}, mode: source.VerifyTagAndHEAD,
			signer: newSSHSigner(t), cache: newCache(t, t.TempDir())}, modules, objects, newIncludedSources(t)}
	})
	kind.Dir = sparseDir
	kind.Hostile = kind.Hostile[:3] // names are checked as in every repository: a few are enough
	kind.KeepFailures(sourcetest.Gone, "wrong password", "cut")
	sourcetest.Run(t, kind)
}
