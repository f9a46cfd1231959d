package bundle_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

func TestChartsAreAddedBesideThoseThatAreThere(t *testing.T) {
	named := func(name, version string, files fstest.MapFS) *bundle.Chart {
		return &bundle.Chart{Metadata: &chart.Metadata{Name: name, Version: version}, Files: files}
	}
	c := named("whole", "1.0.0", fstest.MapFS{"Chart.yaml": {}, "charts/lib/Chart.yaml": {Data: []byte("there")}})
	deep := named("deep", "1.0.0", fstest.MapFS{"Chart.yaml": {Data: []byte("deep")}})
	sub := named("sub", "1.0.0", fstest.MapFS{"Chart.yaml": {Data: []byte("sub")}})
	sub.Files = sub.With(deep)
	got := c.With(named("lib", "2.0.0", fstest.MapFS{"Chart.yaml": {Data: []byte("lib 2")}}),
		named("lib", "2.0.0", fstest.MapFS{"Chart.yaml": {Data: []byte("lib 2 again")}}), sub)
	for name, want := range map[string]string{
		"charts/lib/Chart.yaml":             "there",
		"charts/lib-2.0.0/Chart.yaml":       "lib 2",
		"charts/lib-2.0.0-2/Chart.yaml":     "lib 2 again",
		"charts/sub/Chart.yaml":             "sub",
		"charts/sub/charts/deep/Chart.yaml": "deep",
	} {
		if text, err := fs.ReadFile(got, name); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", name, text, err, want)
		}
	}
}
