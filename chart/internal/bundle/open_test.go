package bundle_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
)

func TestOpen(t *testing.T) {
	tree := plain.under("a b/c").with(files{"README": "x", "Chart.yaml": "no chart", "b/c.tgz": string(plain.under("plain").tgz(t))}).tree()
	for _, name := range []string{"a b/c", "b/c.tgz"} {
		c, err := bundle.Open(tree, name, spools(t))
		must(t, err)
		if got := all(t, c.Files); !maps.Equal(got, plain) || c.Archived() != strings.HasSuffix(name, ".tgz") {
			t.Errorf("%q: files %v", name, got)
		}
		must(t, c.Close())
	}
}

func TestOpenRefuses(t *testing.T) {
	tree := plain.under("c").with(files{"file": "x", "empty/x": "x", "file.tgz": "x"}).tree()
	for name, want := range map[string]error{
		"none": fs.ErrNotExist, "c/none": fs.ErrNotExist, "file/x": fs.ErrNotExist,
		"..": fs.ErrInvalid, "c/../c": fs.ErrInvalid, "/c": fs.ErrInvalid, "": fs.ErrInvalid, "\xff": fs.ErrInvalid,
		"file": bundle.ErrChart, "file.tgz": bundle.ErrChart, "empty": bundle.ErrChart, ".": bundle.ErrChart, "c/templates": bundle.ErrChart,
	} {
		_, err := bundle.Open(tree, name, spools(t))
		if !errors.Is(err, want) || !utf8.ValidString(err.Error()) || errors.Is(err, bundle.ErrChart) != (want == bundle.ErrChart) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
}

func TestLinksInADirectoryAreRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.CopyFS(dir, plain.tree()))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "templates/x.md")))
	_, err := bundle.Open(os.DirFS(dir), ".", spools(t))
	if !errors.Is(err, bundle.ErrChart) || !strings.Contains(err.Error(), `templates/x.md" is a link`) {
		t.Errorf("%v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, ".helmignore"), []byte("*.md"), 0o600))
	if _, err := bundle.Open(os.DirFS(dir), ".", spools(t)); err != nil {
		t.Errorf("an ignored link: %v", err)
	}
}

func TestIgnoreFilesThatAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"Chart.yaml":                         ".helmignore excludes it",
		"a/**":                               "double-star",
		"a\n*a*[":                            "line 2",
		strings.Repeat("# comment\n", 7_000): "65536 bytes",
		strings.Repeat("a\n", 1_001):         "more than 1000 lines",
	} {
		_, err := bundle.Open(plain.with(files{".helmignore": text}).tree(), ".", artifact.Limits{})
		if !errors.Is(err, bundle.ErrChart) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestDirectoriesThatCannotBeRead(t *testing.T) {
	lost := errors.New("disk lost")
	for _, name := range []string{"Chart.yaml", "Chart.lock", ".helmignore", "requirements.yaml", "requirements.lock"} {
		_, err := bundle.Open(failing{plain.with(files{name: plain[name]}).tree(), name, lost}, ".", artifact.Limits{})
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

func (f failing) ReadFile(name string) ([]byte, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.MapFS.ReadFile(name)
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

// small is a chart without anything but a name and a version.
func small(name, version string) files {
	return files{"Chart.yaml": fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version)}
}

func TestVendoredFindsWhatThePackageManagerFinds(t *testing.T) {
	f := plain.
		with(small("a", "1.0.0").with(small("deep", "1.0.0").under("charts/deep")).under("charts/a")).
		with(small("b", "2.0.0").under("charts/any-name")).
		with(files{
			"charts/c-3.0.0.tgz":           string(small("c", "3.0.0").under("c").tgz(t)),
			"charts/c-3.0.0.tgz.prov":      "x",
			"charts/_d/Chart.yaml":         "no chart",
			"charts/_e.tgz":                "no archive",
			"charts/.gitkeep":              "",
			"charts/old/requirements.yaml": "dependencies:\n- name: x\n",
			"charts/old/Chart.yaml":        "name: old\nversion: 1.0.0\n",
		})
	list, err := f.open(t).Vendored(spools(t))
	must(t, err)
	got := map[string]string{}
	for _, m := range list {
		got[m.Name] = m.Version
	}
	c, err := fromDir(t, f)
	must(t, err)
	want := map[string]string{}
	for _, d := range c.Dependencies() {
		want[d.Name()] = d.Metadata.Version
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(list) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if list, err := plain.open(t).Vendored(spools(t)); list != nil || err != nil {
		t.Errorf("none: %v, %v", list, err)
	}
	if list, err := plain.with(files{"charts": "a file"}).open(t).Vendored(spools(t)); list != nil || err != nil {
		t.Errorf("a file: %v, %v", list, err)
	}
}

func TestVendoredRefuses(t *testing.T) {
	twenty := files{}
	for i := range 20 {
		twenty[fmt.Sprintf("charts/%d.tgz", i)] = string(small("a", fmt.Sprintf("%d.0.0", i)).with(files{"x": strings.Repeat("x", 300_000)}).under("a").tgz(t))
	}
	for name, c := range map[string]struct {
		f       files
		says    string
		lenient bool
	}{
		"a bomb":                      {files{"charts/a.tgz": string(gzipped(t, make([]byte, 40<<20)))}, `"a.tgz"`, false},
		"bombs together":              {twenty, "5242880 bytes in all archives together", true},
		"no archive":                  {files{"charts/a.tgz": "x"}, `"a.tgz"`, false},
		"an archive with a link":      {files{"charts/a.tgz": string(tgz(t, append(small("a", "1.0.0").under("a").entries(), entry{name: "a/Chart.lock", text: "/x", kind: tar.TypeSymlink})...))}, "is a link", true},
		"a directory without a chart": {files{"charts/a/values.yaml": "x"}, `"a"`, false},
		"a file":                      {files{"charts/README.md": "x"}, `"README.md"`, false},
		"a directory named .tgz":      {small("a", "1.0.0").under("charts/a.tgz"), `"a.tgz"`, false},
		"a name that leads out":       {small("../a", "1.0.0").under("charts/a"), "field name", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := plain.with(c.f)
			l := spools(t)
			l.Bytes = 5 << 20
			_, err := f.open(t).Vendored(l)
			if !errors.Is(err, bundle.ErrChart) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want one with %q", err, c.says)
			}
			if _, err := f.open(t).Pack(t.Context(), io.Discard, bundle.Edit{Limits: artifact.Limits{Bytes: 5 << 20}}); !errors.Is(err, bundle.ErrChart) {
				t.Errorf("it was packed: %v", err)
			}
			if _, err := fromDir(t, f); (err == nil) != c.lenient {
				t.Errorf("the package manager: %v", err)
			}
		})
	}
}
