package bundle_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
)

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
			if _, err := f.open(t).Pack(t.Context(), discard{}, bundle.Edit{Limits: artifact.Limits{Bytes: 5 << 20}}); !errors.Is(err, bundle.ErrChart) {
				t.Errorf("it was packed: %v", err)
			}
			if _, err := fromDir(t, f); (err == nil) != c.lenient {
				t.Errorf("the package manager: %v", err)
			}
		})
	}
}
