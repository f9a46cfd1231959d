package bundle_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

func TestOpenDirFindsTheChart(t *testing.T) {
	for dir, at := range map[string]string{
		"": "", ".": "", "./": "", "charts/x": "charts/x", "./charts/x/": "charts/x", "charts//x": "charts/x", "a/./b": "a/b", "a b": "a b",
	} {
		f := plain
		if at != "" {
			f = plain.under(at).with(files{"README": "x", "Chart.yaml": "no chart"})
		}
		c, err := bundle.OpenDir(f.tree(), dir)
		if err != nil {
			t.Errorf("%q: %v", dir, err)
			continue
		}
		if got := all(t, c.Files); !maps.Equal(got, plain) {
			t.Errorf("%q: files %v", dir, got)
		}
	}
}

func TestOpenDirRefuses(t *testing.T) {
	tree := plain.under("c").with(files{"file": "x", "empty/x": "x", "file.tgz": "x"}).tree()
	for dir, want := range map[string]error{
		"none": fs.ErrNotExist, "c/none": fs.ErrNotExist, "file/x": fs.ErrNotExist,
		"..": fs.ErrInvalid, "c/../c": fs.ErrInvalid, "../c": fs.ErrInvalid, "/c": fs.ErrInvalid, "/": fs.ErrInvalid, `c\x`: fs.ErrInvalid, "c\x00": fs.ErrInvalid, "\xff": fs.ErrInvalid,
		"file": bundle.ErrChart, "file.tgz": bundle.ErrChart, "empty": bundle.ErrChart, ".": bundle.ErrChart, "c/templates": bundle.ErrChart,
	} {
		_, err := bundle.OpenDir(tree, dir)
		if !errors.Is(err, want) || strings.Contains(err.Error(), "\x00") || !utf8.ValidString(err.Error()) {
			t.Errorf("%q: %v, want %v", dir, err, want)
		}
		if got := errors.Is(err, bundle.ErrChart); got != (want == bundle.ErrChart) {
			t.Errorf("%q: ErrChart %v", dir, got)
		}
	}
}

func TestLinksInADirectoryAreRefused(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	for _, name := range []string{"Chart.yaml", "Chart.lock", "values.yaml", "requirements.yaml", "requirements.lock", ".helmignore", "templates/x", "charts/sub", "crds", "files/deep/x"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := maps.Clone(plain)
			delete(f, name)
			if name == "crds" {
				delete(f, "crds/crd.yaml")
			}
			must(t, os.CopyFS(filepath.Join(dir, "c"), f.tree()))
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, "c", name)), 0o755))
			must(t, os.Symlink(secret, filepath.Join(dir, "c", name)))
			_, err := bundle.OpenDir(os.DirFS(dir), "c")
			if !errors.Is(err, bundle.ErrChart) || !strings.Contains(err.Error(), name+`" is a link`) {
				t.Errorf("%v", err)
			}
		})
	}
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, "c"), plain.tree()))
	must(t, os.Symlink("c", filepath.Join(dir, "d")))
	for _, name := range []string{"d", "d/templates"} {
		if _, err := bundle.OpenDir(os.DirFS(dir), name); !errors.Is(err, bundle.ErrChart) || !strings.Contains(err.Error(), `"d" is a link`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, os.Symlink(secret, filepath.Join(dir, "c", "x.md")))
	must(t, os.WriteFile(filepath.Join(dir, "c", ".helmignore"), []byte("*.md"), 0o600))
	if _, err := bundle.OpenDir(os.DirFS(dir), "c"); err != nil {
		t.Errorf("an ignored link: %v", err)
	}
}

func TestChartYAMLThatIsIgnored(t *testing.T) {
	_, err := bundle.OpenDir(plain.with(files{".helmignore": "Chart.yaml"}).tree(), ".")
	if !errors.Is(err, bundle.ErrChart) || !strings.Contains(err.Error(), ".helmignore") {
		t.Errorf("%v", err)
	}
}

func TestDirectoriesThatCannotBeRead(t *testing.T) {
	lost := errors.New("disk lost")
	for _, name := range []string{"Chart.yaml", "Chart.lock", ".helmignore", "requirements.yaml", "requirements.lock"} {
		_, err := bundle.OpenDir(failing{plain.with(files{name: plain[name]}).tree(), name, lost}, ".")
		if !errors.Is(err, lost) || errors.Is(err, bundle.ErrChart) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A failing tree cannot open one file.
type failing struct {
	fstest.MapFS
	name string
	err  error
}

func (f failing) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.MapFS.Open(name)
}

func TestNamesWithWhichNoArchiveCouldBeLoaded(t *testing.T) {
	for _, name := range []string{"..x", "c:/x"} {
		if _, err := bundle.OpenDir(plain.with(files{name: ""}).tree(), "."); !errors.Is(err, bundle.ErrChart) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheLockIsThatOfTheVersionOfTheFormat(t *testing.T) {
	lock := func(digest string) string { return "digest: " + digest + "\ndependencies: []\n" }
	both := files{"Chart.lock": lock("new"), "requirements.lock": lock("old")}
	for format, want := range map[string]string{"v1": "old", "v2": "new"} {
		f := both.with(files{"Chart.yaml": "apiVersion: " + format + "\nname: a\nversion: 1.0.0\n"})
		if got := f.open(t).Lock.Digest; got != want {
			t.Errorf("%s: %s, want %s", format, got, want)
		}
		delete(f, map[string]string{"v1": "requirements.lock", "v2": "Chart.lock"}[format])
		if got := f.open(t).Lock.Digest; got == want {
			t.Errorf("%s without its own: %s", format, got)
		}
	}
	if lock := plain.with(files{"Chart.lock": ""}).open(t).Lock; lock == nil {
		t.Error("an empty lock is none")
	}
}
