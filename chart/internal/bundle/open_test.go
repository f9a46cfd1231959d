package bundle_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
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
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestOpen(t *testing.T) {
	tree := plain.inDir("a b/c").with(files{"README": "x", "Chart.yaml": "no chart", "b/c.tgz": string(plain.inDir("plain").tgz(t))}).tree()
	for _, name := range []string{"a b/c", "b/c.tgz"} {
		c, err := bundle.Open(tree, name, spools(t))
		must(t, err)
		if got := readFiles(t, c.Files); !maps.Equal(got, plain) || c.Archived() != strings.HasSuffix(name, ".tgz") {
			t.Errorf("%q: files %v", name, got)
		}
		must(t, c.Close())
	}
}

func TestOpenRefuses(t *testing.T) {
	tree := plain.inDir("c").with(files{"file": "x", "empty/x": "x", "file.tgz": "x"}).tree()
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
	testenv.ErrorIs(t, err, bundle.ErrChart)
	testenv.ErrorSays(t, err, `templates/x.md" is a link`)
	must(t, os.WriteFile(filepath.Join(dir, ".helmignore"), []byte("*.md"), 0o600))
	if _, err := bundle.Open(os.DirFS(dir), ".", spools(t)); err != nil {
		t.Errorf("an ignored link: %v", err)
	}
}

func TestIgnoreFilesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"Chart.yaml":                         ".helmignore excludes it",
		"a/**":                               "double-star",
		"a\n*a*[":                            "line 2",
		strings.Repeat("# comment\n", 7_000): "65536 bytes",
		strings.Repeat("a\n", 1_001):         "more than 1000 lines",
	} {
		_, err := bundle.Open(plain.with(files{".helmignore": text}).tree(), ".", artifact.Limits{})
		testenv.ErrorIs(t, err, bundle.ErrChart, text)
		testenv.ErrorSays(t, err, want, text)
	}
}

func TestDirectoriesThatCannotBeRead(t *testing.T) {
	lost := errors.New("disk lost")
	for _, name := range []string{"Chart.yaml", "Chart.lock", ".helmignore", "requirements.yaml", "requirements.lock"} {
		_, err := bundle.Open(failingFS{plain.with(files{name: plain[name]}).tree(), name, lost}, ".", artifact.Limits{})
		if !errors.Is(err, lost) || errors.Is(err, bundle.ErrChart) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// failingFS is a tree in which one file cannot be opened.
type failingFS struct {
	fstest.MapFS
	name string
	err  error
}

func (f failingFS) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.MapFS.Open(name)
}

func (f failingFS) ReadFile(name string) ([]byte, error) {
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
		testenv.Equal(t, f.open(t).Lock.Digest, want, format)
		delete(f, map[string]string{"v1": "requirements.lock", "v2": "Chart.lock"}[format])
		if got := f.open(t).Lock.Digest; got == want {
			t.Errorf("%s without its own: %s", format, got)
		}
	}
	if lock := plain.with(files{"Chart.lock": ""}).open(t).Lock; lock == nil {
		t.Error("an empty lock is none")
	}
}

// smallChart returns a chart with only a name and a version.
func smallChart(name, version string) files {
	return files{"Chart.yaml": fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version)}
}

