package chart_test

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

const (
	pulledConditions   = "Ready=True/ChartPullSucceeded ArtifactInStorage=True/ChartPullSucceeded"
	verifiedConditions = "Ready=True/ChartPullSucceeded SourceVerified=True/Succeeded ArtifactInStorage=True/ChartPullSucceeded"
)

// TestProvenanceLife: while a repository over HTTP asks for provenance files, a chart is
// verified even if its own spec does not ask for it.
func TestProvenanceLife(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	ann, bob := chart.NewKey(t, at, 0), chart.NewKey(t, at, 0)
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	signed := func(version string, archive []byte) {
		server.PutFile("app-"+version+".tgz.prov", chart.SignText(t, ann, at, chart.Statement("app", version, archive)))
	}
	first := server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	w := newChartSetup(t)
	ring := func(data []byte) { w.secrets["apps/ring"] = source.Secret{Data: map[string][]byte{"keys": data}} }
	repo := w.addIndexRepository(server)
	c := newPkgChart("PkgRepository/src", "app", nil)
	want := func(conditions, message string) {
		t.Helper()
		testenv.Equal(t, conditionsOf(c), conditions, "conditions")
		if got := c.Status.Condition("SourceVerified").Message; !strings.HasPrefix(got, message) {
			t.Errorf("SourceVerified says %q", got)
		}
	}
	w.run(c, source.Stored)
	want(pulledConditions, "")
	before := *c.Artifact()

	repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: source.LocalReference{Name: "ring"}}
	w.fails(c, &before, source.Failed, "VerificationError", "apps/ring")
	want("Ready=False/VerificationError Reconciling=True/ProgressingWithRetry SourceVerified=False/VerificationError ArtifactInStorage=True/ChartPullSucceeded", "spec.verify.secretRef of the PkgRepository")
	ring(chart.PublicKeys(t, ann, true))
	w.fails(c, &before, source.Failed, "ChartVerificationError", "there is no provenance file")
	want("Ready=False/ChartVerificationError Reconciling=True/ProgressingWithRetry BuildFailed=True/ChartVerificationError SourceVerified=False/ChartVerificationError ArtifactInStorage=True/ChartPullSucceeded", "chart app 1.0.0")
	signed("1.0.0", first)
	if result := w.run(c, source.Stored); result.Why != "the artifact was not verified as the spec asks now" || result.Verification.Mode != "provenance" {
		t.Errorf("%+v", result)
	}
	want(verifiedConditions, "verified provenance of chart app in version 1.0.0 with key")
	w.run(c, source.Unchanged)
	want(verifiedConditions, "verified provenance")

	ring(chart.PublicKeys(t, bob, true))
	w.fails(c, &before, source.Failed, "ChartVerificationError", "none of the trusted keys")
	ring(append(chart.PublicKeys(t, bob, false), chart.PublicKeys(t, ann, false)...))
	w.run(c, source.Stored)
	want(verifiedConditions, "verified provenance")
	ring(chart.PublicKeys(t, ann, false))
	testenv.Equal(t, w.run(c, source.Stored).Why, "the trusted keys changed")

	server.Put(testenv.ChartVersion{Name: "app", Version: "1.1.0"})
	w.refresh(repo, source.Stored)
	before = *c.Artifact()
	w.fails(c, &before, source.Failed, "ChartVerificationError", "there is no provenance file")
	server.Remove("app", "1.1.0")
	w.refresh(repo, source.Stored)
	w.run(c, source.Stored) // the rejected version is gone, and the remaining one was verified before
	want(verifiedConditions, "verified provenance")

	repo.Spec.Verify = nil
	w.run(c, source.Unchanged)
	want(pulledConditions, "")
}

