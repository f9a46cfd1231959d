package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestChartHostileIndex serves indexes that are made to hurt who reads them:
// each is refused with an error that says why, and nothing is stored.
func TestChartHostileIndex(t *testing.T) {
	nested := func(depth int) string {
		return "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.0.0\n    urls: [web.tgz]\n    deep: " + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "\n"
	}
	laughs := "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	for name, c := range map[string]struct {
		index  string
		defect *testenv.Defect
		said   string
	}{
		"endless versions": {"", &testenv.Defect{Phase: testenv.GetIndex, Do: testenv.Endless}, "versions"},
		"endless":          {"", &testenv.Defect{Phase: testenv.GetIndex, Do: testenv.Serve, Handler: endless}, "limit"},
		"one long name":    {"", &testenv.Defect{Phase: testenv.GetIndex, Do: testenv.Swell, After: 64 << 20}, ""},
		"anchors":          {"apiVersion: v1\n" + laughs + "entries:\n  web: *a12\n", nil, "line"},
		"anchor in itself": {"apiVersion: v1\nentries: &a\n  web: *a\n", nil, "line"},
		"depth":            {nested(100_000), nil, "line"},
		"no index":         {"<html>log in</html>\n", nil, ""},
		"another format":   {"apiVersion: v1\nentries: [web]\n", nil, "entries"},
		"NUL":              {"apiVersion: v1\nentries:\n  web:\x00\n", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.StartCharts(t, testenv.ChartsConfig{Defect: c.defect})
			if c.index != "" {
				s.SetIndex([]byte(c.index))
			}
			docs := []any{object("PkgRepository", "charts", map[string]any{"url": s.URL()}), chartOf("PkgRepository", "charts", "web", nil)}
			store := t.TempDir()
			got := fetchObjects(t, store, docs)
			ready := got.status["PkgRepository/charts"].condition("Ready")
			if got.code != 1 || !strings.HasPrefix(ready, "False ") || !strings.Contains(ready, c.said) || len(storedFiles(t, store)) != 0 {
				t.Errorf("exit code %d, Ready %q, stored %q", got.code, ready, storedFiles(t, store))
			}
		})
	}
}

// endless answers with an index that ends in comments, without end.
func endless(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	fmt.Fprint(w, "apiVersion: v1\nentries: {}\n")
	for comment := strings.Repeat("# and so on\n", 1000); ; {
		if _, err := fmt.Fprint(w, comment); err != nil {
			return
		}
	}
}

