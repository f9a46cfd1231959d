package chart

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"
)

// yard returns a tree of charts: their Chart.yaml by directory.
func yard(charts map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for dir, text := range charts {
		tree[strings.TrimPrefix(dir+"/Chart.yaml", "./")] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

func TestChartsOfTheSource(t *testing.T) {
	for _, c := range []struct {
		name   string
		charts map[string]string
		dir    string
		want   string
	}{
		{"beside", map[string]string{
			"deploy/umbrella": chartYAML("umbrella", "0.1.0", "lib ^1 file://../lib"),
			"deploy/lib":      chartYAML("lib", "1.2.3"),
		}, "deploy/umbrella", "charts/lib lib 1.2.3\n"},
		{"at the root", map[string]string{
			".":    chartYAML("umbrella", "0.1.0", "lib ^1 file://libs/lib"),
			"libs": chartYAML("other", "1.0.0"), "libs/lib": chartYAML("lib", "1.2.3"),
		}, ".", "charts/lib lib 1.2.3\nlibs other 1.0.0\nlibs/lib lib 1.2.3\n"},
		{"the root itself", map[string]string{
			".": chartYAML("lib", "1.0.0"), "x/y": chartYAML("umbrella", "0.1.0", "lib ^1 file://../.."),
		}, "x/y", "charts/lib lib 1.0.0\ncharts/lib/x/y umbrella 0.1.0\n"},
		{"odd spellings", map[string]string{
			"a": chartYAML("a", "0.1.0", "b * file://./../b/", "c * file://..//c"), "b": chartYAML("b", "1.0.0"), "c": chartYAML("c", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/c c 1.0.0\n"},
		{"a chain", map[string]string{
			"a": chartYAML("a", "0.1.0", "b * file://../b"), "b": chartYAML("b", "1.0.0", "c * file://../c"),
			"c": chartYAML("c", "1.0.0", "d * file://../d"), "d": chartYAML("d", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/b/charts/c c 1.0.0\ncharts/b/charts/c/charts/d d 1.0.0\n"},
		{"a diamond", map[string]string{
			"a": chartYAML("a", "0.1.0", "b * file://../b", "c * file://../c"), "b": chartYAML("b", "1.0.0", "d * file://../d"),
			"c": chartYAML("c", "1.0.0", "d * file://../d"), "d": chartYAML("d", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/b/charts/d d 1.0.0\ncharts/c c 1.0.0\ncharts/c/charts/d d 1.0.0\n"},
		{"aliases", map[string]string{
			"a": chartYAML("a", "0.1.0", "b ^1 file://../b alias=one", "b 1.x file://../b alias=two condition=two.enabled enabled=false"), "b": chartYAML("b", "1.0.0"),
		}, "a", "charts/b b 1.0.0\n"},
		{"vendored", map[string]string{
			"a": chartYAML("a", "0.1.0", "b ^1 file://../b", "c ^1"), "b": chartYAML("b", "2.0.0"),
			"a/charts/b": chartYAML("b", "1.0.0"), "a/charts/c": chartYAML("c", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/c c 1.0.0\n"},
		{"vendored by name", map[string]string{
			"a": chartYAML("a", "0.1.0", "b ^1 file://charts/b"), "a/charts/b": chartYAML("b", "1.0.0"),
		}, "a", "charts/b b 1.0.0\n"},
		{"two versions", map[string]string{
			"a":  chartYAML("a", "0.1.0", "b ^1 file://../b1 alias=one", "b ^2 file://../b2 alias=two"),
			"b1": chartYAML("b", "1.0.0"), "b2": chartYAML("b", "2.0.0"),
		}, "a", "charts/b-1.0.0 b 1.0.0\ncharts/b-2.0.0 b 2.0.0\n"},
		{"apiVersion v1 without requirements", map[string]string{
			"a": "apiVersion: v1\nname: a\nversion: 0.1.0\n",
		}, "a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := completed(t, newSupply(t, ""), yard(c.charts), c.dir)
			if err != nil || got != c.want {
				t.Errorf("%v\n%swant\n%s", err, got, c.want)
			}
		})
	}
}

// TestLockedChartsOfTheSource completes charts whose locks helm wrote.
func TestLockedChartsOfTheSource(t *testing.T) {
	for name, want := range map[string]string{
		"umb":   "charts/lib lib 1.2.3\ncharts/lib2 lib2 2.0.0+b.1\n",
		"weird": "charts/lib lib 1.2.3\ncharts/sub sub 0.1.0\n",
		"v1":    "charts/lib lib 1.2.3\n",
		"v1old": "charts/lib lib 1.2.3\n",
	} {
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile("testdata/locks/" + name + ".txtar")
			if err != nil {
				t.Fatal(err)
			}
			tree := yard(map[string]string{"lib": chartYAML("lib", "1.2.3"), "lib2": chartYAML("lib2", "2.0.0+b.1"), "weird/charts/sub": chartYAML("sub", "0.1.0")})
			for _, f := range archive.Files {
				tree[name+"/"+f.Name] = &fstest.MapFile{Data: f.Data}
			}
			if got, err := completed(t, newSupply(t, ""), tree, name); err != nil || got != want {
				t.Errorf("%v\n%swant\n%s", err, got, want)
			}
			tree["lib/Chart.yaml"].Data = []byte(chartYAML("lib", "1.2.4"))
			_, err = completed(t, newSupply(t, ""), tree, name)
			demandFailure(t, err, `"1.2.3"`, `chart "lib" "1.2.4" is there`)
		})
	}
}

func TestLocalChartsThatCannotBeUsed(t *testing.T) {
	chain := map[string]string{}
	for i := range 30 {
		chain[fmt.Sprintf("c%d", i)] = chartYAML(fmt.Sprintf("c%d", i), "1.0.0", fmt.Sprintf("c%d * file://../c%d", i+1, i+1))
	}
	chain["c30"] = chartYAML("c30", "1.0.0")
	// Each level has the next one twice: 2^15 charts in 16 directories.
	bomb := map[string]string{}
	for i := range 15 {
		next := fmt.Sprintf("c%d", i+1)
		bomb[fmt.Sprintf("c%d", i)] = chartYAML(fmt.Sprintf("c%d", i), "1.0.0", next+" * file://../"+next+" alias=a", next+" >0 file://../"+next+" alias=b")
	}
	bomb["c15"] = chartYAML("c15", "1.0.0")
	var many []string
	for i := range 501 {
		many = append(many, fmt.Sprintf("c%d * https://r.example", i))
	}
	one := func(dependency string) map[string]string {
		return map[string]string{"a": chartYAML("a", "0.1.0", dependency), "lib": chartYAML("lib", "1.0.0"), "empty/x": chartYAML("x", "1.0.0")}
	}
	for _, c := range []struct {
		name   string
		charts map[string]string
		dir    string
		says   []string
	}{
		{"leads out", one("lib * file://../../lib"), "a", []string{`"lib"`, `of "a"`, `"file://../../lib"`, "leads out of the source"}},
		{"leads out and in again", one("lib * file://../../tree/lib"), "a", []string{"leads out of the source"}},
		{"absolute", one("lib * file:///lib"), "a", []string{"leads out of the source"}},
		{"of a host", one("lib * file:////host/lib"), "a", []string{"leads out of the source"}},
		{"backslashes", one(`lib * file://..\..\lib`), "a", []string{"without backslash"}},
		{"percent", one("lib * file://../%6cib"), "a", []string{"file does not exist"}},
		{"missing", one("lib * file://../nowhere"), "a", []string{"file does not exist"}},
		{"no chart", one("lib * file://../empty"), "a", []string{`"lib"`, "Chart.yaml"}},
		{"another name", one("other * file://../lib"), "a", []string{`chart "lib" "1.0.0" is there`}},
		{"another version", one("lib ^2 file://../lib"), "a", []string{`dependency "lib" "^2" of "a" from "file://../lib": chart "lib" "1.0.0" is there`}},
		{"itself", one("a * file://."), "a", []string{`a cycle: "a → a"`}},
		{"itself, by nothing", one("a * file://"), "a", []string{`a cycle: "a → a"`}},
		{"a cycle", map[string]string{
			"a": chartYAML("a", "1.0.0", "b * file://../b"), "b": chartYAML("b", "1.0.0", "c * file://../c"), "c": chartYAML("c", "1.0.0", "b * file://../b"),
		}, "a", []string{`a cycle: "b → c → b"`, `of "c"`}},
		{"too deep", chain, "c0", []string{"more than 20 directories deep"}},
		{"too many", bomb, "c0", []string{"more than 200 charts in all"}},
		{"too many of a repository", map[string]string{"a": chartYAML("a", "1.0.0", many[:201]...)}, "a", []string{"more than 200 charts in all"}},
		{"too many in one list", map[string]string{"a": chartYAML("a", "1.0.0", many...)}, "a", []string{`chart "a" has 501 dependencies, or charts in charts/: 500 are the limit`}},
		{"two charts of one name and version", map[string]string{
			"a": chartYAML("a", "1.0.0", "b * file://../b alias=one", "b * file://../b2 alias=two"), "b": chartYAML("b", "1.0.0"), "b2": chartYAML("b", "1.0.0"),
		}, "a", []string{"only one can be in charts/"}},
		{"vendored in another version", map[string]string{
			"a": chartYAML("a", "1.0.0", "b ^2 file://../b"), "a/charts/b": chartYAML("b", "1.0.0"), "b": chartYAML("b", "2.0.0"),
		}, "a", []string{`charts/ holds version "1.0.0"`}},
		{"neither vendored nor of a repository", map[string]string{"a": chartYAML("a", "1.0.0", "b ^2")}, "a", []string{"charts/b must hold it"}},
		{"a defect further down", map[string]string{
			"a": chartYAML("a", "1.0.0", "b * file://../b"), "b": chartYAML("b", "1.0.0", "c ^2 file://../c"), "c": chartYAML("c", "1.0.0"),
		}, "a", []string{`dependency "c" "^2" of "b" from "file://../c"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := completed(t, newSupply(t, ""), yard(c.charts), c.dir)
			demandFailure(t, err, c.says...)
		})
	}
}

// TestADirectoryOfTheMachine: what is beside the source is out of reach also
// when the tree is a real directory.
func TestADirectoryOfTheMachine(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, yard(map[string]string{
		"secret": chartYAML("secret", "1.0.0"), "source/a": chartYAML("a", "1.0.0", "secret * file://../../secret"),
	})); err != nil {
		t.Fatal(err)
	}
	_, err := completed(t, newSupply(t, ""), os.DirFS(root+"/source"), "a")
	demandFailure(t, err, "leads out of the source")
}