func TestVendoredFindsWhatThePackageManagerFinds(t *testing.T) {
	f := plain.
		with(smallChart("a", "1.0.0").with(smallChart("deep", "1.0.0").inDir("charts/deep")).inDir("charts/a")).
		with(smallChart("b", "2.0.0").inDir("charts/any-name")).
		with(files{
			"charts/c-3.0.0.tgz":           string(smallChart("c", "3.0.0").inDir("c").tgz(t)),
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
		twenty[fmt.Sprintf("charts/%d.tgz", i)] = string(smallChart("a", fmt.Sprintf("%d.0.0", i)).with(files{"x": strings.Repeat("x", 300_000)}).inDir("a").tgz(t))
	}
	for name, c := range map[string]struct {
		f       files
		says    string
		lenient bool
	}{
		"a bomb":                      {files{"charts/a.tgz": string(gzipped(t, make([]byte, 40<<20)))}, `"a.tgz"`, false},
		"bombs together":              {twenty, "5242880 bytes in all archives together", true},
		"no archive":                  {files{"charts/a.tgz": "x"}, `"a.tgz"`, false},
		"an archive with a link":      {files{"charts/a.tgz": string(tgz(t, append(smallChart("a", "1.0.0").inDir("a").entries(), entry{name: "a/Chart.lock", text: "/x", kind: tar.TypeSymlink})...))}, "is a link", true},
		"a directory without a chart": {files{"charts/a/values.yaml": "x"}, `"a"`, false},
		"a file":                      {files{"charts/README.md": "x"}, `"README.md"`, false},
		"a directory named .tgz":      {smallChart("a", "1.0.0").inDir("charts/a.tgz"), `"a.tgz"`, false},
		"a name that leads out":       {smallChart("../a", "1.0.0").inDir("charts/a"), "field name", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := plain.with(c.f)
			l := spools(t)
			l.Bytes = 5 << 20
			_, err := f.open(t).Vendored(l)
			if !errors.Is(err, bundle.ErrChart) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want one with %q", err, c.says)
			}
			_, err = f.open(t).Pack(t.Context(), io.Discard, bundle.Edit{Limits: artifact.Limits{Bytes: 5 << 20}})
			testenv.ErrorIs(t, err, bundle.ErrChart, "packed")
			if _, err := fromDir(t, f); (err == nil) != c.lenient {
				t.Errorf("the package manager: %v", err)
			}
		})
	}
}

func TestStamp(t *testing.T) {
	for _, c := range []struct{ version, metadata, want string }{
		{"1.2.3", "abc", "1.2.3+abc"},
		{"v1.2.3", "abc", "1.2.3+abc"},
		{"1.2.3+old", "new", "1.2.3+new"},
		{"1.2.3-rc.1+old", "0123456789ab.7", "1.2.3-rc.1+0123456789ab.7"},
		{"1.2", "1", "1.2.0+1"},
		{"1", "1", "1.0.0+1"},
		{"1.2.3+old", "", "1.2.3"},
		{"1.2.3", "a b", ""},
		{"1.2.3", "a/b", ""},
		{"", "a", ""},
		{"1.2.3\n", "a", ""},
		{"latest", "a", ""},
	} {
		got, err := bundle.Stamp(c.version, c.metadata)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("Stamp(%q, %q) = %q, %v, want %q", c.version, c.metadata, got, err, c.want)
		}
	}
}

