package chart

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// password must not appear anywhere.
const password = "cAnArY/+p4ss"

// An openerTest has an opener and the repository that it opens.
type openerTest struct {
	*testing.T
	opener *opener
	repo   *source.PkgRepository
	text   []byte // of the index
}

// newOpenerTest returns an openerTest for the repository at url, whose index is that of c.
func newOpenerTest(t *testing.T, url string, c *testenv.Charts) *openerTest {
	b := &openerTest{T: t, repo: &source.PkgRepository{}}
	b.repo.Metadata.Namespace, b.repo.Metadata.Name = "default", "charts"
	b.repo.Spec.URL, b.repo.Spec.Timeout = url, source.Duration(time.Minute)
	if c != nil {
		b.text = c.Index()
	}
	env := source.Env{Secrets: sourcetest.Secrets{
		"default/user": {Data: map[string][]byte{"username": []byte("ann"), "password": []byte(password)}},
	}}
	b.opener = &opener{env: env, secretReader: &transport.SecretReader{Namespace: "default", From: env.Secrets}}
	b.opener.technologies = map[string]oci.Technology{}
	return b
}

// open opens the repository.
func (b *openerTest) open() upstream {
	b.Helper()
	var index func(context.Context) (io.ReadCloser, error)
	if b.text != nil {
		index = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.text)), nil }
	}
	u, err := b.opener.open(b.Context(), b.repo, index)
	must(b, err)
	b.Cleanup(u.close)
	return u
}

// get finds and fetches a chart and returns its bytes.
func (b *openerTest) get(name, want string) (*selectedVersion, []byte, error) {
	b.Helper()
	u := b.open()
	o, err := u.find(b.Context(), name, want)
	if err != nil {
		return o, nil, err
	}
	a, err := u.fetch(b.Context(), o)
	if err != nil {
		return o, nil, err
	}
	return o, b.drain(a), nil
}

// drain returns the bytes of a and closes it.
func (b *openerTest) drain(a *bundle.Chart) []byte {
	b.Helper()
	var text bytes.Buffer
	if _, err := a.WriteTo(&text); err != nil {
		b.Error(err)
	}
	if err := a.Close(); err != nil {
		b.Error(err)
	}
	return text.Bytes()
}

// fails checks an error: its step, its reason, whether it stalls, its texts, and
// that it shows no credentials.
func (b *openerTest) fails(err error, step source.Step, reason string, stalls bool, texts ...string) {
	b.Helper()
	e, ok := errors.AsType[*source.StepError](err)
	if !ok || e.Step != step || e.Reason != reason || errors.Is(err, source.ErrInvalid) != stalls {
		b.Errorf("%v\n%+v, want %s %s, stalled %v", err, e, step, reason, stalls)
		return
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			b.Errorf("%v\nwant %q", err, s)
		}
	}
	if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "cAnArY") || strings.Contains(err.Error(), "\n") {
		b.Errorf("%q shows what it must not", err)
	}
}

func ref(name string) *source.LocalReference { return &source.LocalReference{Name: name} }

func TestNotFound(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	b := newOpenerTest(t, c.URL(), c)
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
	b := newOpenerTest(t, c.URL(), c)
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

// namedRepository returns a PkgRepository in namespace default. An oci URL uses plain HTTP.
func namedRepository(name, url, secret string) *source.PkgRepository {
	p := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: url, Insecure: true, Type: source.RepositoryOCI, Timeout: source.Duration(time.Minute)}}
	p.Metadata.Name, p.Metadata.Namespace = name, "default"
	if !strings.HasPrefix(url, "oci://") {
		p.Spec.Type, p.Spec.Insecure = "", false
	}
	if secret != "" {
		p.Spec.SecretRef = ref(secret)
	}
	return p
}