// TestSignedCharts verifies a chart in a registry by the digest that is fetched.
func TestSignedCharts(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	key, other := testenv.NewCosign(t, 1), testenv.NewCosign(t, 2)
	w := newChartSetup(t)
	w.technologies = map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})}
	w.addOCIRepository(g)
	keys := func(texts ...[]byte) {
		data := map[string][]byte{}
		for i, text := range texts {
			data[string(rune('a'+i))+".pub"] = text
		}
		w.secrets["apps/keys"] = source.Secret{Data: data}
	}
	keys(key.Public())
	publish := func(version string) {
		subject := push(g, version, appArchive(t, version))
		key.Sign(g, "team/app", subject, subject.Digest)
	}
	publish("1.0.0")
	c := newPkgChart("PkgRepository/src", "app", func(s *source.PkgChartSpec) {
		s.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
	})
	w.run(c, source.Stored)
	testenv.Equal(t, conditionsOf(c), verifiedConditions, "conditions")
	w.run(c, source.Unchanged)
	before := *c.Artifact()

	push(g, "1.1.0", appArchive(t, "1.1.0"))
	g.Reset()
	w.fails(c, &before, source.Failed, "ChartVerificationError", "is not signed")
	testenv.Equal(t, g.Count(testenv.GetBlob), 0, "blobs were asked for before the chart was verified")
	publish("1.1.0")
	w.run(c, source.Stored)

	keys(other.Public())
	before = *c.Artifact()
	w.fails(c, &before, source.Failed, "ChartVerificationError", "1.1.0")
	keys(other.Public(), key.Public())
	w.run(c, source.Stored)

	c.Spec.Verify.Provider = "notation"
	before = *c.Artifact()
	w.fails(c, &before, source.Stalled, "VerificationError", "this program verifies with cosign")
	c.Spec.Verify, c.Metadata.Generation = nil, 4
	w.run(c, source.Unchanged)
	testenv.Equal(t, conditionsOf(c), pulledConditions, "conditions")
}

// TestKeysThatChangeMeanwhile gets no verdict if the keys change between Resolve and
// Verify.
func TestKeysThatChangeMeanwhile(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	ann, bob := chart.NewKey(t, at, 0), chart.NewKey(t, at, 0)
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	archive := server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	server.PutFile("app-1.0.0.tgz.prov", chart.SignText(t, ann, at, chart.Statement("app", "1.0.0", archive)))
	w := newChartSetup(t)
	w.secrets["apps/ring"] = source.Secret{Data: map[string][]byte{"keys": chart.PublicKeys(t, bob, false)}}
	w.addIndexRepository(server).Spec.Verify = &source.PkgRepositoryVerification{SecretRef: source.LocalReference{Name: "ring"}}
	o := w.origin(newPkgChart("PkgRepository/src", "app", nil))
	rev, _, err := o.Resolve(t.Context(), nil)
	if err != nil || rev.Verify != "provenance" {
		t.Fatal(rev, err)
	}
	w.secrets["apps/ring"] = source.Secret{Data: map[string][]byte{"keys": chart.PublicKeys(t, ann, false)}}
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	defer c.Close()
	_, err = c.Verify(t.Context())
	testenv.ErrorSays(t, err, "the keys changed")
}

// TestVersionsThatMove resolves a version again if it changed between Resolve and Open.
func TestVersionsThatMove(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	w := newChartSetup(t)
	w.addOCIRepository(g)
	push(g, "1.0.0", appArchive(t, "1.0.0"))
	c := newPkgChart("PkgRepository/src", "app", nil)
	rev, _, err := w.origin(c).Resolve(t.Context(), nil)
	must(t, err)
	push(g, "1.1.0", appArchive(t, "1.1.0"))
	_, err = w.origin(c).Open(t.Context(), rev)
	testenv.ErrorIs(t, err, source.ErrMoved)
}

func TestPublication(t *testing.T) {
	archive := testenv.ChartArchive(t, map[string]string{
		"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.2.0+3\ndescription: An app.\n", "app/values.yaml": "a: 1\n",
	})
	p, err := chart.Publication(bytes.NewReader(archive), artifact.Limits{})
	must(t, err)
	testenv.Equal(t, string(p.Config), `{"name":"app","version":"1.2.0+3","description":"An app.","apiVersion":"v2"}`, "config")
	if p.ConfigType != "application/vnd.cncf.helm.config.v1+json" || p.LayerType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Errorf("config %s, layer %s", p.ConfigType, p.LayerType)
	}
	testenv.Equal(t, strings.Join(p.Tags, " "), "1.2.0_3", "tags")
	want := map[string]string{
		"org.opencontainers.image.title": "app", "org.opencontainers.image.version": "1.2.0+3", "org.opencontainers.image.description": "An app.",
	}
	testenv.Equal(t, p.Annotations, want, "annotations")
	if _, err := chart.Publication(strings.NewReader("no chart"), artifact.Limits{}); err == nil {
		t.Error("what is no chart is published")
	}
}

