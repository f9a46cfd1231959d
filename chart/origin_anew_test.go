package chart_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// undigested publishes version 1.0.0 of app in an index without digests, at a
// place relative to the repository, and returns the server.
func undigested(t *testing.T, archive []byte) *testenv.Charts {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: archive,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Entry: map[string]any{"digest": nil}})
	return server
}

// A version of an index without digests is another chart in another repository,
// and where the repository has moved, although the entries are the same.
func TestSameEntryInAnotherRepository(t *testing.T) {
	first, second := archived(t, "1.0.0"), archived(t, "1.0.0", "new.yaml", "x")
	a, b := undigested(t, first), undigested(t, second)
	w := newWorkshop(t)
	repo := w.indexed(a)
	c := made("PkgRepository/src", "app", nil)
	w.run(c, source.Stored)

	repo.Spec.URL = b.URL()
	repo.Metadata.Generation++
	if _, err := w.Reconcile(repo, chart.NewRepository(repo, source.Env{Limits: w.limits})); err != nil {
		t.Fatal(err)
	}
	result := w.run(c, source.Stored)
	if !strings.HasPrefix(result.Why, "version 1.0.0 was published again") || w.bytes(c.Artifact()) != string(second) {
		t.Errorf("because %q", result.Why)
	}
	w.run(c, source.Unchanged)

	other := &source.PkgRepository{Header: source.Header{Kind: "PkgRepository"}, Spec: source.PkgRepositorySpec{URL: a.URL()}}
	w.add(other, "other")
	w.refresh(other, source.Stored)
	c.Spec.SourceRef.Name = "other"
	result = w.run(c, source.Stored)
	if !strings.HasPrefix(result.Why, "version 1.0.0 is another chart: it was that of PkgRepository/apps/src, is that of PkgRepository/apps/other") || w.bytes(c.Artifact()) != string(first) {
		t.Errorf("because %q", result.Why)
	}
	w.run(c, source.Unchanged)
}

// An index that changes elsewhere makes no chart anew, whatever the strategy.
func TestStrategyOfRepositories(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	w := newWorkshop(t)
	repo := w.indexed(server)
	c := made("PkgRepository/src", "app", func(s *source.PkgChartSpec) { s.ReconcileStrategy = source.StrategyRevision })
	w.run(c, source.Stored)
	server.Put(testenv.ChartVersion{Name: "other", Version: "1.0.0"})
	w.refresh(repo, source.Stored)
	server.Reset()
	w.run(c, source.Unchanged)
	if server.Count() != 0 {
		t.Errorf("%d requests", server.Count())
	}
}

// Without a state a chart is made again where there is reason to, and only there.
func TestLostStateOfCharts(t *testing.T) {
	first, second := archived(t, "1.0.0"), archived(t, "1.0.0", "new.yaml", "x")
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: first})
	w := newWorkshop(t)
	w.indexed(server)
	c := made("PkgRepository/src", "app", nil)
	w.run(c, source.Stored)
	w.forget(c)
	w.run(c, source.Unchanged)
	w.forget(c)
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: second})
	w.indexed(server)
	w.run(c, source.Stored)
	if w.bytes(c.Artifact()) != string(second) {
		t.Error("it is the chart of before")
	}
	w.run(c, source.Unchanged)

	w.tree(new(source.GitRepository), "src", rev1, simple("app", "app", "1.0.0"))
	c.Spec.SourceRef.Kind = "GitRepository"
	c.Metadata.Generation++
	w.forget(c)
	w.run(c, source.Stored)
	if got := w.Contents(c.Artifact())["app/templates/all.yaml"]; got == "" {
		t.Error("it is the chart of the repository")
	}
	w.forget(c)
	w.run(c, source.Unchanged)
}

// forget loses the state of c, but not its status.
func (w *workshop) forget(c *source.PkgChart) {
	w.Helper()
	if err := w.Ledger.Save(w.Context(), c, nil); err != nil {
		w.Fatal(err)
	}
}

// A repository that asks for what it cannot have verified gives no charts, and
// a state that knows nothing of verification lets none pass.
func TestVerificationIsNotSkipped(t *testing.T) {
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	push(registry, "1.0.0", archived(t, "1.0.0"))
	w := newWorkshop(t)
	repo := w.pushed(registry)
	c := made("PkgRepository/src", "app", nil)
	w.run(c, source.Stored)
	before := *c.Artifact()
	repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: source.LocalReference{Name: "keys"}}
	w.fails(c, &before, source.Failed, "VerificationError", "nothing to verify")
	w.forget(c)
	w.fails(c, &before, source.Failed, "VerificationError", "nothing to verify")

	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: archived(t, "1.0.0")})
	repo = w.indexed(server)
	c = made("PkgRepository/src", "app", nil)
	c.Metadata.Name = "of-an-index"
	w.run(c, source.Stored)
	before = *c.Artifact()
	repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: source.LocalReference{Name: "keys"}}
	for range 2 {
		w.fails(c, &before, source.Failed, "VerificationError", "apps/keys")
		w.forget(c)
	}
}
