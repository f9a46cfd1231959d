package git_test

import (
	"net/http"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// largeRemote is a remote of which every file is an LFS object.
type largeRemote struct {
	*remote
	objects *testenv.LFS
}

func (r *largeRemote) Publish(tree fstest.MapFS) error {
	pointers := files(".gitattributes", "* filter=lfs\n.sourceignore !filter\n")
	for name, f := range tree {
		copied := *f
		if f.Mode.Type() == 0 && !strings.HasPrefix(path.Base(name), ".sourceignore") {
			copied.Data = []byte(r.objects.Add(string(f.Data)))
		}
		pointers[name] = &copied
	}
	return r.remote.Publish(pointers)
}

var lfsDefects = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Denied:     {Phase: testenv.LFSBatch, Status: http.StatusForbidden},
	sourcetest.Gone:       {Phase: testenv.LFSBatch, Status: http.StatusNotFound},
	sourcetest.Truncated:  {Phase: testenv.LFSObject, Do: testenv.Answer, Status: http.StatusOK, Body: "more than all of the content of every one of the files that are there, which is short"},
	sourcetest.Leaking:    {Phase: testenv.LFSBatch, Status: http.StatusUnprocessableEntity, Body: `{"message":"see https://user:` + password + `@example.com/x?token=` + password + `"}`},
	sourcetest.StallFetch: {Phase: testenv.LFSObject, Do: testenv.Stall, After: -1},
	"stall batch":         {Phase: testenv.LFSBatch, Do: testenv.Stall, After: 10},
	"wrong content":       {Phase: testenv.LFSObject, Do: testenv.Flip},
	"link gone":           {Phase: testenv.LFSObject, Status: http.StatusNotFound},
}

func (r *largeRemote) Break(d sourcetest.Defect) <-chan struct{} {
	r.remote.Break(d)
	if defect, ok := lfsDefects[d]; ok {
		return r.server.Break(defect)
	}
	return r.server.Stalled()
}

func (r *largeRemote) Object() source.Object {
	g := r.remote.Object().(*source.GitRepository)
	g.Spec.LFS = true
	return g
}

func (r *largeRemote) Traffic() sourcetest.Traffic {
	t := r.remote.Traffic()
	for _, q := range r.server.Requests() {
		if q.Phase == testenv.LFSObject {
			t.Content++
		}
	}
	return t
}

func TestConformanceOfLFS(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Kind{
		Name: "GitRepository with LFS",
		Open: func(tb sourcetest.TB) sourcetest.Upstream {
			repo, objects := testenv.NewRepo(t), new(testenv.LFS)
			server := testenv.ServeHTTP(t, testenv.HTTP{Username: "user", Password: password, LFS: objects}, repo)
			return &largeRemote{&remote{t: tb, repo: repo, server: server, ref: source.GitRepositoryRef{Branch: "main"}}, objects}
		},
		Drift: func(obj source.Object) {
			ignore := "/nothing-of-that-name\n"
			obj.(*source.GitRepository).Spec.Ignore = &ignore
		},
		Failures: []sourcetest.Failure{
			{Defect: sourcetest.Denied, Outcome: source.Failed, Condition: "FetchFailed", Reason: "AuthenticationFailed", Message: "may not read LFS objects"},
			{Defect: sourcetest.Gone, Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "no LFS for this repository"},
			{Defect: sourcetest.Truncated, Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "its pointer tells"},
			{Defect: sourcetest.Leaking, Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "422"},
			{Defect: "wrong content", Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "its SHA-256 is"},
			{Defect: "link gone", Outcome: source.Failed, Condition: "FetchFailed", Reason: "GitOperationFailed", Message: "404"},
		},
		Stalls:       []sourcetest.Defect{sourcetest.StallFetch, "stall batch"},
		Hostile:      []string{"../up", "a/../../up", ".git/config", `a\b`},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	})
}
