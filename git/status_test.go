package git_test

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/status")

// A statusStep is an event before an object is reconciled.
type statusStep struct {
	name string
	do   func(repo *testenv.Repo, server *testenv.GitServer, spec *source.GitRepositorySpec)
}

func commits(text string) func(*testenv.Repo, *testenv.GitServer, *source.GitRepositorySpec) {
	return func(repo *testenv.Repo, server *testenv.GitServer, _ *source.GitRepositorySpec) {
		server.Break(nil)
		repo.Commit(testenv.Commit{Branch: "main", Message: text, Files: files("app.yaml", text, "docs/readme.md", text)})
	}
}

func edits(edit func(*source.GitRepositorySpec)) func(*testenv.Repo, *testenv.GitServer, *source.GitRepositorySpec) {
	return func(_ *testenv.Repo, _ *testenv.GitServer, spec *source.GitRepositorySpec) { edit(spec) }
}

func breaks(d *testenv.Defect) func(*testenv.Repo, *testenv.GitServer, *source.GitRepositorySpec) {
	return func(_ *testenv.Repo, server *testenv.GitServer, _ *source.GitRepositorySpec) { server.Break(d) }
}

// statusHistories are the steps that objects go through. After each step the outcome,
// the status and the events must equal those in testdata/status (specification,
// "GitRepository"; reference A2, A3 and A4).
var statusHistories = map[string][]statusStep{
	"branch": {
		{"no branch", breaks(nil)},
		{"published", commits("one")},
		{"nothing changed", breaks(nil)},
		{"another commit", commits("two")},
		{"ignore", edits(func(s *source.GitRepositorySpec) { s.Ignore = new("/docs\n") })},
		{"sparse checkout", edits(func(s *source.GitRepositorySpec) { s.SparseCheckout = []string{"./docs"}; s.Ignore = nil })},
		{"a tag", func(repo *testenv.Repo, _ *testenv.GitServer, s *source.GitRepositorySpec) {
			repo.Tag("v1.0.0", repo.ID("refs/heads/main"))
			s.Ref, s.SparseCheckout = &source.GitRepositoryRef{SemVer: "1.x"}, nil
		}},
		{"no tag in range", edits(func(s *source.GitRepositorySpec) { s.Ref.SemVer = "2.x" })},
	},
	"failures": {
		{"published", commits("one")},
		{"commit that cannot be fetched", func(repo *testenv.Repo, server *testenv.GitServer, s *source.GitRepositorySpec) {
			commits("two")(repo, server, s)
			server.Break(&testenv.Defect{Phase: testenv.Pack, Status: http.StatusForbidden})
		}},
		{"forbidden", breaks(testenv.Status(http.StatusForbidden))},
		{"mended", breaks(nil)},
	},
}

func TestStatuses(t *testing.T) {
	for name, steps := range statusHistories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := testenv.NewRepo(t)
			server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
			rig := sourcetest.NewFixture(t, func() []string { return nil })
			obj := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
			obj.Spec.Interval = source.Duration(time.Hour)
			var got strings.Builder
			for _, s := range steps {
				rig.Now = rig.Now.Add(time.Hour)
				s.do(repo, server, &obj.Spec)
				obj = &source.GitRepository{Header: obj.Header, Spec: obj.Spec}
				obj.Metadata.Generation = 0 // the ledger assigns it
				result, err := rig.Reconcile(obj, git.New(obj, source.Env{}))
				observed := fmt.Sprintf("ignore %s, sparse checkout %q", rig.JSON(obj.Status.ObservedIgnore), obj.Status.ObservedSparseCheckout)
				description := rig.DescribeRun(obj, result, err, observed, result.Report.Files)
				fmt.Fprintf(&got, "# %s\n%s", s.name, strings.ReplaceAll(description, server.URL, "http://git.example"))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", name+".txt"), got.String(), *update)
		})
	}
}
