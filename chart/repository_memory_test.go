package chart_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

// writeIndex writes an index of versions of charts, 100 of each.
func writeIndex(t *testing.T, dir string, versions int) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "index.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "apiVersion: v1\nentries:")
	for i := range versions {
		if i%100 == 0 {
			fmt.Fprintf(w, "  chart-%05d:\n", i/100)
		}
		fmt.Fprintf(w, "  - apiVersion: v2\n    created: \"2026-01-01T00:00:00Z\"\n    description: A chart for tests\n    digest: %064x\n    name: chart-%05d\n    urls:\n    - chart-%05d-1.0.%d.tgz\n    version: 1.0.%d\n",
			i, i/100, i/100, i%100, i%100)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// What Resolve holds in memory does not grow with the index.
func TestRepositoryMemoryIsConstant(t *testing.T) {
	held := func(versions int) (most int64) {
		dir := t.TempDir()
		writeIndex(t, dir, versions)
		obj := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: "https://charts.example"}}
		obj.Kind, obj.Metadata.Name = "PkgRepository", "charts"
		look := func(source.Progress) { most = max(most, measure.Live()) } // at each MiB
		env := source.Env{Local: map[string]string{obj.Spec.URL: dir}, Progress: look}
		origin := chart.NewRepository(obj, env)
		rev, _, err := origin.Resolve(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := origin.Open(t.Context(), rev)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		return most
	}
	small, large := held(10_000), held(80_000)
	if large-small > 4<<20 {
		t.Errorf("%d bytes are held for eight times the index, %d for one", large, small)
	}
}

// A date says which second it was, and the index may change twice in one.
func TestRepositoryChangedTwiceInOneSecond(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{NoETag: true, NoDate: true})
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	modified := now
	r.s.Break(serving(func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
		w.Header().Set("Date", now.Format(http.TimeFormat))
		http.ServeContent(w, req, "", modified, bytes.NewReader(r.s.Index()))
	}))
	obj := r.object(nil)
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	r.run(obj, source.Stored)
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	now = now.Add(time.Hour)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	r.asked(200, 200, 304)
}