// TestChartHostileNames serves charts whose names, versions, digests and
// archives are not what they should be.
func TestChartHostileNames(t *testing.T) {
	s := testenv.StartCharts(t, testenv.ChartsConfig{})
	meta := func(name, version string) map[string]string {
		return map[string]string{"Chart.yaml": fmt.Sprintf("apiVersion: v2\nname: %q\nversion: %q\n", name, version)}
	}
	s.Put(testenv.ChartVersion{Name: "digest", Version: "1.0.0", Digest: strings.Repeat("0", 64)})
	s.Put(testenv.ChartVersion{Name: "other-name", Version: "1.0.0", Archive: testenv.ChartArchive(t, map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n"})})
	s.Put(testenv.ChartVersion{Name: "other-version", Version: "1.0.0", Files: meta("other-version", "2.0.0")})
	s.Put(testenv.ChartVersion{Name: "escapes", Version: "1.0.0", Files: meta("../../escapes", "1.0.0")})
	s.Put(testenv.ChartVersion{Name: "control", Version: "1.0.0", Files: meta("control\x1b[31m", "1.0.0")})
	s.Put(testenv.ChartVersion{Name: "bad-version", Version: "1.0.0", Files: meta("bad-version", "1.0.0/../../x")})
	s.Put(testenv.ChartVersion{Name: "bomb", Version: "1.0.0", Files: map[string]string{"files/zeros": strings.Repeat("\x00", 6<<20)}})
	s.Put(testenv.ChartVersion{Name: "bombs", Version: "1.0.0", Archive: bomb(t, "bombs", "\x00")})
	s.Put(testenv.ChartVersion{Name: "much", Version: "1.0.0", Archive: bomb(t, "much", rand.Text()+rand.Text())})
	s.Put(testenv.ChartVersion{Name: "html", Version: "1.0.0", Archive: []byte("<html>log in</html>")})
	s.Put(testenv.ChartVersion{Name: "path", Version: "1.0.0", Archive: testenv.ChartArchive(t, map[string]string{"path/Chart.yaml": "apiVersion: v2\nname: path\nversion: 1.0.0\n", "path/../../x": "x"})})
	s.Put(testenv.ChartVersion{Name: "no-chart", Version: "1.0.0", Archive: testenv.ChartArchive(t, map[string]string{"no-chart/values.yaml": "a: 1\n"})})
	s.Put(testenv.ChartVersion{Name: "lock", Version: "1.0.0", Archive: linked(t, "lock")})
	s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	repository := object("PkgRepository", "charts", map[string]any{"url": s.URL()})
	for name, said := range map[string]string{
		"digest": "digest", "other-name": "app", "other-version": "2.0.0", "escapes": "name", "control": "name", "bad-version": "version",
		"bomb": "5", "bombs": "compressed byte", "much": "104857600", "html": "", "path": "..", "no-chart": "Chart.yaml", "lock": "link",
	} {
		t.Run(name, func(t *testing.T) {
			refusedChart(t, []any{repository, chartOf("PkgRepository", "charts", name, nil)}, 1, said)
		})
	}
	for name, values := range map[string]string{"values path": "../../../etc/passwd", "absolute values path": "/etc/passwd", "values path within": "templates/../../x"} {
		t.Run(name, func(t *testing.T) {
			refusedChart(t, []any{repository, chartOf("PkgRepository", "charts", "web", map[string]any{"valuesFiles": []string{values}})}, 2, "alues")
		})
	}
	for chart, said := range map[string]string{"../web": "chart name", "/etc/web": "chart name", "web\x1b[31m": "spec.chart: must not hold control characters"} {
		t.Run(fmt.Sprintf("%q", chart), func(t *testing.T) {
			refusedChart(t, []any{repository, chartOf("PkgRepository", "charts", chart, nil)}, 2, said)
		})
	}
	// An index with names that are none lists what is left.
	s.SetIndex([]byte("apiVersion: v1\nentries:\n  ../../x:\n  - {name: ../../x, version: 1.0.0, urls: [x.tgz]}\n  \"e\\e[31m\":\n  - {name: \"e\\e[31m\", version: 1.0.0, urls: [x.tgz]}\n" +
		"  web:\n  - {name: web, version: 1.0.0/../.., urls: [web-1.0.0.tgz]}\n  - {name: web, version: \"1.0.1\\e[2J\", urls: [web-1.0.0.tgz]}\n  - {name: web, version: 1.0.0, urls: [web-1.0.0.tgz], description: \"red \\e[31m\"}\n"))
	fetchedChart(t, t.TempDir(), []any{repository, chartOf("PkgRepository", "charts", "web", nil)})
	out, err := headgate(t.Context(), t, "index", "search", s.URL(), "web").Output()
	if err != nil || strings.Contains(string(out), "\x1b") || strings.Count(string(out), "web") != 1 {
		t.Errorf("index search: %q, %v", out, err)
	}
}

// bomb returns the archive of a chart of 40 files of 4 MiB, of a text again and again.
func bomb(t *testing.T, name, text string) []byte {
	t.Helper()
	files := map[string]string{name + "/Chart.yaml": "apiVersion: v2\nname: " + name + "\nversion: 1.0.0\n"}
	content := strings.Repeat(text, 4<<20/len(text))
	for i := range 40 {
		files[fmt.Sprintf("%s/files/%d", name, i)] = content
	}
	return testenv.ChartArchive(t, files)
}

// linked returns the archive of a chart whose Chart.lock is a symbolic link.
func linked(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for file, text := range map[string]string{"Chart.yaml": "apiVersion: v2\nname: " + name + "\nversion: 1.0.0\n", "values.yaml": "a: 1\n", "more.yaml": "b: 2\n"} {
		check(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name + "/" + file, Mode: 0o644, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		check(t, err)
	}
	check(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name + "/Chart.lock", Linkname: "/root/.bashrc"}))
	check(t, w.Close())
	check(t, z.Close())
	return b.Bytes()
}

// TestChartHostileBuild builds charts from Git that would escape, go round in
// circles, or show credentials to another host.
func TestChartHostileBuild(t *testing.T) {
	listener := testenv.StartCharts(t, testenv.ChartsConfig{})
	listener.Put(testenv.ChartVersion{Name: "cache", Version: "1.0.0"})
	owner := testenv.StartCharts(t, testenv.ChartsConfig{Username: "alice", Password: "s3cret"})
	owner.Put(testenv.ChartVersion{Name: "cache", Version: "1.0.0", URLs: []string{listener.URLOf("cache-1.0.0.tgz")}})
	needs := func(name, dependency, version, repository string) fstest.MapFS {
		return fstest.MapFS{"Chart.yaml": {Data: fmt.Appendf(nil, "apiVersion: v2\nname: %s\nversion: 1.0.0\ndependencies:\n- {name: %s, version: %q, repository: %q}\n", name, dependency, version, repository)}}
	}
	all := map[string]fstest.MapFS{
		"itself":  needs("itself", "itself", "1.0.0", "file://."),
		"ring-a":  needs("ring-a", "ring-b", "1.0.0", "file://../ring-b"),
		"ring-b":  needs("ring-b", "ring-a", "1.0.0", "file://../ring-a"),
		"escapes": needs("escapes", "root", "1.0.0", "file://../../../../root"),
		"host":    needs("host", "cache", "1.0.0", listener.URL()),
		"links":   needs("links", "cache", "1.0.0", owner.URL()),
		"absent":  needs("absent", "cache", "^9", listener.URL()),
		"aliases": needs("aliases", "cache", "^1", "@charts"),
		"scheme":  needs("scheme", "cache", "^1", "ssh://example.org/charts"),
		"stale":   needs("stale", "cache", "1.0.0", listener.URL()),
		"values":  {"Chart.yaml": {Data: []byte("apiVersion: v2\nname: values\nversion: 1.0.0\n")}, "values.yaml": {Data: []byte("a: 1\n")}},
	}
	all["stale"]["Chart.lock"] = &fstest.MapFile{Data: []byte("dependencies:\n- name: cache\n  repository: " + listener.URL() + "\n  version: 1.0.0\ndigest: sha256:" + strings.Repeat("0", 64) + "\ngenerated: \"2024-01-01T00:00:00Z\"\n")}
	files := fstest.MapFS{}
	for _, link := range []string{"charts/values/link.yaml", "charts/values/Chart.lock"} {
		files[link] = &fstest.MapFile{Data: []byte("/etc/passwd"), Mode: 0o777 | fs.ModeSymlink}
	}
	for name, chart := range all {
		for path, file := range chart {
			files["charts/"+name+"/"+path] = &fstest.MapFile{Data: file.Data, Mode: 0o644}
		}
	}
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Message: "charts", Files: files})
	base := []any{
		object("GitRepository", "git", map[string]any{"url": serveGit(t, repo).plain + "/public/repo.git"}),
		object("PkgRepository", "owner", map[string]any{"url": owner.URL(), "secretRef": keys{"name": "owner"}}), secret("owner", keys{"username": "alice", "password": "s3cret"}),
	}
	for name, c := range map[string]struct {
		code  int
		words []string
	}{
		"itself": {1, []string{"itself"}}, "ring-a": {1, []string{"ring-a", "ring-b"}}, "escapes": {1, []string{"file://"}},
		"absent": {1, []string{"^9", "cache"}}, "aliases": {1, []string{"@charts"}}, "scheme": {1, []string{"ssh"}}, "stale": {1, []string{"Chart.lock"}},
	} {
		t.Run(name, func(t *testing.T) {
			refusedChart(t, append(base[:len(base):len(base)], chartOf("GitRepository", "git", "charts/"+name, nil)), c.code, c.words...)
		})
	}
	for _, values := range []string{"../../etc/passwd", "/etc/passwd", "charts/values/link.yaml"} {
		t.Run("values "+values, func(t *testing.T) {
			refusedChart(t, append(base[:len(base):len(base)], chartOf("GitRepository", "git", "charts/values", map[string]any{"valuesFiles": []string{"charts/values/values.yaml", values}})), 2, "alues")
		})
	}
	for _, path := range []string{"../x", "charts/../../x", "charts/none"} {
		t.Run("path "+path, func(t *testing.T) {
			refusedChart(t, append(base[:len(base):len(base)], chartOf("GitRepository", "git", path, nil)), 2, "spec.chart")
		})
	}
	// A link in a source is not followed, but left out.
	archive := unpacked(t, fetchedChart(t, t.TempDir(), append(base[:len(base):len(base)], chartOf("GitRepository", "git", "charts/values", nil))))
	if text, there := archive["values/Chart.lock"]; there || archive["values/values.yaml"] != "a: 1\n" {
		t.Errorf("Chart.lock has become %q of %q", text, archive)
	}
	// Who is not the owner of a password is sent it only where that is asked for.
	for name, c := range map[string]struct {
		pass bool
		sent int
	}{"host": {false, 0}, "links": {false, 0}, "links ": {true, 1}} {
		docs := append(base[:1:1], base[2], object("PkgRepository", "owner", map[string]any{"url": owner.URL(), "secretRef": keys{"name": "owner"}, "passCredentials": c.pass}))
		listener.Reset()
		fetchedChart(t, t.TempDir(), append(docs, chartOf("GitRepository", "git", "charts/"+strings.TrimSpace(name), nil)))
		sent := 0
		for _, r := range listener.Requests() {
			if r.Authorization != "" {
				sent++
			}
		}
		if listener.Count() == 0 || sent != c.sent {
			t.Errorf("%s: the other host was shown credentials in %d of %d requests, want %d", name, sent, listener.Count(), c.sent)
		}
	}
}
