package source_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestSuspensions(t *testing.T) {
	l := &source.Ledger{Dir: filepath.Join(t.TempDir(), "new")}
	sample := source.ReferenceTo(repository())
	if s, err := l.Suspension(sample); s != nil || err != nil {
		t.Fatalf("suspension %v, %v", s, err)
	}
	testenv.ErrorIs(t, l.Resume(sample), fs.ErrNotExist, "resume")
	want := source.Suspension{By: "alice", Reason: "a: \"freeze\"\n\x1b[2J", Since: time.Date(2026, 7, 22, 10, 0, 0, 0, time.UTC)}
	must(t, errors.Join(l.Suspend(sample, source.Suspension{By: "bob"}), l.Suspend(sample, want)))
	other := &source.Ledger{Dir: l.Dir} // as after a restart
	if s, err := other.Suspension(sample); err != nil || s == nil || *s != want {
		t.Errorf("suspension %+v, %v", s, err)
	}
	text, err := os.ReadFile(filepath.Join(l.Dir, "gitrepository", "apps", "sample.hold"))
	if err != nil || !strings.HasPrefix(string(text), "by: alice\nreason: ") || strings.Contains(string(text), "\x1b") {
		t.Errorf("file %q, %v", text, err)
	}
	if refs, err := l.References(); err != nil || len(refs) != 0 {
		t.Errorf("saved objects %v, %v", refs, err)
	}
	must(t, l.Resume(sample))
	if s, err := other.Suspension(sample); s != nil || err != nil {
		t.Errorf("suspension %v, %v", s, err)
	}
	_, err = os.Stat(filepath.Join(l.Dir, "gitrepository"))
	testenv.ErrorIs(t, err, fs.ErrNotExist, "an empty directory")
}

// A suspension that cannot be read stays in effect, because a user ordered it.
func TestSuspensionDamaged(t *testing.T) {
	sample := source.ReferenceTo(repository())
	for text, readable := range map[string]bool{
		"": true, "{}": true, "reason: only that\n": true,
		"by: [": false, "since: yesterday": false, "[]": false, strings.Repeat("#", 1<<20+1): false,
	} {
		l := &source.Ledger{Dir: t.TempDir()}
		file := filepath.Join(l.Dir, "gitrepository", "apps", "sample.hold")
		must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)))
		s, err := l.Suspension(sample)
		if s == nil || (err == nil) != readable || err != nil && !strings.Contains(err.Error(), "sample.hold") || readable && s.Since.IsZero() {
			t.Errorf("%.20q: %+v, %v", text, s, err)
		}
		if err := l.Resume(sample); err != nil {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	for _, name := range []string{"", ".", "..", "../up", "a/b", ".hidden"} {
		l := &source.Ledger{Dir: t.TempDir()}
		ref := source.Reference{Kind: "GitRepository", Namespace: "apps", Name: name}
		testenv.ErrorIs(t, l.Suspend(ref, source.Suspension{}), source.ErrInvalid, "suspend %q", name)
		testenv.ErrorIs(t, l.Resume(ref), source.ErrInvalid, "resume %q", name)
	}
}

func TestLedgerRemoves(t *testing.T) {
	l := &source.Ledger{Dir: t.TempDir()}
	sample, other := settled(), settled()
	other.Metadata.Name = "other.yaml" // its files look like those of another object
	since := time.Date(2026, 7, 22, 10, 0, 0, 0, time.UTC)
	ref := source.ReferenceTo(sample)
	torn := filepath.Join(l.Dir, "gitrepository", "apps", ".sample.yaml")
	if err := errors.Join(l.Save(t.Context(), sample, source.State("state")), l.Save(t.Context(), other, nil),
		l.Suspend(ref, source.Suspension{}), l.SetRemoved(ref, since), os.WriteFile(torn, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if refs, err := l.References(); err != nil || !slices.Equal(refs, []source.Reference{source.ReferenceTo(other), ref}) {
		t.Errorf("references %v, %v", refs, err)
	}
	if all, err := l.Removed(); err != nil || len(all) != 1 || !all[ref].Equal(since) {
		t.Errorf("removed %v, %v", all, err)
	}
	if obj, err := l.Object(ref); err != nil || obj.Artifact() == nil || obj.Head().Metadata.Generation != 3 {
		t.Errorf("object %v, %v", obj, err)
	}
	if err := l.SetRemoved(ref, time.Time{}); err != nil {
		t.Error(err)
	}
	if all, err := l.Removed(); err != nil || len(all) != 0 {
		t.Errorf("removed %v, %v", all, err)
	}
	must(t, errors.Join(l.SetRemoved(ref, since), l.Remove(ref), l.Remove(ref)))
	if files, err := os.ReadDir(filepath.Dir(torn)); err != nil || len(files) != 1 || files[0].Name() != "other.yaml.yaml" {
		t.Errorf("left: %v, %v", files, err)
	}
	_, err := l.Object(ref)
	testenv.ErrorIs(t, err, fs.ErrNotExist, "object")
	g := repository()
	if state, err := l.Load(t.Context(), g); err != nil || state != nil || g.Artifact() != nil {
		t.Errorf("loaded %q %v, %v", state, g.Artifact(), err)
	}
	must(t, l.Remove(source.ReferenceTo(other)))
	if files, _ := os.ReadDir(l.Dir); len(files) != 0 {
		t.Errorf("left: %v", files)
	}
	if err := (&source.Ledger{Dir: filepath.Join(l.Dir, "none")}).Remove(ref); err != nil {
		t.Errorf("remove of nothing: %v", err)
	}
}
