package artifact_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// TestExtractRefusesChanges changes an extracted directory in every way, and also in ways that keep
// its content.
func TestExtractRefusesChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string) error
		why    string // "" if it is replaced
	}{
		"nothing": {func(string) error { return nil }, ""},
		"time":    {func(dir string) error { return os.Chtimes(filepath.Join(dir, "a.txt"), time.Time{}, time.Unix(1, 0)) }, ""},
		"copied": {func(dir string) error {
			if err := os.Rename(dir, dir+".moved"); err != nil {
				return err
			}
			return os.CopyFS(dir, os.DirFS(dir+".moved"))
		}, ""},
		"emptied": {func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) }, ""},
		"size":    {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a.txt"), []byte("mine"), 0o644) }, `"a.txt" in it was changed`},
		"content": {func(dir string) error {
			name := filepath.Join(dir, "a.txt")
			return errors.Join(os.WriteFile(name, []byte("HELLO"), 0o644), os.Chtimes(name, time.Time{}, time.Unix(1, 0)))
		}, `"a.txt" in it was changed`},
		"added":     {func(dir string) error { return os.WriteFile(filepath.Join(dir, "bin", "b"), nil, 0o644) }, `"bin/b" was added`},
		"directory": {func(dir string) error { return os.Mkdir(filepath.Join(dir, "bin", "b"), 0o755) }, `"bin/b" was added`},
		"removed":   {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "bin")) }, `"bin" in it was removed`},
		"type": {func(dir string) error {
			name := filepath.Join(dir, "a.txt")
			return errors.Join(os.Remove(name), os.Mkdir(name, 0o755))
		}, `"a.txt" in it was changed`},
		"mode": {func(dir string) error {
			if runtime.GOOS == "windows" { // Windows has no such modes
				return os.Remove(filepath.Join(dir, "a.txt"))
			}
			return os.Chmod(filepath.Join(dir, "a.txt"), 0o755)
		}, `"a.txt" in it was`},
		"record": {func(dir string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(dir), ".out.headgate", "record"), []byte("{"), 0o600)
		}, "cannot be read"},
		"no record": {func(dir string) error { return os.RemoveAll(filepath.Join(filepath.Dir(dir), ".out.headgate")) }, "not written by an extraction"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			extracted(t, golden(), dir)
			must(t, c.change(dir))
			before := entriesOf(t, os.DirFS(dir))
			err := artifact.Extract(t.Context(), fstest.MapFS{"new": {}}, dir)
			if c.why == "" {
				if got := entriesOf(t, os.DirFS(dir)); err != nil || got != "new=" {
					t.Errorf("holds %q, %v", got, err)
				}
				return
			}
			var refused *artifact.RefusedError
			if !errors.As(err, &refused) || refused.Never || !strings.Contains(err.Error(), c.why) {
				t.Errorf("error %v, want a RefusedError with %q", err, c.why)
			}
			testenv.Equal(t, entriesOf(t, os.DirFS(dir)), before, "holds")
			must(t, (artifact.Extractor{Force: true}).Extract(t.Context(), fstest.MapFS{"new": {}}, dir))
			if got := extracted(t, golden(), dir); got != goldenContent { // Extract has written it
				t.Errorf("holds %q", got)
			}
		})
	}
}

// TestExtractNever checks directories that Extract refuses even with Force.
func TestExtractNever(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home", "me")
	store := t.TempDir()
	usedStore(t, store)
	mkdir(t, home)
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	for dir, reason := range map[string]string{
		home:                           "home directory",
		filepath.Dir(home):             "home directory",
		filepath.Join(store, "x"):      "in the store",
		filepath.Join(store, "x", "y"): "in the store",
		string(filepath.Separator):     "root of a file system",
	} {
		var refused *artifact.RefusedError
		err := artifact.Extractor{Force: true}.Extract(t.Context(), golden(), dir)
		if !errors.As(err, &refused) || !refused.Never || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: error %v, want %q", dir, err, reason)
		}
		if err := (artifact.Extractor{Force: true}).Check(t.Context(), dir); !errors.As(err, &refused) {
			t.Errorf("%s: check: %v", dir, err)
		}
	}
	testenv.Equal(t, names(t, filepath.Dir(home)), []string{"me"}, "beside the home directory")
}

// TestExtractWaits checks that an extraction waits for another to the same directory and then
// replaces its content.
func TestExtractWaits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	first, stop := context.WithCancelCause(t.Context())
	opened, done := make(chan struct{}, 1), make(chan error, 1)
	go func() { done <- artifact.Extract(first, stallingFS{many(200), first, opened}, dir) }()
	<-opened
	second, giveUp := context.WithCancelCause(t.Context())
	impatient := errors.New("impatient")
	giveUp(impatient)
	if err := artifact.Extract(second, golden(), dir); !errors.Is(err, impatient) {
		t.Errorf("error %v", err)
	}
	stop(errors.New("end"))
	if err := <-done; err == nil {
		t.Error("the stalled extraction succeeded")
	}
	testenv.Equal(t, extracted(t, golden(), dir), goldenContent, "holds")
}

// TestExtractBesideNoDirectory checks that Extract does not follow a link in the place of its lock
// directory.
func TestExtractBesideNoDirectory(t *testing.T) {
	parent, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(parent, ".out.headgate")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := artifact.Extract(t.Context(), golden(), filepath.Join(parent, "out")); err == nil || !strings.Contains(err.Error(), "not a directory: remove it") {
		t.Errorf("error %v", err)
	}
	testenv.Equal(t, names(t, outside), nil, "outside")
}
