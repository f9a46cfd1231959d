package artifact_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// extracted extracts a tree, which must succeed, and returns the entries of dir.
func extracted(t *testing.T, tree fs.FS, dir string) string {
	t.Helper()
	must(t, artifact.Extract(t.Context(), tree, dir))
	return entriesOf(t, os.DirFS(dir))
}

// names lists a directory on the disk.
func names(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

const goldenContent = "a.txt=hello\n bin/ bin/run.sh=#!/bin/sh\n empty/"

func TestExtract(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "some", "where")
	testenv.Equal(t, extracted(t, golden(), dir), goldenContent, "wrote")
	testenv.Equal(t, extracted(t, fstest.MapFS{"stale/deep/file": {}}, dir), "stale/ stale/deep/ stale/deep/file=", "replaced by")
	testenv.Equal(t, extracted(t, golden(), dir), goldenContent, "replaced by")
	testenv.Equal(t, extracted(t, fstest.MapFS{}, dir+string(filepath.Separator)), "", "replaced by")
	testenv.Equal(t, names(t, filepath.Dir(dir)), []string{".where.headgate", "where"}, "beside it")
}

func TestExtractWritesManyFiles(t *testing.T) {
	tree := many(1000)
	tree["large"] = &fstest.MapFile{Data: noise(3 << 20)}
	dir := filepath.Join(t.TempDir(), "out")
	must(t, artifact.Extract(t.Context(), opened(t, tarOf(t, tree)), dir))
	if got, want := sum(tarOf(t, os.DirFS(dir))), sum(tarOf(t, tree)); got != want {
		t.Error("packing what was extracted gives other bytes")
	}
}

func TestExtractModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	dir := filepath.Join(t.TempDir(), "out")
	tree := fstest.MapFS{
		"file": {Mode: 0o600}, "open": {Mode: 0o7666}, "run": {Mode: 0o100}, "d": {Mode: fs.ModeDir | 0o700}, "d/e/f": {Mode: 0o444},
	}
	extracted(t, tree, dir)
	for name, want := range map[string]fs.FileMode{
		".": fs.ModeDir | 0o755, "d": fs.ModeDir | 0o755, "d/e": fs.ModeDir | 0o755,
		"file": 0o644, "open": 0o644, "run": 0o755, "d/e/f": 0o644,
	} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

func TestExtractRefuses(t *testing.T) {
	parent := t.TempDir()
	target := filepath.Join(parent, "target")
	must(t, os.MkdirAll(filepath.Join(target, "below"), 0o755))
	must(t, os.WriteFile(filepath.Join(parent, "file"), []byte("mine"), 0o644))
	t.Chdir(filepath.Join(target, "below"))
	dirs := []string{filepath.Join(parent, "file"), ".", "..", target, string(filepath.Separator)}
	if err := os.Symlink(target, filepath.Join(parent, "link")); err == nil {
		dirs = append(dirs, filepath.Join(parent, "link"))
	}
	for _, dir := range dirs {
		if err := artifact.Extract(t.Context(), golden(), dir); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v, want fs.ErrInvalid", dir, err)
		}
	}
	if err := artifact.Extract(t.Context(), golden(), filepath.Join(parent, "file", "x")); err == nil {
		t.Error("extracted below a file")
	}
	if content, err := os.ReadFile(filepath.Join(parent, "file")); string(content) != "mine" {
		t.Errorf("file is now %q, %v", content, err)
	}
	testenv.Equal(t, names(t, target), []string{"below"}, "target is now")
	extracted(t, golden(), "below-here") // a relative name works
}

