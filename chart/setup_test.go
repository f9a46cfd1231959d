package chart_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A chartSetup reconciles charts, and holds the sources that they are built from.
type chartSetup struct {
	*testing.T
	*sourcetest.Fixture
	objects      []source.Object
	opened       int // how often an artifact was opened
	unclosed     int // artifacts that were opened and not closed
	secrets      sourcetest.Secrets
	technologies map[string]oci.Technology
	limits       artifact.Limits
}

func newChartSetup(t *testing.T, secrets ...string) *chartSetup {
	t.Helper()
	w := &chartSetup{T: t, secrets: sourcetest.Secrets{}}
	w.Fixture = sourcetest.NewFixture(t, func() []string { return secrets })
	w.limits.Temp = testenv.NewTempFiles(t).Create
	t.Cleanup(func() {
		testenv.Equal(t, w.unclosed, 0, "artifacts that were not closed")
	})
	return w
}

func (w *chartSetup) inventory() *source.Inventory {
	return &source.Inventory{Objects: w.objects, Store: w.Store}
}

// Source implements [source.Sources].
func (w *chartSetup) Source(ctx context.Context, ref source.Reference) (source.Object, error) {
	return w.inventory().Source(ctx, ref)
}

// List implements [source.Sources].
func (w *chartSetup) List(ctx context.Context, kind, namespace string) ([]source.Object, error) {
	return w.inventory().List(ctx, kind, namespace)
}

// Open implements [source.Sources].
func (w *chartSetup) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	r, err := w.inventory().Open(ctx, a)
	if err != nil {
		return nil, err
	}
	w.opened++
	w.unclosed++
	return &watchedBody{r, w, false}, nil
}

type watchedBody struct {
	io.ReadCloser
	w      *chartSetup
	closed bool
}

func (r *watchedBody) Close() error {
	if !r.closed {
		r.closed = true
		r.w.unclosed--
	}
	return r.ReadCloser.Close()
}

func (w *chartSetup) env() source.Env {
	return source.Env{Sources: w, Secrets: w.secrets, Limits: w.limits}
}

// add adds obj to the sources as KIND/NAME, in place of an earlier one.
func (w *chartSetup) add(obj source.Object, name string) {
	m := &obj.Head().Metadata
	m.Name, m.Namespace = name, "apps"
	source.Default(obj)
	ref := source.ReferenceTo(obj)
	w.objects = slices.DeleteFunc(w.objects, func(o source.Object) bool { return source.ReferenceTo(o) == ref })
	w.objects = append(w.objects, obj)
}

// put stores the output of write as the artifact of obj.
func (w *chartSetup) put(obj source.Object, name, revision string, write func(io.Writer) error) {
	w.Helper()
	w.add(obj, name)
	dir, err := source.Address(obj)
	must(w, err)
	a, err := w.Store.Put(w.Context(), dir, "source.tar.gz", write)
	must(w, err)
	a.Revision = revision
	obj.Common().Artifact = &a
}

// putTree packs files as the artifact of obj.
func (w *chartSetup) putTree(obj source.Object, name, revision string, files fstest.MapFS) {
	w.Helper()
	w.put(obj, name, revision, func(to io.Writer) error {
		_, err := artifact.Pack(w.Context(), to, files)
		return err
	})
}

// files returns a tree of NAME, TEXT, NAME, TEXT and so on.
func files(pairs ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		tree[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1]), Mode: 0o644}
	}
	return tree
}

// simpleChart returns the files of a chart in directory dir, and further files in addition.
func simpleChart(dir, name, version string, further ...string) fstest.MapFS {
	tree := files(further...)
	for file, text := range map[string]string{
		"Chart.yaml":         fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version),
		"values.yaml":        "a: 1\nb: {c: 2, d: 3}\n",
		"templates/all.yaml": "kind: ConfigMap\n",
	} {
		tree[path.Join(dir, file)] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

// newPkgChart returns a PkgChart whose source is KIND/NAME.
func newPkgChart(from, in string, edit func(*source.PkgChartSpec)) *source.PkgChart {
	kind, name, _ := strings.Cut(from, "/")
	c := &source.PkgChart{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "PkgChart",
			Metadata: source.Metadata{Name: "app", Namespace: "apps", Generation: 3}},
		Spec: source.PkgChartSpec{Chart: in, Interval: source.Duration(time.Hour),
			SourceRef: source.LocalChartSourceReference{Kind: kind, Name: name}},
	}
	if edit != nil {
		edit(&c.Spec)
	}
	source.Default(c)
	return c
}

