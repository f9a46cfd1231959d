package chart_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A chartLife is what happens to one chart, step by step. After each its
// outcome, its status and its events are those of testdata/status
// (specification, "PkgChart"; reference A2, A3, A4 and A14).
type chartLife struct {
	name  string
	from  string
	steps []chartStep
}

type chartStep struct {
	name string
	do   func(w *chartWorld, c *source.PkgChart) // before the chart is reconciled
}

// A chartWorld is a workshop with a repository and a tree.
type chartWorld struct {
	*workshop
	server *testenv.Charts
	repo   *source.PkgRepository
}

// publish puts versions into the repository.
func publish(versions ...string) func(*chartWorld, *source.PkgChart) {
	return func(w *chartWorld, _ *source.PkgChart) {
		for _, v := range versions {
			w.server.Put(testenv.ChartVersion{Name: "app", Version: v, Archive: repacked(w.T, archived(w.T, v))})
		}
		w.server.Break(nil)
		if w.repo == nil {
			w.repo = w.indexed(w.server)
			return
		}
		w.refresh(w.repo, source.Stored)
	}
}

// repacked returns an archive in the form that is the same with each release of Go.
func repacked(t *testing.T, archive []byte) []byte {
	t.Helper()
	tree, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	var b bytes.Buffer
	if _, err := artifact.Pack(t.Context(), &b, tree); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// commit puts a tree into the GitRepository.
func commit(revision, version string, further ...string) func(*chartWorld, *source.PkgChart) {
	return func(w *chartWorld, _ *source.PkgChart) {
		w.tree(new(source.GitRepository), "src", revision, simple("app", "app", version, further...))
	}
}

func altered(edit func(*source.PkgChartSpec)) func(*chartWorld, *source.PkgChart) {
	return func(_ *chartWorld, c *source.PkgChart) { edit(&c.Spec) }
}

func nothingDone(*chartWorld, *source.PkgChart) {}

var chartLives = []chartLife{
	{"chart of a repository", "PkgRepository/src", []chartStep{
		{"no repository", nothingDone},
		{"published", publish("1.0.0")},
		{"nothing changed", nothingDone},
		{"a new version", publish("1.1.0")},
		{"a range without versions", altered(func(s *source.PkgChartSpec) { s.Version = "^2" })},
		{"a version that cannot be fetched", func(w *chartWorld, c *source.PkgChart) {
			publish("2.0.0")(w, c)
			w.server.Break(&testenv.Defect{Phase: testenv.GetChart, Status: 503})
		}},
		{"mended", func(w *chartWorld, _ *source.PkgChart) { w.server.Break(nil) }},
		{"with values", altered(func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"values.yaml", "prod.yaml"} })},
		{"with values that are missing", altered(func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"prod.yaml", "none.yaml"} })},
		{"which may be missing", altered(func(s *source.PkgChartSpec) { s.IgnoreMissingValuesFiles = true })},
		{"published again", func(w *chartWorld, _ *source.PkgChart) {
			w.server.Put(testenv.ChartVersion{Name: "app", Version: "2.0.0", Archive: repacked(w.T, archived(w.T, "2.0.0", "more.yaml", "x"))})
			w.refresh(w.repo, source.Stored)
		}},
		{"suspended, and a new version", func(w *chartWorld, c *source.PkgChart) {
			publish("2.1.0")(w, c)
			c.Spec.Suspend = true
		}},
		{"resumed", altered(func(s *source.PkgChartSpec) { s.Suspend = false })},
		{"a name that is none", altered(func(s *source.PkgChartSpec) { s.Chart = "App" })},
	}},
	{"chart of a tree", "GitRepository/src", []chartStep{
		{"published", commit(rev1, "1.0.0")},
		{"a commit without another version", commit(rev2, "1.0.0", "README.md", "x")},
		{"asked for by annotation", func(_ *chartWorld, c *source.PkgChart) {
			c.Metadata.Annotations = map[string]string{"reconcile.headgate.dev/requestedAt": "now"}
		}},
		{"by revision", altered(func(s *source.PkgChartSpec) { s.ReconcileStrategy = source.StrategyRevision })},
		{"a dependency that is not there", func(w *chartWorld, _ *source.PkgChart) {
			tree := simple("app", "app", "1.1.0")
			tree["app/Chart.yaml"].Data = append(tree["app/Chart.yaml"].Data, "dependencies:\n- {name: lib, version: ^1, repository: \"file://../lib\"}\n"...)
			w.tree(new(source.GitRepository), "src", rev1, tree)
		}},
		{"no chart", commit(rev1, "no version")},
		{"mended, with values of another source", func(w *chartWorld, c *source.PkgChart) {
			commit(rev1, "1.1.0")(w, c)
			w.tree(new(source.Bucket), "lib", "sha256:0123456789abcdef", files("x.yaml", "a: 7\n"))
			c.Spec.ValuesFiles = []string{"source:Bucket/lib/x.yaml"}
		}},
		{"other values", func(w *chartWorld, _ *source.PkgChart) {
			w.tree(new(source.Bucket), "lib", "sha256:123456789abcdef0", files("x.yaml", "a: 8\n"))
		}},
		{"another kind", altered(func(s *source.PkgChartSpec) { s.SourceRef.Kind = "ExternalArtifact" })},
	}},
}

func TestChartStatuses(t *testing.T) {
	for _, l := range chartLives {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := &chartWorld{workshop: newWorkshop(t), server: testenv.StartCharts(t, testenv.ChartsConfig{})}
			c := made(l.from, "app", nil)
			var got strings.Builder
			for _, s := range l.steps {
				w.Now = w.Now.Add(time.Hour)
				s.do(w, c)
				c = &source.PkgChart{Header: c.Header, Spec: c.Spec}
				c.Metadata.Generation = 0 // the ledger knows
				result, err := w.Reconcile(c, w.origin(c))
				observed := fmt.Sprintf("%q at %q with %q", c.Status.ObservedChartName, c.Status.ObservedSourceArtifactRevision, c.Status.ObservedValuesFiles)
				told := w.Told(c, result, err, observed, fmt.Sprintf("%v %v", result.Report.Files, result.Verification))
				fmt.Fprintf(&got, "# %s\n%s", s.name, strings.ReplaceAll(told, w.server.Base, "http://charts.example"))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", strings.ReplaceAll(l.name, " ", "-")+".txt"), got.String(), *update)
		})
	}
}