// A keyed row changes one field of a PkgRepository, or one value of a Secret that it names.
type keyed struct {
	field string
	value string // of the Secret
	edit  func(w *chartSetup, spec *source.PkgRepositorySpec)
}

// unusedFields holds the fields that do not affect requests for a chart.
var unusedFields = map[string]bool{"Interval": true, "Timeout": true, "Suspend": true, "Verify": true, "AccessFrom": true}

// TestCacheKeyHoldsWhatDecidesARequest fills a cache and then changes one field at a time:
// the chart must be requested again, as with an empty cache.
func TestCacheKeyHoldsWhatDecidesARequest(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("ann")
	secret := func(name, value string, data []byte) func(*chartSetup, *source.PkgRepositorySpec) {
		return func(w *chartSetup, _ *source.PkgRepositorySpec) { w.secrets["apps/"+name].Data[value] = data }
	}
	t.Run("index", func(t *testing.T) {
		server := testenv.StartCharts(t, testenv.ChartsConfig{CA: ca, Allow: func(r *http.Request) bool {
			_, password, _ := r.BasicAuth()
			return password == chartCanary || strings.HasSuffix(r.URL.Path, "/index.yaml")
		}})
		away := strings.Replace(server.URLOf("app.tgz"), "127.0.0.1", "localhost", 1)
		server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", File: "app.tgz", URLs: []string{away}})
		keyedTest{
			spec: source.PkgRepositorySpec{URL: server.URL(), SecretRef: &source.LocalReference{Name: "login"},
				CertSecretRef: &source.LocalReference{Name: "cert"}, PassCredentials: true},
			requests:     func() int { return server.Count(testenv.GetChart) },
			fails:        "401",
			unusedFields: map[string]bool{"Type": true, "Provider": true, "Insecure": true}, // of type oci
			rows: []keyed{
				{"URL", "", func(_ *chartSetup, s *source.PkgRepositorySpec) { s.URL += "?a=b" }},
				{"SecretRef", "", func(_ *chartSetup, s *source.PkgRepositorySpec) { s.SecretRef = nil }},
				{"SecretRef", "username", secret("login", "username", []byte("other"))},
				{"SecretRef", "password", secret("login", "password", []byte("other"))},
				{"CertSecretRef", "", func(_ *chartSetup, s *source.PkgRepositorySpec) {
					s.CertSecretRef = &source.LocalReference{Name: "more"}
				}},
				{"CertSecretRef", "ca.crt", secret("cert", "ca.crt", append(ca.PEM(), testenv.NewCA(t).PEM()...))},
				{"PassCredentials", "", func(_ *chartSetup, s *source.PkgRepositorySpec) { s.PassCredentials = false }},
			},
		}.run(t, map[string]source.Secret{
			"apps/login": {Data: map[string][]byte{"username": []byte("user"), "password": []byte(chartCanary)}},
			"apps/cert":  {Data: map[string][]byte{"ca.crt": ca.PEM()}},
			"apps/more":  {Data: map[string][]byte{"ca.crt": ca.PEM(), "tls.crt": cert, "tls.key": key}},
		})
	})
	t.Run("registry", func(t *testing.T) {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{})
		for _, name := range []string{"team/app", "other/app"} {
			g.Push(name, "1.0.0", testenv.Manifest{
				Config: &testenv.Blob{MediaType: "application/vnd.cncf.helm.config.v1+json", Data: []byte("{}")},
				Layers: []testenv.Blob{{MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Data: testenv.TarGzip(t, chartWithTree("app", "1.0.0", nil)).Data}},
			})
		}
		keyedTest{
			spec: source.PkgRepositorySpec{URL: g.URL("team"), Type: source.RepositoryOCI, Insecure: true,
				SecretRef: &source.LocalReference{Name: "login"}, CertSecretRef: &source.LocalReference{Name: "cert"}},
			requests:     func() int { return g.Count(testenv.GetBlob) },
			fails:        "HTTP response to HTTPS client", // even the manifest cannot be fetched
			unusedFields: map[string]bool{"PassCredentials": true, "Type": true},
			rows: []keyed{
				{"URL", "", func(_ *chartSetup, s *source.PkgRepositorySpec) { s.URL = g.URL("other") }},
				{"SecretRef", "", func(_ *chartSetup, s *source.PkgRepositorySpec) { s.SecretRef = nil }},
				{"SecretRef", "username", secret("login", "username", []byte("other"))},
				{"SecretRef", "password", secret("login", "password", []byte("other"))},
				{"CertSecretRef", "", func(_ *chartSetup, s *source.PkgRepositorySpec) { s.CertSecretRef = nil }},
				{"CertSecretRef", "ca.crt", secret("cert", "ca.crt", append(ca.PEM(), testenv.NewCA(t).PEM()...))},
				{"Insecure", "", func(_ *chartSetup, s *source.PkgRepositorySpec) { s.Insecure = false }},
				{"Provider", "", func(_ *chartSetup, s *source.PkgRepositorySpec) { s.Provider, s.SecretRef = "gcp", nil }},
			},
		}.run(t, map[string]source.Secret{
			"apps/login": {Data: map[string][]byte{"username": []byte("user"), "password": []byte(chartCanary)}},
			"apps/cert":  {Data: map[string][]byte{"ca.crt": ca.PEM()}},
		})
	})
}