// TestLocalDirectory fetches charts from a local directory.
func TestLocalDirectory(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(filepath.Dir(dir), "outside.tgz")
	data := archiveOf(t, "app", "1.0.0")
	for name, where := range map[string]string{"app.tgz": dir, "sub/app.tgz": dir, "a b.tgz": dir, "outside.tgz": filepath.Dir(outside)} {
		file := filepath.Join(where, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, data, 0o600)))
	}
	defer os.Remove(outside)
	must(t, os.Symlink(outside, filepath.Join(dir, "link.tgz")))
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.PutFile("app.tgz", data)
	for url, want := range map[string]string{
		"app.tgz": "", "sub/app.tgz": "", "http://charts.example/stable/app.tgz": "", "a%20b.tgz": "", c.URLOf("app.tgz"): "",
		"%2e%2e/outside.tgz": "local directory", "link.tgz": "local directory", "missing.tgz": "local directory", "sub": "is no file", "app.tgz/x": "local directory",
	} {
		b := newOpenerTest(t, "http://charts.example/stable", nil)
		b.opener.env.Local = map[string]string{"http://charts.example/stable": dir}
		b.text = []byte(fmt.Sprintf("apiVersion: v1\nentries:\n  app:\n  - {name: app, version: 1.0.0, urls: ['%s']}\n", url))
		_, got, err := b.get("app", "1.0.0")
		if want == "" && (err != nil || !bytes.Equal(got, data)) {
			t.Errorf("%s: %v", url, err)
		}
		if want != "" {
			b.fails(err, source.StepFetch, "ChartPullError", false, want)
		}
	}
}

// chartImage returns a manifest as helm push makes it.
func chartImage(data []byte, extraLayers ...testenv.Blob) testenv.Manifest {
	return testenv.Manifest{
		Config: &testenv.Blob{MediaType: configType, Data: []byte("{}")},
		Layers: append([]testenv.Blob{{MediaType: contentType, Data: data}}, extraLayers...),
	}
}

// newRegistry returns an openerTest for the charts below HOST/team, and pushes versions of app there.
func newRegistry(t *testing.T, g *testenv.Registry, versions ...string) (*openerTest, map[string]ocispec.Descriptor) {
	b := newOpenerTest(t, g.URL("team"), nil)
	b.repo.Spec.Type, b.repo.Spec.Insecure = source.RepositoryOCI, true
	pushed := map[string]ocispec.Descriptor{}
	for _, v := range versions {
		pushed[v] = g.Push("team/app", tagOf(v), chartImage(archiveOf(t, "app", v)))
	}
	return b, pushed
}

func tagOf(version string) string {
	return string(bytes.ReplaceAll([]byte(version), []byte("+"), []byte("_")))
}

func TestRegistryFails(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	b, _ := newRegistry(t, g, "0.1.0")
	g.Push("team/app", "0.2.0", testenv.Manifest{Layers: []testenv.Blob{{MediaType: testenv.LayerTarGzip, Data: archiveOf(t, "app", "0.2.0")}}})
	g.Push("team/app", "0.3.0", chartImage(archiveOf(t, "app", "0.3.1")))
	g.Push("team/app", "0.4.0", chartImage([]byte("no chart")))
	g.Push("team/app", "0.5.0", testenv.Manifest{Config: &testenv.Blob{MediaType: configType, Data: []byte("{}")}})
	for _, row := range []struct {
		name, want string
		step       source.Step
		reason     string
		stalls     bool
		says       string
	}{
		{"app", "7.0.0", source.StepResolve, "ChartPullError", false, "team/app:7.0.0"},
		{"app", "7.x", source.StepResolve, "ChartPullError", false, `the newest are "0.5.0"`},
		{"app", "one", source.StepResolve, "InvalidChartReference", true, "is neither"},
		{"other", "*", source.StepResolve, "ChartPullError", false, "team/other"},
		{"app", "0.2.0", source.StepFetch, "ChartPullError", false, "it is no chart but of type"},
		{"app", "0.3.0", source.StepFetch, "ChartPullError", false, `holds chart "app" in version "0.3.1"`},
		{"app", "0.4.0", source.StepFetch, "ChartPullError", false, "layer sha256:"},
		{"app", "0.5.0", source.StepFetch, "ChartPullError", false, "no layer has the media type"},
	} {
		_, _, err := b.get(row.name, row.want)
		b.fails(err, row.step, row.reason, row.stalls, row.says)
		if missing := row.want == "7.0.0" || row.want == "7.x" || row.name == "other"; missing != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s %s: %v", row.name, row.want, err)
		}
	}
}

// TestRegistryOfOneChart rejects a URL with the name of the chart at its end, as in a URL
// copied from a registry.
func TestRegistryOfOneChart(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	newRegistry(t, g, "0.1.0")
	b := newOpenerTest(t, g.URL("team/app"), nil)
	b.repo.Spec.Type, b.repo.Spec.Insecure = source.RepositoryOCI, true
	_, _, err := b.get("app", "*")
	b.fails(err, source.StepResolve, "ChartPullError", false, "spec.url must not have the name of the chart at its end")
}

