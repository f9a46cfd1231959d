package chart

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"
	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// TestLocksOfHelm reads locks that helm 3.22 wrote, and one that it accepts for
// compatibility with helm 2.
func TestLocksOfHelm(t *testing.T) {
	names, err := filepath.Glob("testdata/locks/*.txtar")
	if err != nil || len(names) != 6 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			must(t, err)
			tree := fstest.MapFS{}
			for _, f := range archive.Files {
				tree[f.Name] = &fstest.MapFile{Data: f.Data}
			}
			c := openChart(t, tree)
			if err := checkLock(c); err != nil {
				t.Errorf("%v: want %s, have %q", err, c.Lock.Digest, lockDigests(c))
			}
			for defect, spoil := range staleLockEdits {
				c := openChart(t, tree)
				spoil(c)
				if err := checkLock(c); err == nil || !strings.Contains(err.Error(), "run helm dependency update") {
					t.Errorf("%s: %v", defect, err)
				}
			}
		})
	}
}

func openChart(t *testing.T, tree fstest.MapFS) *bundle.Chart {
	t.Helper()
	c, err := bundle.Open(tree, ".", artifact.Limits{})
	must(t, err)
	return c
}

// staleLockEdits holds the changes after which a lock no longer matches its chart.
var staleLockEdits = map[string]func(c *bundle.Chart){
	"another range":      func(c *bundle.Chart) { c.Metadata.Dependencies[0].Version = "*" },
	"another condition":  func(c *bundle.Chart) { c.Metadata.Dependencies[0].Condition += "x" },
	"another repository": func(c *bundle.Chart) { c.Metadata.Dependencies[0].Repository = "https://other.example" },
	"one more": func(c *bundle.Chart) {
		c.Metadata.Dependencies = append(c.Metadata.Dependencies, &chart.Dependency{Name: "more"})
	},
	"one less":               func(c *bundle.Chart) { c.Metadata.Dependencies = c.Metadata.Dependencies[1:] },
	"no digest":              func(c *bundle.Chart) { c.Lock.Digest = "" },
	"empty entry":            func(c *bundle.Chart) { c.Lock.Dependencies[0] = nil },
	"another name in lock":   func(c *bundle.Chart) { c.Lock.Dependencies[0].Name = "other"; redigest(c) },
	"version not admitted":   func(c *bundle.Chart) { c.Lock.Dependencies[0].Version = "0.0.1"; redigest(c) },
	"unknown scheme in lock": func(c *bundle.Chart) { c.Lock.Dependencies[0].Repository = "ftp://x"; redigest(c) },
}

// redigest gives the lock of c its matching digest.
func redigest(c *bundle.Chart) { c.Lock.Digest = lockDigests(c)[0] }

// TestUnneededStaleLock ignores a stale lock if no dependency is missing, as
// consumers do.
func TestUnneededStaleLock(t *testing.T) {
	c := &bundle.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "c", Dependencies: []*chart.Dependency{{Name: "a", Version: "^1", Repository: "@r"}}},
		Lock:     &chart.Lock{Digest: "sha256:stale"},
	}
	if missing, err := missingDependencies(c, []*chart.Metadata{{Name: "a", Version: "1.0.0"}}); err != nil || len(missing) != 0 {
		t.Errorf("%v, %v", missing, err)
	}
	_, err := missingDependencies(c, nil)
	demandFailure(t, err, "Chart.lock is out of sync with Chart.yaml", `"c"`)
	c.Metadata.APIVersion = "v1"
	_, err = missingDependencies(c, nil)
	demandFailure(t, err, "requirements.lock is out of sync with requirements.yaml")
}

// TestManyChartsOfOneName would take very long if each range were parsed again for each
// chart.
func TestManyChartsOfOneName(t *testing.T) {
	measure.WithoutRace(t)
	c := &bundle.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "c"}}
	for range maxListed {
		c.Metadata.Dependencies = append(c.Metadata.Dependencies, &chart.Dependency{Name: "a", Version: strings.Repeat(">1,", 20) + ">1", Repository: "file://x"})
	}
	vendored := slices.Repeat([]*chart.Metadata{{Name: "a", Version: "1.0.0"}}, maxListed)
	_, err := missingDependencies(c, vendored)
	demandFailure(t, err, "which it does not admit")
	_, err = missingDependencies(c, append(vendored, vendored[0]))
	demandFailure(t, err, `chart "c" has 501 dependencies, or charts in charts/`)
}

func TestHostileDependencies(t *testing.T) {
	const good = "- {name: a, version: ^1, repository: https://r.example, alias: b}"
	for defect, c := range map[string]struct{ list, says string }{
		"name leads up":         {`- {name: .., version: ^1, repository: https://r.example}`, "name"},
		"name is a path":        {`- {name: ../a, version: ^1, repository: https://r.example}`, "name"},
		"name is a path inside": {`- {name: a/b, version: ^1, repository: https://r.example}`, "name"},
		"name with backslash":   {`- {name: '..\a', version: ^1, repository: https://r.example}`, "name"},
		"name that is hidden":   {`- {name: _a, version: ^1, repository: https://r.example}`, "is not read from charts/"},
		"name with a dot":       {`- {name: .a, version: ^1, repository: https://r.example}`, "is not read from charts/"},
		"name of an archive":    {`- {name: a.tgz, version: ^1, repository: https://r.example}`, "is not read from charts/"},
		"no name":               {`- {version: ^1, repository: https://r.example}`, "name"},
		"nothing":               {`- null`, "null"},
		"alias is a path":       {`- {name: a, version: ^1, repository: https://r.example, alias: ../b}`, "alias"},
		"alias with line break": {`- {name: a, version: ^1, repository: https://r.example, alias: "a\n"}`, "alias"},
		"alias of two":          {good + "\n- {name: b, version: ^1, repository: https://r.example}", `more than one dependency with name or alias`},
		"version is none":       {`- {name: a, version: ../1, repository: https://r.example}`, "neither a version nor a range"},
		"scheme":                {`- {name: a, version: ^1, repository: ftp://r.example}`, "use a URL with http"},
		"scheme in capitals":    {`- {name: a, version: ^1, repository: FILE:///etc}`, "use a URL with http"},
		"name of a repository":  {`- {name: a, version: ^1, repository: stable}`, "use a URL with http"},
		"nameless alias":        {`- {name: a, version: ^1, repository: "@"}`, "use a URL with http"},
		"no host":               {`- {name: a, version: ^1, repository: "https://"}`, "use a URL with http"},
	} {
		text := "apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies:\n" + c.list + "\n"
		b, err := bundle.Open(fstest.MapFS{"Chart.yaml": {Data: []byte(text)}}, ".", artifact.Limits{})
		if err == nil {
			_, err = missingDependencies(b, nil)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%s: %v", defect, err)
		}
	}
}
