package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestSaveFails(t *testing.T) {
	for name, next := range map[string]*scriptedOrigin{"after success": originAt(revision2), "after failure": failingOrigin(io.EOF)} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t)
			before := repository()
			r.run(before, originAt(revision1), source.Stored)
			r.Save = func(context.Context, source.Object, source.State) error { return io.ErrShortWrite }
			g := repository()
			g.Spec.Ignore = new("*.md")
			err := r.run(g, next, source.Failed)
			if !errors.Is(err, io.ErrShortWrite) || next.resolve != nil && !strings.Contains(err.Error(), "EOF") {
				t.Errorf("error %v", err)
			}
			if got, want := fmt.Sprint(g.Status, *g.Artifact()), fmt.Sprint(before.Status, *before.Artifact()); got != want && g.Status.ObservedIgnore != nil {
				t.Errorf("status claims %s; saved is %s", got, want)
			}
			if err := r.Store.Check(*g.Artifact()); err != nil || r.reasons() != "error/PatchOperationFailed" {
				t.Errorf("artifact %v, events %s", err, r.reasons())
			}
			r.Save = r.ledger.Save
			r.run(repository(), originAt(revision2), source.Stored)
		})
	}
}

func TestStorageFailures(t *testing.T) {
	block := func(name string) func(*fixture) {
		return func(r *fixture) {
			name := filepath.Join(r.dir, filepath.FromSlash(name))
			must(r.t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0o600)))
		}
	}
	rows := []struct {
		name    string
		edit    func(*source.GitRepository)
		block   func(*fixture)
		outcome source.Outcome
		reason  string
		saved   bool
	}{
		{"lock", nil, block(".store/object/gitrepository"), source.Failed, "AcquireLockFailed", false},
		{"put", nil, block("gitrepository/apps"), source.Failed, "ArchiveOperationFailed", true},
		{"point", func(g *source.GitRepository) { g.APIVersion = "source.headgate.dev/v1beta2" },
			block(".store/object/gitrepository/apps/sample/latest.tar.gz/x"), source.Failed, "SymlinkUpdateFailed", true},
		{"name that no store takes", func(g *source.GitRepository) { g.Metadata.Name = "con" }, nil, source.Stalled, "InvalidPath", false},
		{"name with a slash", func(g *source.GitRepository) { g.Metadata.Name = "../up" }, nil, source.Stalled, "InvalidPath", false},
		{"namespace of dots", func(g *source.GitRepository) { g.Metadata.Namespace = ".." }, nil, source.Stalled, "InvalidPath", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newFixture(t)
			saved := false
			r.Save = func(context.Context, source.Object, source.State) error { saved = true; return nil }
			g := repository()
			if row.edit != nil {
				row.edit(g)
			}
			if row.block != nil {
				row.block(r)
			}
			err := r.run(g, originAt(revision1), row.outcome)
			c := g.Common().Condition(source.StorageOperationFailedCondition)
			if err == nil || c.Status != "True" || c.Reason != row.reason || g.Artifact() != nil || saved != row.saved {
				t.Errorf("error %v, condition %+v, artifact %+v, saved %v", err, c, g.Artifact(), saved)
			}
			testenv.Equal(t, r.reasons(), "error/"+row.reason, "events")
		})
	}
}

// A run that cannot acquire the lock keeps the artifact of the status.
func TestLockFailureKeepsArtifact(t *testing.T) {
	r := newFixture(t)
	g := repository()
	r.run(g, originAt(revision1), source.Stored)
	locks := filepath.Join(r.dir, ".store", "object", "gitrepository")
	must(t, errors.Join(os.RemoveAll(locks), os.WriteFile(locks, nil, 0o600)))
	again := repository()
	r.run(again, originAt(revision2), source.Failed)
	if again.Artifact() == nil || again.Artifact().Path != g.Artifact().Path {
		t.Errorf("artifact %+v", again.Artifact())
	}
}

func TestPanics(t *testing.T) {
	boom := func(context.Context) error { panic("remote data") }
	rows := map[string]*scriptedOrigin{
		"FetchFailed/resolve":            {resolve: boom},
		"FetchFailed/open":               {rev: originAt(revision1).rev, open: boom},
		"SourceVerified/verify":          {rev: originAt(revision1).rev, verify: func() (source.Verification, error) { panic("remote data") }},
		"StorageOperationFailed/writing": {rev: originAt(revision1).rev, write: func(io.Writer) (source.Report, error) { panic("remote data") }},
	}
	for name, from := range rows {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t)
			g := repository()
			err := r.run(g, from, source.Failed)
			var caught *source.PanicError
			if !errors.As(err, &caught) || caught.Value != "remote data" || !strings.Contains(string(caught.Stack), "reconcile_test.go") {
				t.Errorf("error %v", err)
			}
			condition, _, _ := strings.Cut(name, "/")
			if c := g.Common().Condition(condition); !strings.Contains(c.Message, "remote data") {
				t.Errorf("conditions %s", conditions(g))
			}
			temp, _ := filepath.Glob(filepath.Join(r.dir, ".store/tmp/*"))
			testenv.Equal(t, len(temp), 0, "files left behind")
			r.run(g, originAt(revision1), source.Stored) // the lock was released
		})
	}
}