// TestMixedProvenance uses the provenance file in the registry that an index leads to.
func TestMixedProvenance(t *testing.T) {
	now := time.Now().Add(-time.Hour)
	ann := newKey(t, now, 0)
	data := archiveOf(t, "app", "1.0.0")
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: data, URLs: []string{g.URL("team/app:1.0.0")}})
	b := newOpenerTest(t, c.URL(), c)
	b.opener.env.Sources = &source.Inventory{Objects: []source.Object{namedRepository("team", g.URL("team"), "")}}
	b.repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: *ref("ring")}
	b.opener.env.Secrets.(sourcetest.Secrets)["default/ring"] = source.Secret{Data: map[string][]byte{"ann": publicKeyring(t, ann, true)}}
	good := signText(t, ann, now, statement("app", "1.0.0", data))
	for want, layers := range map[string][]testenv.Blob{
		"":                            {{MediaType: provType, Data: good}},
		"there is no provenance file": nil,
		"about chart \"other\"":       {{MediaType: provType, Data: signText(t, ann, now, statement("other", "1.0.0", data))}},
	} {
		g.Push("team/app", "1.0.0", chartImage(data, layers...))
		u := b.open()
		o, err := u.find(t.Context(), "app", "*")
		must(t, err)
		_, err = u.verify(t.Context(), o, nil)
		if want != "" {
			b.fails(err, source.StepVerify, "ChartVerificationError", false, want)
		} else if err != nil {
			t.Error(err)
		}
	}
}

// TestInvalidNamesAreNotRequested rejects an invalid spec.chart before any request to a
// registry.
func TestInvalidNamesAreNotRequested(t *testing.T) {
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	push(t, registry, "team", "app", "1.0.0")
	env := newOpener(t, repositoryObject("charts", registry.URL("team"), "")).env
	for name, valid := range map[string]bool{
		"app": true,
		"":    false, "App": false, "a//b": false, "/a": false, "a/": false, "..": false, "a..b": false, "../a": false, "a/../b": false, ".a": false,
		"a.": false, "a/.b": false, "a_b": false, "a b": false, "a\n": false, "a\x00": false, "ä": false, "a@b": false, "a:b": false, "a\\b": false,
		strings.Repeat("a", 254): false,
	} {
		registry.Reset()
		c := &source.PkgChart{Spec: source.PkgChartSpec{Chart: name, SourceRef: source.LocalChartSourceReference{Kind: "PkgRepository", Name: "charts"}}}
		c.Metadata.Namespace, c.Metadata.Name = "default", "app"
		source.Default(c)
		_, _, err := New(c, env, nil).Resolve(t.Context(), nil)
		if valid {
			if err != nil || registry.Count() == 0 {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		var step *source.StepError
		if !errors.As(err, &step) || step.Reason != "InvalidChartReference" || !errors.Is(err, source.ErrInvalid) || registry.Count() != 0 {
			t.Errorf("%q: %v after %d requests", name, err, registry.Count())
		}
	}
}

// withCache gives b a cache.
func (b *openerTest) withCache() {
	b.Helper()
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: b.TempDir()})
	must(b, err)
	b.Cleanup(func() { cache.Close() })
	b.opener.env.Cache = cache
}

// TestCache requests a chart for which the cache holds a different one.
func TestCache(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	data := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	c.Put(testenv.ChartVersion{Name: "other", Version: "1.0.0", Digest: fmt.Sprintf("%x", sha256.Sum256(data))})
	b := newOpenerTest(t, c.URL(), c)
	b.withCache()
	for _, requests := range []int{1, 0} {
		c.Reset()
		if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) || c.Count() != requests {
			t.Errorf("%d requests, want %d: %v", c.Count(), requests, err)
		}
	}
	_, _, err := b.get("other", "1.0.0") // its digest is that of app
	b.fails(err, source.StepFetch, "ChartPullError", false, "not what the index promises")
	next := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Files: map[string]string{"a": "b"}})
	b.text = c.Index()
	if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, next) {
		t.Error(err)
	}
}

