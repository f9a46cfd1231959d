package chart_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestRepositoryStoresWhatTheServerHas(t *testing.T) {
	for name, c := range map[string]testenv.ChartsConfig{"yaml": {}, "json": {JSON: true}, "gzip": {Gzip: true}, "gzip, json": {Gzip: true, JSON: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRepoRig(t, c)
			for i := range 40 {
				r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0." + string(rune('0'+i%10)) + string(rune('0'+i/10))})
			}
			obj := r.object(nil)
			r.run(obj, source.Stored)
			if got := r.bytes(obj.Artifact()); !bytes.Equal(got, r.s.Index()) {
				t.Errorf("stored %d bytes, which are not the %d of the server", len(got), len(r.s.Index()))
			}
			if r.s.Requests()[0].Header.Get("Accept-Encoding") != "gzip" {
				t.Error("compression was not asked for")
			}
			if compressed := r.s.ContentBytes() < int64(len(r.s.Index())); compressed != c.Gzip {
				t.Errorf("%d bytes came for %d", r.s.ContentBytes(), len(r.s.Index()))
			}
			if !strings.HasSuffix(obj.Status.URL, "/pkgrepository/default/charts/index.yaml") {
				t.Errorf("status.url %s", obj.Status.URL)
			}
		})
	}
}

func TestRepositoryUnchangedCostsOne304(t *testing.T) {
	for name, c := range map[string]testenv.ChartsConfig{
		"ETag and date": {}, "weak ETag": {Weak: true}, "ETag alone": {NoDate: true}, "date alone": {NoETag: true}, "gzip": {Gzip: true, Weak: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepoRig(t, c)
			r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
			r.run(r.object(nil), source.Stored)
			r.asked(200)
			for range 3 {
				r.run(r.object(nil), source.Unchanged)
				r.asked(304)
			}
			r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
			obj := r.object(nil)
			r.run(obj, source.Stored)
			r.asked(200)
			if !bytes.Equal(r.bytes(obj.Artifact()), r.s.Index()) {
				t.Error("the new artifact is not the new index")
			}
			r.run(r.object(nil), source.Unchanged)
			r.asked(304)
		})
	}
}

func TestRepositoryStampedAnewIsNoNewArtifact(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{Restamp: true})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	r.run(obj, source.Stored)
	first := r.JSON(obj.Artifact())
	for range 3 {
		r.run(obj, source.Unchanged)
		if now := r.JSON(obj.Artifact()); now != first {
			t.Fatalf("the artifact was %s, is %s", first, now)
		}
	}
	r.asked(200, 200, 200, 200)
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.1"})
	r.run(obj, source.Stored)
	r.bytes(obj.Artifact())
}

func TestRepositoryInAnotherOrderIsNoNewArtifact(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{})
	entry := func(name, version string) string {
		return "  - {name: " + name + ", version: " + version + ", urls: [" + name + ".tgz], digest: \"" + strings.Repeat("0", 64) + "\"}\n"
	}
	r.s.SetIndex([]byte("apiVersion: v1\nentries:\n  a:\n" + entry("a", "1.0.0") + entry("a", "2.0.0") + "  b:\n" + entry("b", "1.0.0")))
	obj := r.object(nil)
	r.run(obj, source.Stored)
	first := obj.Artifact().Revision
	r.s.SetIndex([]byte("entries:\n  b:\n" + entry("b", "1.0.0") + "  a:\n" + entry("a", "2.0.0") + entry("a", "1.0.0") + "apiVersion: v1\ngenerated: \"2026-01-01T00:00:00Z\"\n"))
	r.run(obj, source.Unchanged)
	r.run(obj, source.Unchanged)
	r.asked(200, 200, 304)
	if obj.Artifact().Revision != first {
		t.Errorf("revision was %s, is %s", first, obj.Artifact().Revision)
	}
}

// The server stamps its index anew at each request, so the bytes that are lost
// are nowhere any more.
func TestRepositoryLostArtifactOfBytesThatAreGone(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{Restamp: true})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	lost := *obj.Artifact()
	r.lose(&lost)
	r.run(obj, source.Stored)
	if obj.Artifact().Revision == lost.Revision {
		t.Error("another index goes by the revision of the one that is lost")
	}
	r.bytes(obj.Artifact())
	r.run(obj, source.Unchanged)
}

func TestRepositoryLostArtifactIsFetched(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	r.run(obj, source.Stored)
	lost := *obj.Artifact()
	r.lose(&lost)
	r.run(obj, source.Stored)
	r.asked(200, 304, 200)
	if obj.Artifact().Revision != lost.Revision {
		t.Errorf("revision was %s, is %s", lost.Revision, obj.Artifact().Revision)
	}
	r.bytes(obj.Artifact())
}

// An index that changes between Resolve and Open is another revision.
func TestRepositoryMovesOn(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	rev, state, err := r.origin(obj).Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	later := r.origin(obj)
	if _, err := later.Open(t.Context(), rev); !errors.Is(err, source.ErrMoved) {
		t.Fatalf("open: %v", err)
	}
	now, _, err := later.Resolve(t.Context(), state)
	if err != nil || now.ID == rev.ID {
		t.Fatalf("resolved %s, %v", now.ID, err)
	}
	c, err := later.Open(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, f := range r.spools[:1] { // nobody opened what the first origin resolved
		f.Close()
	}
}

func TestRepositoryTellsOfEntriesThatNobodyCanUse(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	for _, version := range []string{"one", "two", "3.x", "four", "five", "six", "../7"} {
		r.s.Put(testenv.ChartVersion{Name: "bad", Version: version, File: "bad.tgz"})
	}
	obj := r.object(nil)
	result := r.run(obj, source.Stored)
	notes := strings.Join(result.Report.Notes, "\n")
	for _, want := range []string{"7 entries of the index cannot be used", `chart "bad" version "`, "(line ", "and 2 more"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes %q lack %q", notes, want)
		}
	}
	if !bytes.Equal(r.bytes(obj.Artifact()), r.s.Index()) {
		t.Error("the artifact is not the index")
	}
}

