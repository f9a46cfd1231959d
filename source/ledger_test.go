package source_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

// settled returns an object with a value in every part of its status.
func settled() *source.GitRepository {
	g := repository()
	g.Metadata.Generation = 3
	g.Spec.Ignore = new("*.md\n")
	g.Status.ObservedGeneration = 3
	g.Status.Conditions = []source.Condition{{
		Type: "Ready", Status: "True", ObservedGeneration: 3, Reason: "Succeeded", Message: "yes: \"no\"\n",
		LastTransitionTime: time.Date(2026, 7, 22, 10, 0, 0, 0, time.UTC),
	}}
	g.Status.Artifact = &artifact.Artifact{Path: "p", URL: "u", Revision: revision1, LastUpdateTime: time.Date(2026, 7, 22, 10, 0, 0, 0, time.UTC)}
	g.Status.LastHandledReconcileAt = "2026-07-22T10:00:00Z"
	g.Status.ObservedIgnore = new("*.md\n")
	return g
}

func TestLedgerKeeps(t *testing.T) {
	l := &source.Ledger{Dir: filepath.Join(t.TempDir(), "new")}
	want := settled()
	must(t, l.Save(t.Context(), want, source.State("\x00state\xff")))
	got := repository()
	got.Spec.Ignore = new("*.md\n")
	got.Status.ObservedRecurseSubmodules = true // from a cluster, not from this ledger
	state, err := l.Load(t.Context(), got)
	if err != nil || string(state) != "\x00state\xff" {
		t.Errorf("state %q, error %v", state, err)
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if !bytes.Equal(a, b) {
		t.Errorf("saved %s\nloaded %s", a, b)
	}
	set, err := l.List()
	if err != nil || len(set.Objects) != 1 {
		t.Fatalf("list of %d objects, error %v", len(set.Objects), err)
	}
	if c, _ := json.Marshal(set.Objects[0].Common()); !bytes.Contains(a, c[1:len(c)-1]) {
		t.Errorf("listed status %s", c)
	}
	modes := make(map[string]os.FileMode)
	err = filepath.WalkDir(l.Dir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(l.Dir, name)
		modes[filepath.ToSlash(rel)] = info.Mode().Perm()
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if len(modes) != 5 || filepath.Separator == '/' && (modes["gitrepository/apps"] != 0o700 || modes["gitrepository/apps/sample.yaml"] != 0o600 || modes["gitrepository/apps/sample.state"] != 0o600) {
		t.Errorf("files %v", modes)
	}
}

func TestLedgerGeneration(t *testing.T) {
	l := &source.Ledger{Dir: t.TempDir()}
	load := func(edit func(*source.GitRepository)) int64 {
		t.Helper()
		g := repository()
		edit(g)
		must(t, second(l.Load(t.Context(), g)))
		must(t, l.Save(t.Context(), g, nil))
		return g.Metadata.Generation
	}
	var got []int64
	for _, edit := range []func(*source.GitRepository){
		func(*source.GitRepository) {},
		func(g *source.GitRepository) { g.Metadata.Labels = map[string]string{"a": "b"} },
		func(g *source.GitRepository) { g.Spec.Provider = "generic" }, // the default
		func(g *source.GitRepository) { g.Spec.Interval *= 2 },
		func(g *source.GitRepository) { g.Spec.Interval *= 2; g.Metadata.Generation = 9 },
		func(g *source.GitRepository) { g.Spec.Interval *= 2 },
		func(*source.GitRepository) {},
	} {
		got = append(got, load(edit))
	}
	if want := []int64{1, 1, 1, 2, 9, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("generations %v, want %v", got, want)
	}
}

func TestLedgerDamage(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":        "status: [",
		"wrong type":     "status: {conditions: 7}",
		"wrong time":     "status: {artifact: {lastUpdateTime: yesterday}}",
		"larger than is": "# " + strings.Repeat("x", 16<<20),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "larger than is" {
				measure.WithoutRace(t)
			}
			l := &source.Ledger{Dir: t.TempDir()}
			must(t, l.Save(t.Context(), settled(), source.State("state")))
			file := filepath.Join(l.Dir, "gitrepository", "apps", "sample.yaml")
			must(t, os.WriteFile(file, []byte(text), 0o600))
			g := settled()
			g.Metadata.Generation = 0
			state, err := l.Load(t.Context(), g)
			if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "delete") {
				t.Errorf("error %v", err)
			}
			if state != nil || g.Artifact() != nil || g.Status.ObservedIgnore != nil || g.Metadata.Generation != 1 {
				t.Errorf("state %q, status %+v, generation %d", state, g.Status, g.Metadata.Generation)
			}
			if err := l.Save(t.Context(), settled(), nil); err != nil {
				t.Errorf("not mended: %v", err)
			}
			if _, err := l.Load(t.Context(), g); err != nil || g.Artifact() == nil {
				t.Errorf("not mended: %v", err)
			}
		})
	}
}