func TestTheVersionIsReplacedWhereItStands(t *testing.T) {
	const v = "1.0.0+abc"
	head := "apiVersion: v2\nname: a\n"
	for name, c := range map[string]struct{ text, want string }{
		"plain":                   {head + "version: 1.0.0\n", head + "version: " + v + "\n"},
		"without a line end":      {head + "version: 1.0.0", head + "version: " + v},
		"comments":                {"# one\n" + head + "version: 1.0.0   # two\n# three\n", "# one\n" + head + "version: " + v + "   # two\n# three\n"},
		"double quotes":           {head + `version: "1.0.0" # x`, head + `version: "` + v + `" # x`},
		"single quotes":           {head + `version: '1.0.0' # x`, head + `version: '` + v + `' # x`},
		"a quoted key":            {head + `"version" : 1.0.0`, head + `"version" : ` + v},
		"flow style":              {"{apiVersion: v2, name: a, version: 1.0.0, description: x}", "apiVersion: v2\ndescription: x\nname: a\nversion: 1.0.0+abc\n"},
		"JSON":                    {`{"apiVersion":"v2","name":"a","version":"1.0.0"}`, "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"on the next line":        {head + "version:\n  1.0.0\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"an explicit key":         {"? version\n: 1.0.0\n? apiVersion\n: v2\n? name\n: a\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"line ends of Windows":    {"apiVersion: v2\r\nname: a\r\nversion: 1.0.0\r\nhome: x\r\n", "apiVersion: v2\r\nname: a\r\nversion: " + v + "\r\nhome: x\r\n"},
		"a byte order mark":       {"\xef\xbb\xbfversion: 1.0.0\n" + head, "\xef\xbb\xbfversion: " + v + "\n" + head},
		"a nested one before":     {"dependencies: [{name: b, version: 1.0.0, repository: x}]\n" + head + "version: 1.0.0\n", "dependencies: [{name: b, version: 1.0.0, repository: x}]\n" + head + "version: " + v + "\n"},
		"appVersion is the same":  {"appVersion: 1.0.0\n" + head + "version: 1.0.0\n", "appVersion: 1.0.0\n" + head + "version: " + v + "\n"},
		"twice, the last counts":  {head + "version: 0.9.0\nversion: 1.0.0\n", head + "version: " + v + "\nversion: " + v + "\n"},
		"an anchor nobody uses":   {head + "version: &v 1.0.0\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"a tag":                   {head + "version: !!str 1.0.0\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"an alias":                {"annotations: {x: &v 1.0.0}\n" + head + "version: *v\n", "annotations:\n  x: 1.0.0\napiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"an anchor that is used":  {"version: &v 1.0.0\nappVersion: *v\n" + head, "apiVersion: v2\nappVersion: 1.0.0\nname: a\nversion: 1.0.0+abc\n"},
		"a block":                 {head + "version: |-\n  1.0.0\nx: 1\n", head + "version: 1.0.0+abc\nx: 1\n"},
		"escapes":                 {head + `version: "1.0\x2e0"`, head + "version: 1.0.0+abc\n"},
		"a merged map":            {"x: &x {version: 1.0.0}\n<<: *x\n" + head, "apiVersion: v2\nname: a\nversion: 1.0.0+abc\nx:\n  version: 1.0.0\n"},
		"in upper case":           {head + "Version: 1.0.0\n", head + "version: 1.0.0+abc\n"},
		"two documents":           {head + "version: 1.0.0\n---\nversion: 1.0.0\n", head + "version: " + v + "\n---\nversion: " + v + "\n"},
		"a directive":             {"%YAML 1.1\n---\n" + head + "version: 1.0.0\n", "%YAML 1.1\n---\n" + head + "version: " + v + "\n"},
		"a letter that folds":     {head + "version: 1.0.0\nver\u017fion: 1.0.0\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"lone carriage returns":   {"apiVersion: v2\rname: a\rversion: 1.0.0\r", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"unknown fields and text": {head + "x: {y: [1, 2.50]}\nversion: 1.0.0\ndescription: |\n  version: 1.0.0\n", head + "x: {y: [1, 2.50]}\nversion: " + v + "\ndescription: |\n  version: 1.0.0\n"},
		"a number":                {head + "appVersion: 1.10\nversion: 1\n", head + "appVersion: 1.10\nversion: " + v + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out := pack(t, files{"Chart.yaml": c.text}.open(t), bundle.Edit{Version: v})
			a := read(t, out)
			testenv.Equal(t, a.Metadata.Version, v, "version")
			testenv.Equal(t, readFiles(t, a.Files)["Chart.yaml"], c.want)
		})
	}
}

func TestAVersionThatIsNoneIsRefused(t *testing.T) {
	for _, v := range []string{"latest", "1.0.0\nname: x", "1.0.0 # x", "../1.0.0", "1.0.0+a+b", "'"} {
		_, err := plain.open(t).Pack(t.Context(), io.Discard, bundle.Edit{Version: v})
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", v, err)
		}
	}
}

// TestTheTarStreamIsPinned checks that the tar stream of a chart does not change between
// releases.
func TestTheTarStreamIsPinned(t *testing.T) {
	const want = "e5050daa2d1c2465f53ace55f788df08e783b091db5e144d8d9d38e597fe174d"
	out := pack(t, plain.open(t), bundle.Edit{Version: "1.2.3+4", Values: []byte("a: 2\n"), Charts: []*bundle.Chart{smallChart("sub", "0.1.0").open(t)}})
	testenv.Equal(t, fmt.Sprintf("%x", sha256.Sum256(ungzip(t, out))), want)
	r := tar.NewReader(bytes.NewReader(ungzip(t, out)))
	var names []string
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != ". plain plain/Chart.yaml plain/README.md plain/charts plain/charts/sub plain/charts/sub/Chart.yaml plain/crds plain/crds/crd.yaml plain/files plain/files/data.bin "+
		"plain/templates plain/templates/_helpers.tpl plain/templates/config.yaml plain/templates/tests plain/templates/tests/one.yaml plain/values.schema.json plain/values.yaml" {
		t.Errorf("entries %s", got)
	}
}