// A keyedTest holds the parameters of the test for one type of repository.
type keyedTest struct {
	spec         source.PkgRepositorySpec
	requests     func() int // requests for a chart so far
	fails        string     // part of the error if the server refuses
	unusedFields map[string]bool
	rows         []keyed
}

func (k keyedTest) run(t *testing.T, secrets map[string]source.Secret) {
	covered := map[string]bool{}
	for _, r := range k.rows {
		covered[r.field] = true
	}
	for f := range reflect.TypeFor[source.PkgRepositorySpec]().Fields() {
		if !covered[f.Name] && !k.unusedFields[f.Name] && !unusedFields[f.Name] {
			t.Errorf("spec.%s: say whether it decides a request for a chart", f.Name)
		}
	}
	for _, r := range k.rows {
		t.Run(strings.Trim(r.field+" "+r.value, " "), func(t *testing.T) {
			cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
			must(t, err)
			defer cache.Close()
			noEdit := func(*chartSetup, *source.PkgRepositorySpec) {}
			if n, err := k.fetch(t, cache, secrets, noEdit); n != 1 || err != nil {
				t.Fatalf("an empty cache: %d requests, error %v", n, err)
			}
			if n, err := k.fetch(t, cache, secrets, noEdit); n != 0 || err != nil {
				t.Fatalf("a warm cache: %d requests, error %v", n, err)
			}
			n, err := k.fetch(t, cache, secrets, r.edit)
			if n == 0 && (err == nil || !strings.Contains(err.Error(), k.fails)) {
				t.Errorf("the chart came out of the cache: error %v", err)
			}
			if r.field == "PassCredentials" && (err == nil || !strings.Contains(err.Error(), k.fails)) {
				t.Errorf("without passCredentials: error %v, want %s", err, k.fails)
			}
		})
	}
}

// fetch reconciles the chart in a new store, and returns the number of requests for it.
func (k keyedTest) fetch(t *testing.T, cache *artifact.Cache, secrets map[string]source.Secret, edit func(*chartSetup, *source.PkgRepositorySpec)) (int, error) {
	w := newChartSetup(t, chartCanary)
	for name, s := range secrets {
		w.secrets[name] = source.Secret{Type: s.Type, Data: map[string][]byte{}}
		for key, value := range s.Data {
			w.secrets[name].Data[key] = value
		}
	}
	repo := &source.PkgRepository{Spec: k.spec}
	edit(w, &repo.Spec)
	w.add(repo, "charts")
	env := w.env()
	env.Cache = cache
	env.Login = func(context.Context, source.LoginRequest) (source.Credential, error) {
		return source.Credential{Username: "user", Password: chartCanary}, nil
	}
	if repo.Spec.Type != source.RepositoryOCI {
		_, err := w.Reconcile(repo, chart.NewRepository(repo, env))
		must(t, err)
	}
	before := k.requests()
	c := newPkgChart("PkgRepository/charts", "app", nil)
	_, err := w.Reconcile(c, chart.New(c, env, nil))
	return k.requests() - before, err
}
