package bundle_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

func TestChartsAreAddedBesideThoseThatAreThere(t *testing.T) {
	one := func(name, version, values string, charts ...*bundle.Chart) *bundle.Chart {
		c := files{"Chart.yaml": "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n", "values.yaml": values}.open(t)
		tree, err := c.With(bundle.Edit{Charts: charts})
		if err != nil {
			t.Fatal(err)
		}
		c.Files = tree
		return c
	}
	c := files{
		"Chart.yaml":             "apiVersion: v2\nname: whole\nversion: 1.0.0\n",
		"charts/lib/Chart.yaml":  "apiVersion: v2\nname: lib\nversion: 1.0.0\n",
		"charts/lib/values.yaml": "there: 1\n",
	}.open(t)
	tree, err := c.With(bundle.Edit{Values: nil, Charts: []*bundle.Chart{
		one("lib", "2.0.0", "lib: 2\n"), one("lib", "2.0.0", "again: 2\n"), one("lib", "1.0.0", "other: 1\n"),
		one("sub", "1.0.0", "sub: 1\n", one("deep", "1.0.0", "deep: 1\n")),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"charts/lib/values.yaml":             "there: 1\n",
		"charts/lib-2.0.0/values.yaml":       "lib: 2\n",
		"charts/sub/values.yaml":             "sub: 1\n",
		"charts/sub/charts/deep/values.yaml": "deep: 1\n",
	} {
		if text, err := fs.ReadFile(tree, name); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", name, text, err, want)
		}
	}
	if entries, err := fs.ReadDir(tree, "charts"); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := c.With(bundle.Edit{Charts: []*bundle.Chart{one("_lib", "1.0.0", "")}}); !errors.Is(err, bundle.ErrChart) {
		t.Errorf("%v", err)
	}
}

// TestTakenPlacesAreToldInOrder: of several, the same one each time.
func TestTakenPlacesAreToldInOrder(t *testing.T) {
	f := plain.with(small("x", "1.0.0").under("charts/a")).with(small("y", "1.0.0").under("charts/b"))
	for range 20 {
		_, err := f.open(t).With(bundle.Edit{Charts: []*bundle.Chart{small("b", "1.0.0").open(t), small("a", "1.0.0").open(t)}})
		if err == nil || !strings.Contains(err.Error(), "charts/a is not a 1.0.0") {
			t.Fatalf("%v", err)
		}
	}
}
