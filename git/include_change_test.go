package git_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// The revision of a plain directory is its own, and a change while it is read
// is noticed, also below what is included.
func TestIncludeInDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, own()); err != nil {
		t.Fatal(err)
	}
	p := filled(t)
	env := p.env()
	env.Local = map[string]string{atURL: dir}
	first, _, _ := fetch(t, including(atURL, "lib"), env)
	second, _, _ := fetch(t, including(atURL, "other"), env)
	if first.ID != second.ID {
		t.Errorf("revisions %s and %s", first.ID, second.ID)
	}
	// An included ignore file makes files of the directory part of the artifact.
	if err := os.WriteFile(filepath.Join(dir, "logo.png"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	third, data, _ := fetch(t, including(atURL, "strict"), env)
	if third.ID == first.ID || contents(t, data)["logo.png"] != "new" {
		t.Errorf("a changed picture left the revision %s", third.ID)
	}

	o := git.New(including(atURL, "lib"), env)
	rev, _, err := o.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Open(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := os.WriteFile(filepath.Join(dir, "base", "a.yaml"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteTo(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("changed: %v", err)
	}
}

// A changed include is a new artifact of the same revision, announced as such,
// and the status tells which artifacts it is made of.
func TestIncludeChange(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	p := newIncludedSources(t)
	ledger := source.Ledger{Dir: t.TempDir()}
	var events []string
	r := source.Reconciler{Store: p.store, Load: ledger.Load, Save: ledger.Save,
		Emit: func(e source.Event) { events = append(events, e.Reason) }}
	run := func(sources source.Sources) (*source.GitRepository, source.Result) {
		events = nil
		g := including(atURL, "lib:base:base")
		result, _ := r.Reconcile(t.Context(), g, git.New(g, source.Env{Sources: sources, Local: map[string]string{atURL: repo.Dir}}))
		return g, result
	}
	p.tree("lib", files("base/a.yaml", "one"))
	before, result := run(p)
	included := before.Status.IncludedArtifacts
	if result.Outcome != source.Stored || len(included) != 1 || included[0].Digest != p.objects[0].Artifact().Digest || len(before.Status.ObservedInclude) != 1 {
		t.Fatalf("first: %+v, status %+v", result, before.Status)
	}

	p.objects = nil
	p.tree("lib", files("base/a.yaml", "two"))
	broken := &slow{p, func() {}}
	store := p.store
	p.store, _ = artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	g, result := run(broken) // the artifact cannot be read
	p.store.Close()
	p.store = store
	if c := g.Common().Condition(source.ArtifactOutdatedCondition); result.Outcome != source.Waiting || c.Reason != "IncludeChange" || g.Artifact().Digest != before.Artifact().Digest {
		t.Errorf("broken: %+v, condition %+v", result, c)
	}

	after, result := run(p)
	if result.Outcome != source.Stored || !result.Changed || !slices.Contains(events, "NewArtifact") {
		t.Errorf("changed: %+v, events %v", result, events)
	}
	if want := "changed: spec.include[0] (GitRepository/default/lib: main@sha1:lib with digest " + included[0].Digest + " → "; !strings.HasPrefix(result.Why, want) {
		t.Errorf("changed because %q", result.Why)
	}
	if a, b := after.Artifact(), before.Artifact(); a.Revision != b.Revision || a.Digest == b.Digest || a.Path == b.Path {
		t.Errorf("artifact %+v, before %+v", a, b)
	}
	if _, result := run(p); result.Outcome != source.Unchanged {
		t.Errorf("unchanged: %+v", result)
	}
}

// A fetch that leaves out files finds out all the same what cannot be merged.
func TestIncludeInPartialFetch(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	p := filled(t)
	for name, serve := range servers(t, repo) {
		url, env := serve()
		env.Sources = p
		g := sparse(url, "base")
		g.Spec.Include = including(url, "lib:base:base", "strict").Spec.Include
		_, data, _ := fetch(t, g, env)
		want := "base/a.yaml=lib a\nbase/b.yaml=lib b\nbase/deep/x.yaml=own x\nbase/deep/y.yaml=lib y\nstrict/.sourceignore=*.tmp\nstrict/keep.yaml=k\nstrict/sub/.sourceignore=*.log"
		if got := lines(contents(t, data)); got != want {
			t.Errorf("%s: content\n%s\nwant\n%s", name, got, want)
		}
		for _, at := range []string{"base/a.yaml", "base/a.yaml/below"} { // a file that has not been fetched yet
			g.Spec.Include = including(url, "lib::"+at).Spec.Include
			var step *source.StepError
			if _, _, _, err := try(t.Context(), g, env); !errors.As(err, &step) || step.Reason != "CopyFailure" || !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "base/a.yaml") {
				t.Errorf("%s: at %s: %v", name, at, err)
			}
		}
	}
}