// bomb returns the archive of a chart with a megabyte of zeros.
func bomb(t *testing.T) []byte {
	return testenv.ChartArchive(t, map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n", "app/zeros": strings.Repeat("\x00", 1<<20)})
}

// TestLimits limits the size of archives, and of what they unpack to.
func TestLimits(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: bomb(t)})
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	r, _ := newRegistry(t, g)
	g.Push("team/app", "1.0.0", chartImage(bomb(t)))
	for _, b := range []*openerTest{newOpenerTest(t, c.URL(), c), r} {
		if _, _, err := b.get("app", "1.0.0"); err != nil {
			t.Error(err)
		}
		for _, l := range []artifact.Limits{{Bytes: 1 << 19}, {FileBytes: 1 << 19}, {Entries: 1}, {Bytes: 100}} {
			b.opener.env.Limits = l
			_, _, err := b.get("app", "1.0.0")
			b.fails(err, source.StepFetch, "ChartPullError", false, "limit")
			if _, ok := errors.AsType[*artifact.LimitError](err); !ok {
				t.Error(err)
			}
		}
	}
	b := newOpenerTest(t, c.URL(), c)
	b.opener.env.Limits.Bytes = 4096
	c.Break(&testenv.Defect{Phase: testenv.GetChart, Do: testenv.OversizedBody, After: 64 << 20})
	_, _, err := b.get("app", "1.0.0")
	b.fails(err, source.StepFetch, "ChartPullError", false)
}

// TestDamagedDownload fetches charts that are damaged in transit.
func TestDamagedDownload(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	data := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	b := newOpenerTest(t, c.URL(), c)
	for name, d := range map[string]testenv.Defect{
		"empty": {Status: 200}, "gone": {Status: 410}, "range": {Status: 206, Body: string(data)}, "page": {Status: 200, Body: "<html>"},
		"short": {Status: 200, Body: string(data[:len(data)/2])}, "longer": {Status: 200, Body: string(data) + "x"},
	} {
		d.Phase = testenv.GetChart
		c.Break(&d)
		_, _, err := b.get("app", "1.0.0")
		b.fails(err, source.StepFetch, "ChartPullError", false, "chart app 1.0.0: ")
		if err == nil || d.Body != "" && d.Status == 200 && !strings.Contains(err.Error(), "not a valid chart") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Some servers declare the compression of the archive as that of the transfer.
	c.Break(&testenv.Defect{Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		w.Header().Set("Content-Encoding", "gzip")
		next.ServeHTTP(w, r)
	}})
	if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) {
		t.Error(err)
	}
}

// TestOCIURLsInIndex follows oci URLs in an index.
func TestOCIURLsInIndex(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "ann", Password: password})
	open := testenv.StartRegistry(t, testenv.RegistryConfig{})
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	data := archiveOf(t, "app", "1.0.0+b")
	d := g.Push("team/app", "1.0.0_b", chartImage(data))
	open.Push("team/app", "1.0.0_b", chartImage(data))
	put := func(digest, url string) *openerTest {
		c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0+b", Archive: data, Digest: digest, URLs: []string{url}})
		b := newOpenerTest(t, c.URL(), c)
		b.opener.env.Sources = &source.Inventory{Objects: []source.Object{namedRepository("else", g.URL("else"), "missing"), namedRepository("all", "oci://"+g.Host, "missing"), namedRepository("teams", g.URL("team"), "user"), namedRepository("root", open.URL("team"), "")}}
		return b
	}
	for name, row := range map[string]struct{ digest, url string }{
		"tag": {"", g.URL("team/app:1.0.0_b")}, "no tag": {"", g.URL("team/app")}, "digest": {"", g.URL("team/app@" + d.Digest.String())},
		"both": {"", g.URL("team/app:2@" + d.Digest.String())}, "index has the digest of the manifest": {d.Digest.Encoded(), g.URL("team/app:1.0.0_b")}, "without credentials": {"", open.URL("team/app")},
	} {
		if _, got, err := put(row.digest, row.url).get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := put(strings.Repeat("0", 64), g.URL("team/app"))
	_, _, err := b.get("app", "1.0.0")
	b.fails(err, source.StepFetch, "ChartPullError", false, "not what the index promises")
	for _, url := range []string{"oci://ann:cAnArY@" + g.Host + "/team/app", g.URL("team/app") + "?token=cAnArY", "oci://" + g.Host, g.URL("Team/app")} {
		b := put("", url)
		_, _, err := b.get("app", "1.0.0")
		b.fails(err, source.StepFetch, "ChartPullError", false, "oci://")
	}
}

var must = testenv.Must