func (w *chartSetup) origin(c *source.PkgChart) *chart.Origin {
	return chart.New(c, w.env(), w.technologies)
}

// run reconciles c and demands the outcome.
func (w *chartSetup) run(c *source.PkgChart, want source.Outcome) source.Result {
	w.Helper()
	result, err := w.Reconcile(c, w.origin(c))
	if result.Outcome != want {
		w.Fatalf("outcome %q because %q, error %v; want %q", result.Outcome, result.Why, err, want)
	}
	return result
}

// fails reconciles c, demands a failure, and demands that the artifact stays before, which
// is nil for none.
func (w *chartSetup) fails(c *source.PkgChart, before *artifact.Artifact, outcome source.Outcome, reason string, texts ...string) source.Result {
	w.Helper()
	result := w.MustRefuse(c, w.origin(c), before, reason, texts...)
	testenv.Equal(w, result.Outcome, outcome, "outcome")
	return result
}

// conditionsOf returns TYPE=STATUS/REASON of all conditions.
func conditionsOf(c *source.PkgChart) string {
	var list []string
	for _, c := range c.Status.Conditions {
		list = append(list, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(list, " ")
}

const (
	rev1 = "main@sha1:0123456789abcdef0123456789abcdef01234567"
	rev2 = "main@sha1:89abcdef0123456789abcdef0123456789abcdef"
)

// bytes returns the stored bytes of an artifact.
func (w *chartSetup) bytes(a *artifact.Artifact) string {
	w.Helper()
	return string(storedBytes(w.T, w.Fixture, a))
}

// storedBytes returns an artifact as it is in the store.
func storedBytes(t *testing.T, r *sourcetest.Fixture, a *artifact.Artifact) []byte {
	t.Helper()
	in, err := r.Store.Open(*a)
	must(t, err)
	defer in.Close()
	text, err := io.ReadAll(in)
	must(t, err)
	return text
}

// tgz returns an archive of files.
func tgz(t *testing.T, files map[string]string) []byte { return testenv.ChartArchive(t, files) }

func writeText(text []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
}

// archiveWithLink returns the archive of a chart whose Chart.lock is a link.
func archiveWithLink(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	text := "apiVersion: v2\nname: app\nversion: 1.0.0\n"
	err := tw.WriteHeader(&tar.Header{Name: "app/Chart.yaml", Mode: 0o644, Size: int64(len(text))})
	if err == nil {
		_, err = io.WriteString(tw, text)
	}
	if err == nil {
		err = tw.WriteHeader(&tar.Header{Name: "app/Chart.lock", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"})
	}
	must(t, errors.Join(err, tw.Close(), zw.Close()))
	return b.Bytes()
}

// A chartHistory is a sequence of steps for one chart. After each step, its outcome, its
// status and its events must be those of testdata/status (specification, "PkgChart";
// reference A2, A3, A4 and A14).
type chartHistory struct {
	name  string
	from  string
	steps []chartStep
}

type chartStep struct {
	name string
	do   func(w *historySetup, c *source.PkgChart) // before the chart is reconciled
}

// A historySetup is a chartSetup with a repository and a tree.
type historySetup struct {
	*chartSetup
	server *testenv.Charts
	repo   *source.PkgRepository
}

// publish publishes versions in the repository.
func publish(versions ...string) func(*historySetup, *source.PkgChart) {
	return func(w *historySetup, _ *source.PkgChart) {
		for _, v := range versions {
			w.server.Put(testenv.ChartVersion{Name: "app", Version: v, Archive: repack(w.T, appArchive(w.T, v))})
		}
		w.server.Break(nil)
		if w.repo == nil {
			w.repo = w.addIndexRepository(w.server)
			return
		}
		w.refresh(w.repo, source.Stored)
	}
}

// repack returns the archive in a form that does not depend on the release of Go.
func repack(t *testing.T, archive []byte) []byte {
	t.Helper()
	tree, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{})
	must(t, err)
	defer tree.Close()
	var b bytes.Buffer
	_, err = artifact.Pack(t.Context(), &b, tree)
	must(t, err)
	return b.Bytes()
}

// commit stores a tree as the artifact of the GitRepository.
func commit(revision, version string, further ...string) func(*historySetup, *source.PkgChart) {
	return func(w *historySetup, _ *source.PkgChart) {
		w.putTree(new(source.GitRepository), "src", revision, simpleChart("app", "app", version, further...))
	}
}

func editChart(edit func(*source.PkgChartSpec)) func(*historySetup, *source.PkgChart) {
	return func(_ *historySetup, c *source.PkgChart) { edit(&c.Spec) }
}

func noChartChange(*historySetup, *source.PkgChart) {}

var chartHistories = []chartHistory{
	{"chart of a repository", "PkgRepository/src", []chartStep{
		{"no repository", noChartChange},
		{"published", publish("1.0.0")},
		{"nothing changed", noChartChange},
		{"a new version", publish("1.1.0")},
		{"a range without versions", editChart(func(s *source.PkgChartSpec) { s.Version = "^2" })},
		{"a version that cannot be fetched", func(w *historySetup, c *source.PkgChart) {
			publish("2.0.0")(w, c)
			w.server.Break(&testenv.Defect{Phase: testenv.GetChart, Status: 503})
		}},
		{"mended", func(w *historySetup, _ *source.PkgChart) { w.server.Break(nil) }},
		{"with values", editChart(func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"values.yaml", "prod.yaml"} })},
		{"with values that are missing", editChart(func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"prod.yaml", "none.yaml"} })},
		{"which may be missing", editChart(func(s *source.PkgChartSpec) { s.IgnoreMissingValuesFiles = true })},
		{"published again", func(w *historySetup, _ *source.PkgChart) {
			w.server.Put(testenv.ChartVersion{Name: "app", Version: "2.0.0", Archive: repack(w.T, appArchive(w.T, "2.0.0", "more.yaml", "x"))})
			w.refresh(w.repo, source.Stored)
		}},
		{"suspended, and a new version", func(w *historySetup, c *source.PkgChart) {
			publish("2.1.0")(w, c)
			c.Spec.Suspend = true
		}},
		{"resumed", editChart(func(s *source.PkgChartSpec) { s.Suspend = false })},
		{"a name that is none", editChart(func(s *source.PkgChartSpec) { s.Chart = "App" })},
	}},
	{"chart of a tree", "GitRepository/src", []chartStep{
		{"published", commit(rev1, "1.0.0")},
		{"a commit without another version", commit(rev2, "1.0.0", "README.md", "x")},
		{"asked for by annotation", func(_ *historySetup, c *source.PkgChart) {
			c.Metadata.Annotations = map[string]string{"reconcile.headgate.dev/requestedAt": "now"}
		}},
		{"by revision", editChart(func(s *source.PkgChartSpec) { s.ReconcileStrategy = source.StrategyRevision })},
		{"a dependency that is not there", func(w *historySetup, _ *source.PkgChart) {
			tree := simpleChart("app", "app", "1.1.0")
			tree["app/Chart.yaml"].Data = append(tree["app/Chart.yaml"].Data, "dependencies:\n- {name: lib, version: ^1, repository: \"file://../lib\"}\n"...)
			w.putTree(new(source.GitRepository), "src", rev1, tree)
		}},
		{"no chart", commit(rev1, "no version")},
		{"mended, with values of another source", func(w *historySetup, c *source.PkgChart) {
			commit(rev1, "1.1.0")(w, c)
			w.putTree(new(source.Bucket), "lib", "sha256:0123456789abcdef", files("x.yaml", "a: 7\n"))
			c.Spec.ValuesFiles = []string{"source:Bucket/lib/x.yaml"}
		}},
		{"other values", func(w *historySetup, _ *source.PkgChart) {
			w.putTree(new(source.Bucket), "lib", "sha256:123456789abcdef0", files("x.yaml", "a: 8\n"))
		}},
		{"another kind", editChart(func(s *source.PkgChartSpec) { s.SourceRef.Kind = "ExternalArtifact" })},
	}},
}

func TestChartStatuses(t *testing.T) {
	for _, l := range chartHistories {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := &historySetup{chartSetup: newChartSetup(t), server: testenv.StartCharts(t, testenv.ChartsConfig{})}
			c := newPkgChart(l.from, "app", nil)
			var got strings.Builder
			for _, s := range l.steps {
				w.Now = w.Now.Add(time.Hour)
				s.do(w, c)
				c = &source.PkgChart{Header: c.Header, Spec: c.Spec}
				c.Metadata.Generation = 0 // the ledger assigns it
				result, err := w.Reconcile(c, w.origin(c))
				observed := fmt.Sprintf("%q at %q with %q", c.Status.ObservedChartName, c.Status.ObservedSourceArtifactRevision, c.Status.ObservedValuesFiles)
				description := w.DescribeRun(c, result, err, observed, fmt.Sprintf("%v %v", result.Report.Files, result.Verification))
				fmt.Fprintf(&got, "# %s\n%s", s.name, strings.ReplaceAll(description, w.server.Base, "http://charts.example"))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", strings.ReplaceAll(l.name, " ", "-")+".txt"), got.String(), *update)
		})
	}
}