func TestRepositoryOfTypeOCIHasNoArtifact(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	r.run(obj, source.Stored)
	index := obj.Spec.URL
	obj.Spec.Type, obj.Spec.URL = source.RepositoryOCI, "oci://"+r.s.Host+"/charts"
	r.s.Reset()
	for range 2 {
		result := r.run(obj, source.Unchanged)
		if obj.Artifact() != nil || obj.Status.URL != "" || len(obj.Status.Conditions) != 0 || result.Why == "" {
			t.Errorf("status %s, why %q", r.JSON(obj.Status), result.Why)
		}
	}
	r.asked()
	obj.Spec.URL = index
	r.refused(obj, "URLInvalid", "must begin with oci://")
	if _, err := os.Stat(filepath.Join(r.Dir, "pkgrepository", "default", "charts")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the store still has something of the object: %v", err)
	}
	obj.Spec.Type = source.RepositoryIndex
	r.run(obj, source.Stored)
	r.bytes(obj.Artifact())
}

func TestRepositoryFromADirectory(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	dir, obj := t.TempDir(), r.object(nil)
	r.local = map[string]string{obj.Spec.URL: dir}
	r.refused(obj, "Failed", "run helm repo index", "index.yaml")
	if err := os.WriteFile(filepath.Join(dir, "index.yaml"), r.s.Index(), 0o644); err != nil {
		t.Fatal(err)
	}
	r.run(obj, source.Stored)
	if !bytes.Equal(r.bytes(obj.Artifact()), r.s.Index()) {
		t.Error("the artifact is not the file")
	}
	r.run(obj, source.Unchanged)
	if err := os.WriteFile(filepath.Join(dir, "index.yaml"), []byte("[]"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.refused(obj, "IndexationFailed", dir)
	r.asked()
}

func TestRepositoryMessages(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{})
	text := append(r.s.Index(), '#')
	r.s.SetIndex(append(text, bytes.Repeat([]byte("x"), 30_880-len(text))...))
	obj := r.object(func(s *source.PkgRepositorySpec) { s.URL += "//?token=" + repoCanary })
	r.run(obj, source.Stored)
	i := slices.IndexFunc(r.Events, func(e source.Event) bool { return e.Reason == "NewArtifact" })
	if i < 0 {
		t.Fatalf("events %+v", r.Events)
	}
	if got, want := r.Events[i].Message, "stored fetched index of size 30.88kB from '"+r.s.URL()+"/'"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if got, want := obj.Status.Condition("Ready").Message, "stored artifact: revision '"+obj.Artifact().Revision+"'"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if got := r.s.Requests()[0].Path; !strings.HasPrefix(got, "/charts/index.yaml?token=") {
		t.Errorf("asked for %s", got)
	}
}

func TestRepositoryWaitsForBusyServers(t *testing.T) {
	busy := func(after string, times int) *testenv.Defect {
		return &testenv.Defect{Status: 429, Header: http.Header{"Retry-After": {after}}, Times: times}
	}
	r := newRepoRig(t, testenv.ChartsConfig{Defect: busy("0", 2)})
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.asked(429, 429, 200)
	r.s.Break(busy("600", 0))
	if result := r.refused(obj, "Failed", "429 Too Many Requests", "try again in 10m0s"); result.After < 10*time.Minute {
		t.Errorf("next run after %v", result.After)
	}
	r.asked(429)
}

// Whatever follows the index, all of what the server has is what is stored.
func TestRepositoryStoresWhatFollowsTheIndex(t *testing.T) {
	tail := strings.Repeat("# more\n", 40_000)
	for name, text := range map[string]string{"comments": tail, "end of the document": "...\n" + tail} {
		t.Run(name, func(t *testing.T) {
			r := newRepoRig(t, testenv.ChartsConfig{})
			r.s.SetIndex([]byte("apiVersion: v1\nentries: {}\n" + text))
			obj := r.object(nil)
			r.run(obj, source.Stored)
			if got := r.bytes(obj.Artifact()); !bytes.Equal(got, r.s.Index()) {
				t.Errorf("stored %d of %d bytes", len(got), len(r.s.Index()))
			}
		})
	}
}

func TestRepositoryReportsProgress(t *testing.T) {
	r := newRepoRig(t, testenv.ChartsConfig{})
	r.s.SetIndex([]byte("apiVersion: v1\nentries: {}\n" + strings.Repeat("# more\n", 1<<20)))
	var done []int64
	env := source.Env{Limits: r.limits, Progress: func(p source.Progress) {
		if p.Object != "pkgrepository/default/charts" || p.Total != int64(len(r.s.Index())) || p.Unit != "bytes" {
			t.Errorf("progress %+v", p)
		}
		done = append(done, p.Done)
	}}
	obj := r.object(nil)
	r.Stored(obj, chart.NewRepository(obj, env))
	if len(done) < 3 || len(done) > 10 || !slices.IsSorted(done) {
		t.Errorf("progress %v", done)
	}
}
