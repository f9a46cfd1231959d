package source_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
)

// documentOf returns the file of the sample in a ledger.
func documentOf(l *source.Ledger) string {
	return filepath.Join(l.Dir, "gitrepository", "apps", "sample.yaml")
}

// A Ledger reads what another process wrote.
func TestLedgerSeesOtherWriters(t *testing.T) {
	for name, write := range map[string]func(*testing.T, *source.Ledger){
		"document replaced": func(t *testing.T, l *source.Ledger) {
			g := settled()
			g.Status.Artifact.Revision = strings.ToUpper(revision1)
			must(t, (&source.Ledger{Dir: l.Dir}).Save(t.Context(), g, source.State("other")))
		},
		"edited in place, of the same size": func(t *testing.T, l *source.Ledger) {
			text, err := os.ReadFile(documentOf(l))
			must(t, err)
			text = []byte(strings.Replace(string(text), revision1, strings.ToUpper(revision1), 1))
			state := strings.TrimSuffix(documentOf(l), ".yaml") + ".state"
			must(t, errors.Join(os.WriteFile(documentOf(l), text, 0o600), os.WriteFile(state, []byte("other"), 0o600)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &source.Ledger{Dir: t.TempDir()}
			for range 20 {
				must(t, l.Save(t.Context(), settled(), source.State("state")))
				g := settled()
				if _, err := l.Load(t.Context(), g); err != nil || g.Status.Artifact.Revision != revision1 {
					t.Fatalf("loaded %v, %v", g.Status.Artifact, err)
				}
				write(t, l)
				state, err := l.Load(t.Context(), g)
				if err != nil || string(state) != "other" || g.Status.Artifact.Revision != strings.ToUpper(revision1) {
					t.Fatalf("after another writer: %v, state %q, %v", g.Status.Artifact, state, err)
				}
			}
		})
	}
	t.Run("removed", func(t *testing.T) {
		l := &source.Ledger{Dir: t.TempDir()}
		must(t, errors.Join(l.Save(t.Context(), settled(), nil), os.Remove(documentOf(l))))
		g := settled()
		if _, err := l.Load(t.Context(), g); err != nil || g.Artifact() != nil {
			t.Errorf("loaded %v, %v", g.Artifact(), err)
		}
		must(t, l.Save(t.Context(), settled(), nil))
		if _, err := os.Stat(documentOf(l)); err != nil {
			t.Errorf("not saved again: %v", err)
		}
	})
}

// The document of an object that rests is not written again.
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