func TestLedgerStaysInside(t *testing.T) {
	top := t.TempDir()
	l := &source.Ledger{Dir: filepath.Join(top, "ledger")}
	for _, name := range []string{"", ".", "..", "../up", "a/b", `a\b`, "a\x00b", ".hidden", "c:d"} {
		g := settled()
		g.Metadata.Name = name
		testenv.ErrorIs(t, l.Save(t.Context(), g, nil), source.ErrInvalid, "save as %q", name)
		_, err := l.Load(t.Context(), g)
		testenv.ErrorIs(t, err, source.ErrInvalid, "load as %q", name)
		if address, err := source.Address(g); err == nil {
			t.Errorf("%q has the address %s", name, address)
		}
	}
	if filepath.Separator != '/' {
		return
	}
	if err := errors.Join(os.MkdirAll(l.Dir, 0o700), os.Mkdir(filepath.Join(top, "outside"), 0o700),
		os.Symlink("../outside", filepath.Join(l.Dir, "gitrepository"))); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(t.Context(), settled(), nil); err == nil {
		t.Error("followed a link out of the directory")
	}
	linked := &source.Ledger{Dir: filepath.Join(l.Dir, "status")} // the directory is a link
	must(t, os.Symlink("../outside", linked.Dir))
	testenv.ErrorSays(t, linked.Save(t.Context(), settled(), nil), linked.Dir, "save through a link out of its place")
	if _, err := linked.Load(t.Context(), settled()); err == nil {
		t.Error("loaded through a link out of its place")
	}
	if _, err := linked.List(); err == nil {
		t.Error("listed through a link out of its place")
	}
	if files, _ := os.ReadDir(filepath.Join(top, "outside")); len(files) != 0 {
		t.Errorf("wrote %v outside", files)
	}
}

// A writer that died leaves the document unchanged, and no file that List finds.
func TestLedgerSurvivesCrash(t *testing.T) {
	l := &source.Ledger{Dir: t.TempDir()}
	must(t, l.Save(t.Context(), settled(), nil))
	torn := filepath.Join(l.Dir, "gitrepository", "apps", ".sample.yaml")
	must(t, os.WriteFile(torn, []byte("status: ["), 0o600))
	g := repository()
	if _, err := l.Load(t.Context(), g); err != nil || g.Artifact() == nil {
		t.Errorf("load: %v", err)
	}
	if set, err := l.List(); err != nil || len(set.Objects) != 1 {
		t.Errorf("list: %v, %v", set.Objects, err)
	}
	if err := l.Save(t.Context(), g, nil); err != nil {
		t.Error(err)
	}
	_, err := os.Stat(torn)
	testenv.ErrorIs(t, err, os.ErrNotExist, "torn file")
}

func TestLedgerErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	l := &source.Ledger{Dir: file}
	if _, err := l.Load(t.Context(), settled()); err == nil {
		t.Error("load from a file as directory")
	}
	if err := l.Save(t.Context(), settled(), nil); err == nil {
		t.Error("save in a file as directory")
	}
	if _, err := l.List(); err == nil {
		t.Error("list of a file as directory")
	}
	must(t, os.WriteFile(filepath.Join(filepath.Dir(file), "gitrepository"), nil, 0o600))
	_, err := (&source.Ledger{Dir: filepath.Dir(file)}).References()
	testenv.ErrorSays(t, err, "gitrepository is not a directory", "references with a file where a directory belongs")
	none := &source.Ledger{Dir: filepath.Join(t.TempDir(), "none")}
	if set, err := none.List(); err != nil || len(set.Objects) != 0 {
		t.Errorf("list of nothing: %v, %v", set.Objects, err)
	}
	blocked := &source.Ledger{Dir: t.TempDir()}
	for _, name := range []string{"sample.yaml", ".sample.state", "other.yaml"} {
		must(t, os.MkdirAll(filepath.Join(blocked.Dir, "gitrepository", "apps", name, "x"), 0o700))
	}
	if err := blocked.Save(t.Context(), settled(), nil); err == nil {
		t.Error("saved over a directory")
	}
	if _, err := blocked.Load(t.Context(), settled()); err == nil {
		t.Error("loaded a directory")
	}
	other := settled()
	other.Metadata.Name = "another"
	if err := blocked.Save(t.Context(), other, nil); err != nil {
		t.Error(err)
	}
	must(t, os.WriteFile(filepath.Join(blocked.Dir, "gitrepository", "bad.yaml"), []byte("{"), 0o600))
	if set, err := blocked.List(); err == nil || !strings.Contains(err.Error(), "bad.yaml") || len(set.Objects) != 1 {
		t.Errorf("list: %v, %v", set.Objects, err)
	}
}

// documentOf returns the file of the sample in a ledger.
func documentOf(l *source.Ledger) string {
	return filepath.Join(l.Dir, "gitrepository", "apps", "sample.yaml")
}

// Save does not write an unchanged document again.
func TestLedgerLeavesFilesAlone(t *testing.T) {
	l := &source.Ledger{Dir: t.TempDir()}
	save := func(g *source.GitRepository, state source.State) fs.FileInfo {
		t.Helper()
		must(t, l.Save(t.Context(), g, state))
		info, err := os.Stat(documentOf(l))
		must(t, err)
		return info
	}
	first := save(settled(), source.State("a"))
	for _, state := range []source.State{source.State("a"), source.State("b"), nil, source.State(strings.Repeat("long", 1000)), source.State("a")} {
		if !os.SameFile(first, save(settled(), state)) {
			t.Errorf("the document was written again for state %.9q", state)
		}
		g := settled()
		if got, err := l.Load(t.Context(), g); err != nil || string(got) != string(state) {
			t.Errorf("state %.9q, %v", got, err)
		}
	}
	changed := settled()
	changed.Metadata.Labels = map[string]string{"a": "b"}
	if os.SameFile(first, save(changed, nil)) {
		t.Error("a label is not saved")
	}
	if set, err := l.List(); err != nil || set.Objects[0].Head().Metadata.Labels["a"] != "b" {
		t.Errorf("%v", err)
	}
}
