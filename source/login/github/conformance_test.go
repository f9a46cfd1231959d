package github_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/github"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// forge is a repository on github.com that a GitHub App reads.
type forge struct {
	*world
	repo   *testenv.Repo
	defect sourcetest.Defect
}

func newForge(t *testing.T) *forge {
	repo := testenv.NewRepo(t)
	return &forge{world: newWorld(t, repo), repo: repo}
}

func (f *forge) Publish(tree fstest.MapFS) error {
	f.repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	return nil
}

var defects = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         testenv.Status(http.StatusNotFound),
	sourcetest.Denied:       testenv.Status(http.StatusForbidden),
	sourcetest.StallResolve: {Phase: testenv.LsRefs, Do: testenv.Stall, After: -1}, // of a server that is known, which is not greeted
	sourcetest.StallFetch:   {Phase: testenv.Pack, Do: testenv.Stall, After: 100},
}

func (f *forge) Break(d sourcetest.Defect) <-chan struct{} {
	f.defect = d
	f.login = github.New(nil).Login // keeps nothing yet
	f.api.Answer(nil)
	switch d {
	case sourcetest.Leaking:
		return f.git.Break(&testenv.Defect{Status: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"text/plain"}},
			Body: fmt.Sprintf("not x-access-token:ghs_canary%06d", len(f.api.Tokens())+1)})
	case "no installation":
		f.api.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	case "unavailable":
		f.api.Answer(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(`{"message":"you sent ` + r.Header.Get("Authorization") + `"}`))
		})
	}
	return f.git.Break(defects[d])
}

func (f *forge) Object() source.Object {
	g := logintest.Repository("github", "https://github.com/acme/app.git")
	g.Spec.SecretRef = &source.LocalReference{Name: "app"}
	g.Metadata.Generation = 0
	g.Spec.Interval = source.Duration(time.Hour)
	switch f.defect {
	case sourcetest.NoSecret:
		g.Spec.SecretRef.Name = "absent"
	case sourcetest.Invalid:
		g.Spec.SecretRef = nil
	}
	return g
}

func (f *forge) Origin(obj source.Object) source.Origin {
	return git.New(obj.(*source.GitRepository), source.Env{Secrets: f.secrets, Login: f.login})
}

func (f *forge) Traffic() (t sourcetest.Traffic) {
	for _, q := range f.git.Requests() {
		t.Requests++
		if q.Phase == testenv.Pack {
			t.Content++
		}
	}
	return t
}

func (f *forge) Secrets() []string { return append(f.api.Tokens(), "BEGIN RSA PRIVATE KEY", "eyJ") }

func TestConformance(t *testing.T) {
	t.Parallel()
	const fetch = "FetchFailed"
	sourcetest.Run(t, sourcetest.Kind{
		Name: "GitRepository of a GitHub App",
		Open: func(sourcetest.TB) sourcetest.Upstream { return newForge(t) },
		Drift: func(obj source.Object) {
			ignore := "/nothing-of-that-name\n"
			obj.(*source.GitRepository).Spec.Ignore = &ignore
		},
		Failures: []sourcetest.Failure{
			{Defect: sourcetest.Gone, Outcome: source.Failed, Condition: fetch, Reason: "GitOperationFailed", Message: "not found"},
			{Defect: sourcetest.Denied, Outcome: source.Failed, Condition: fetch, Reason: "AuthenticationFailed", Message: "authentication failed"},
			{Defect: sourcetest.NoSecret, Outcome: source.Failed, Condition: fetch, Reason: "AuthenticationFailed", Message: "default/absent"},
			{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: fetch, Reason: "InvalidProviderConfiguration", Message: "spec.secretRef"},
			{Defect: sourcetest.Leaking, Outcome: source.Failed, Condition: fetch, Reason: "GitOperationFailed", Message: "500"},
			{Defect: "no installation", Outcome: source.Failed, Condition: fetch, Reason: "InvalidProviderConfiguration", Message: "not installed for acme"},
			{Defect: "unavailable", Outcome: source.Failed, Condition: fetch, Reason: "AuthenticationFailed", Message: "status 503"},
		},
		Stalls:       []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch},
		Hostile:      []string{"../up", ".git/config"},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	})
}