// TestExtractKeeps checks that Extract does not replace content that no artifact put there.
func TestExtractKeeps(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, dir string){
		"repository":       func(t *testing.T, dir string) { mkdir(t, filepath.Join(dir, ".git", "objects")) },
		"repository below": func(t *testing.T, dir string) { mkdir(t, filepath.Join(dir, "a", "b", ".git")) },
		"worktree": func(t *testing.T, dir string) {
			mkdir(t, dir)
			must(t, os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: elsewhere"), 0o644))
		},
		"store":       func(t *testing.T, dir string) { usedStore(t, dir) },
		"store below": func(t *testing.T, dir string) { usedStore(t, filepath.Join(dir, ".headgate")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			make(t, dir)
			before := names(t, dir)
			for _, force := range []bool{false, true} {
				err := artifact.Extractor{Force: force}.Extract(t.Context(), golden(), dir)
				if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "never replaced") {
					t.Errorf("force %t: error %v", force, err)
				}
			}
			testenv.Equal(t, names(t, dir), before, "holds")
		})
	}
	gitTree := fstest.MapFS{"backup/.git/config": {Data: []byte("1")}}
	dir := filepath.Join(t.TempDir(), ".git") // only its content counts
	for range 2 {
		testenv.Equal(t, extracted(t, gitTree, dir), "backup/ backup/.git/ backup/.git/config=1", "the tree's own")
	}
}

// usedStore creates a store with an artifact.
func usedStore(t *testing.T, dir string) {
	t.Helper()
	s, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	put(t, s, object, "a.tar.gz", "content")
}

// TestExtractFails checks that every failure leaves the earlier content and nothing else.
func TestExtractFails(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "out")
	extracted(t, golden(), dir)
	check := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "out") {
			t.Errorf("error %v, want %v", err, want)
		}
		testenv.Equal(t, entriesOf(t, os.DirFS(dir)), goldenContent, "holds")
		if got := names(t, parent); !slices.Equal(got, []string{".out.headgate", "out"}) || !slices.Equal(names(t, filepath.Join(parent, ".out.headgate")), []string{"lock", "record"}) {
			t.Errorf("beside it: %q", got)
		}
	}
	broken, stop := errors.New("broken"), errors.New("stop")
	check(artifact.Extract(t.Context(), wrongSizeFS{fstest.MapFS{"a": {}, "b": {}}, "b", failingReader{broken}}, dir), broken)
	check(artifact.Extract(t.Context(), unopenableFS{many(200)}, dir), fs.ErrPermission)
	check(artifact.Extract(t.Context(), invalidNamesFS{golden(), []string{"a", "a"}}, dir), fs.ErrNotExist)
	check(artifact.Extract(t.Context(), invalidNamesFS{golden(), []string{"../a"}}, dir), fs.ErrInvalid)
	check(artifact.Extract(t.Context(), repeatingFS{golden()}, dir), fs.ErrExist)

	ctx, cancel := context.WithCancelCause(t.Context())
	opened := make(chan struct{}, 1)
	go func() {
		<-opened
		cancel(stop)
	}()
	check(artifact.Extract(ctx, stallingFS{many(200), ctx, opened}, dir), stop)
	check(artifact.Extract(ctx, golden(), dir), stop)
}

// repeatingFS is a tree that lists its entries twice.
type repeatingFS struct{ fstest.MapFS }

func (w repeatingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(w.MapFS, name)
	return append(list, list...), err
}

func TestExtractFollowsNoLink(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(t.TempDir(), "out")
	extracted(t, golden(), dir)
	must(t, os.RemoveAll(filepath.Join(dir, "bin")))
	if err := os.Symlink(outside, filepath.Join(dir, "bin")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(outside, "mine"), nil, 0o644))
	if err := artifact.Extract(t.Context(), golden(), dir); err == nil || !strings.Contains(err.Error(), `"bin" in it was changed`) {
		t.Errorf("error %v", err)
	}
	must(t, (artifact.Extractor{Force: true}).Extract(t.Context(), golden(), dir))
	testenv.Equal(t, entriesOf(t, os.DirFS(dir)), goldenContent, "wrote")
	testenv.Equal(t, names(t, outside), []string{"mine"}, "outside")
}

func mkdir(t *testing.T, name string) {
	t.Helper()
	must(t, os.MkdirAll(name, 0o755))
}
