package chart_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A directory stands in for a repository: no request leaves.
func TestOffline(t *testing.T) {
	dir := t.TempDir()
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	archive := server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	for name, text := range map[string][]byte{"index.yaml": server.Index(), "app-1.0.0.tgz": archive} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const url = "https://charts.invalid/stable"
	w := newWorkshop(t)
	repo := &source.PkgRepository{Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "PkgRepository"}, Spec: source.PkgRepositorySpec{URL: url}}
	w.add(repo, "src")
	env := w.env()
	env.Local = map[string]string{url: dir}
	if _, err := w.Reconcile(repo, chart.NewRepository(repo, env)); err != nil {
		t.Fatal(err)
	}
	c := made("PkgRepository/src", "app", nil)
	w.Stored(c, chart.New(c, env, nil))
	if w.bytes(c.Artifact()) != string(archive) || server.Count() != 0 {
		t.Errorf("%d requests", server.Count())
	}
}
