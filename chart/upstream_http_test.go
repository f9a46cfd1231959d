package chart

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "web-app": true, "a.b": true, "team/app": true, "a/b.c/d": true, "0": true, "-": true,
		"": false, "App": false, "a//b": false, "/a": false, "a/": false, "..": false, "a..b": false, "../a": false, "a/../b": false, ".a": false,
		"a.": false, "a/.b": false, "a_b": false, "a b": false, "a\n": false, "a\x00": false, "ä": false, "a@b": false, "a:b": false, "a\\b": false,
		strings.Repeat("a", 253): true, strings.Repeat("a", 254): false,
	} {
		if err := checkName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		} else if err != nil && (!errors.Is(err, source.ErrInvalid) || strings.ContainsAny(err.Error(), "\n\x00")) {
			t.Errorf("%q: %q", name, err)
		}
	}
}

func TestFind(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	archives := map[string][]byte{}
	for _, v := range []string{"0.1.0", "0.2.0", "1.0.0-rc.1", "v0.3.0", "0.1.5+a", "0.1.5+b"} {
		archives[v] = c.Put(testenv.ChartVersion{Name: "app", Version: v})
	}
	b := newBench(t, c.URL(), c)
	for want, version := range map[string]string{"": "v0.3.0", "*": "v0.3.0", "0.2.0": "0.2.0", "~0.1.0": "0.1.5+b", "0.1.5+a": "0.1.5+a", ">=0.0.0-0": "1.0.0-rc.1", "0.3.0": "v0.3.0"} {
		o, got, err := b.get("app", want)
		if err != nil || o.version != version || o.name != "app" || !bytes.Equal(got, archives[version]) || !strings.HasPrefix(o.identity, "sha256:") {
			t.Errorf("%q: %+v, %v, want %s", want, o, err, version)
		}
	}
}

func TestNotFound(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	b := newBench(t, c.URL(), c)
	for _, row := range []struct {
		name, want string
		stalls     bool
		says       string
	}{
		{"app", "2.x", false, `newest are "1.0.0"`},
		{"other", "*", false, "chart other: there is no chart of this name: look at its spelling"},
		{"app", "one", true, `version "one" is neither in the index nor a range`},
	} {
		_, err := b.open().find(t.Context(), row.name, row.want)
		b.fails(err, source.StepResolve, "InvalidChartReference", row.stalls, row.says)
		if errors.Is(err, fs.ErrNotExist) == row.stalls {
			t.Errorf("%s %s: %v", row.name, row.want, err)
		}
	}
	b.text = []byte("<html>")
	_, err := b.open().find(t.Context(), "app", "*")
	b.fails(err, source.StepResolve, "IndexationFailed", false, "index of "+c.URL())
}

func TestDigest(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.1", Digest: strings.Repeat("0", 64)})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.2", Digest: "sha512:" + strings.Repeat("0", 128)})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.3", Digest: "n\x1bo"})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.4", Entry: map[string]any{"digest": nil}})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.5", Archive: testenv.ChartArchive(t, map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.4\n"})})
	c.Put(testenv.ChartVersion{Name: "other", Version: "1.0.0", Archive: testenv.ChartArchive(t, map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n"})})
	b := newBench(t, c.URL(), c)
	_, _, err := b.get("app", "1.0.1")
	b.fails(err, source.StepFetch, "ChartPullError", false, "chart app 1.0.1", "not what the index promises")
	for _, malformed := range []string{"1.0.2", "1.0.3"} {
		_, _, err = b.get("app", malformed)
		b.fails(err, source.StepResolve, "InvalidChartReference", false, "no version is within")
	}
	_, _, err = b.get("app", "1.0.5")
	b.fails(err, source.StepFetch, "ChartPullError", false, `holds chart "app" in version "1.0.4", not "app" in version "1.0.5"`)
	_, _, err = b.get("other", "1.0.0")
	b.fails(err, source.StepFetch, "ChartPullError", false, `holds chart "app" in version "1.0.0", not "other"`)

	before, _, err := b.get("app", "1.0.4")
	if err != nil || before.identity == "" {
		t.Fatal(before, err)
	}
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.4", Entry: map[string]any{"digest": nil}})
	b.text = c.Index()
	if after, _, err := b.get("app", "1.0.4"); err != nil || after.identity == before.identity {
		t.Error("it was published again, which nobody noticed", err)
	}
}
