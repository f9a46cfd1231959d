package chart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// chartYAML returns the text of a Chart.yaml: dependencies are NAME VERSION REPOSITORY and more fields.
func chartYAML(name, version string, dependencies ...string) string {
	text := fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version)
	if len(dependencies) > 0 {
		text += "dependencies:\n"
	}
	for _, d := range dependencies {
		parts := strings.Fields(d)
		if len(parts) == 2 {
			parts = append(parts, "")
		}
		text += fmt.Sprintf("- name: %s\n  version: %q\n  repository: %q\n", parts[0], parts[1], parts[2])
		for _, more := range parts[3:] {
			key, value, _ := strings.Cut(more, "=")
			text += fmt.Sprintf("  %s: %s\n", key, value)
		}
	}
	return text
}

// newSupply returns the supply of an object in namespace default, beside the
// objects and Secrets in documents.
func newSupply(t *testing.T, documents string) *opener {
	t.Helper()
	var set source.Set
	if err := set.Decode("documents.yaml", strings.NewReader(documents)); err != nil {
		t.Fatal(err)
	}
	env := source.Env{Secrets: &set, Sources: &source.Inventory{Objects: set.Objects}}
	return &opener{env: env, vault: &transport.Vault{Namespace: "default", From: env.Secrets}}
}

// completed completes the chart in a directory of tree and returns the charts
// that it holds then, one a line: PATH NAME VERSION.
func completed(t *testing.T, s *opener, tree fs.FS, dir string) (string, error) {
	t.Helper()
	return completedWithin(t.Context(), t, s, tree, dir)
}

func completedWithin(ctx context.Context, t *testing.T, s *opener, tree fs.FS, dir string) (string, error) {
	t.Helper()
	c, err := bundle.Open(tree, dir, artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	charts, end, err := s.complete(ctx, tree, dir, c)
	if err != nil {
		if charts != nil || end != nil {
			t.Errorf("charts and an end come with error %v", err)
		}
		demandBuildError(t, err)
		return "", err
	}
	whole, err := c.With(bundle.Edit{Charts: charts})
	if err != nil {
		t.Fatal(err)
	}
	held := holds(t, whole)
	if err := end(); err != nil {
		t.Errorf("end: %v", err)
	}
	return held, nil
}

// demandBuildError demands that err has the step and the reason of failures of
// dependencies, which are tried again.
func demandBuildError(t *testing.T, err error) {
	t.Helper()
	var step *source.StepError
	if !errors.As(err, &step) || step.Step != source.StepBuild || step.Reason != "DependencyBuildError" || errors.Is(err, source.ErrInvalid) {
		t.Errorf("%v is no DependencyBuildError that is tried again: %#v", err, step)
	}
}

// holds lists the charts in the charts/ of a tree.
func holds(t *testing.T, tree fs.FS) string {
	t.Helper()
	var list strings.Builder
	err := fs.WalkDir(tree, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || path.Base(p) != "Chart.yaml" || p == "Chart.yaml" {
			return err
		}
		c, err := bundle.Open(tree, path.Dir(p), artifact.Limits{})
		if err == nil {
			fmt.Fprintln(&list, path.Dir(p), c.Metadata.Name, c.Metadata.Version)
		}
		return err
	})
	if err != nil {
		t.Errorf("what is packed: %v", err)
	}
	return list.String()
}

// demandFailure demands an error that says all of says.
func demandFailure(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

// spools counts the spools that are in use.
type spools struct {
	t     *testing.T
	mu    sync.Mutex
	files []*os.File
}

// create creates one: a file without a name.
func (s *spools) create() (*os.File, error) {
	f, err := os.CreateTemp(s.t.TempDir(), "")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = append(s.files, f)
	return f, os.Remove(f.Name())
}

// demandClosed demands that none is open.
func (s *spools) demandClosed() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			s.t.Errorf("a spool is still open: %v", err)
		}
	}
}
