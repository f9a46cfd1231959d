package chart_test

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A keyed row changes one field of a PkgRepository, or one value of a Secret
// that it names.
type keyed struct {
	field string
	value string // of the Secret
	edit  func(w *workshop, spec *source.PkgRepositorySpec)
}

// idle are the fields that decide no request for a chart.
var idle = map[string]bool{"Interval": true, "Timeout": true, "Suspend": true, "Verify": true, "AccessFrom": true}

// TestCacheKeyHoldsWhatDecidesARequest warms a cache and changes one field after
// the other: the chart is asked for again, as with an empty cache.
func TestCacheKeyHoldsWhatDecidesARequest(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("ann")
	secret := func(name, value string, data []byte) func(*workshop, *source.PkgRepositorySpec) {
		return func(w *workshop, _ *source.PkgRepositorySpec) { w.secrets["apps/"+name].Data[value] = data }
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
			asked: func() int { return server.Count(testenv.GetChart) },
			fails: "401",
			idle:  map[string]bool{"Type": true, "Provider": true, "Insecure": true}, // of type oci
			rows: []keyed{
				{"URL", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.URL += "?a=b" }},
				{"SecretRef", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.SecretRef = nil }},
				{"SecretRef", "username", secret("login", "username", []byte("other"))},
				{"SecretRef", "password", secret("login", "password", []byte("other"))},
				{"CertSecretRef", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.CertSecretRef = &source.LocalReference{Name: "more"} }},
				{"CertSecretRef", "ca.crt", secret("cert", "ca.crt", append(ca.PEM(), testenv.NewCA(t).PEM()...))},
				{"PassCredentials", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.PassCredentials = false }},
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
				Layers: []testenv.Blob{{MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Data: testenv.TarGzip(t, wrapped("app", "1.0.0", nil)).Data}},
			})
		}
		keyedTest{
			spec: source.PkgRepositorySpec{URL: g.URL("team"), Type: source.RepositoryOCI, Insecure: true,
				SecretRef: &source.LocalReference{Name: "login"}, CertSecretRef: &source.LocalReference{Name: "cert"}},
			asked: func() int { return g.Count(testenv.GetBlob) },
			fails: "HTTP response to HTTPS client", // the manifest cannot be had either
			idle:  map[string]bool{"PassCredentials": true, "Type": true},
			rows: []keyed{
				{"URL", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.URL = g.URL("other") }},
				{"SecretRef", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.SecretRef = nil }},
				{"SecretRef", "username", secret("login", "username", []byte("other"))},
				{"SecretRef", "password", secret("login", "password", []byte("other"))},
				{"CertSecretRef", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.CertSecretRef = nil }},
				{"CertSecretRef", "ca.crt", secret("cert", "ca.crt", append(ca.PEM(), testenv.NewCA(t).PEM()...))},
				{"Insecure", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.Insecure = false }},
				{"Provider", "", func(_ *workshop, s *source.PkgRepositorySpec) { s.Provider, s.SecretRef = "gcp", nil }},
			},
		}.run(t, map[string]source.Secret{
			"apps/login": {Data: map[string][]byte{"username": []byte("user"), "password": []byte(chartCanary)}},
			"apps/cert":  {Data: map[string][]byte{"ca.crt": ca.PEM()}},
		})
	})
}

// A keyedTest is what one type of repository is tested with.
type keyedTest struct {
	spec  source.PkgRepositorySpec
	asked func() int // requests for a chart so far
	fails string     // what a run that the server refuses says
	idle  map[string]bool
	rows  []keyed
}

func (k keyedTest) run(t *testing.T, secrets map[string]source.Secret) {
	covered := map[string]bool{}
	for _, r := range k.rows {
		covered[r.field] = true
	}
	for f := range reflect.TypeFor[source.PkgRepositorySpec]().Fields() {
		if !covered[f.Name] && !k.idle[f.Name] && !idle[f.Name] {
			t.Errorf("spec.%s: say whether it decides a request for a chart", f.Name)
		}
	}
	for _, r := range k.rows {
		t.Run(strings.Trim(r.field+" "+r.value, " "), func(t *testing.T) {
			cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer cache.Close()
			plain := func(*workshop, *source.PkgRepositorySpec) {}
			if n, err := k.fetch(t, cache, secrets, plain); n != 1 || err != nil {
				t.Fatalf("an empty cache: %d requests, error %v", n, err)
			}
			if n, err := k.fetch(t, cache, secrets, plain); n != 0 || err != nil {
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

// fetch reconciles the chart in a store of its own, and returns the requests for it.
func (k keyedTest) fetch(t *testing.T, cache *artifact.Cache, secrets map[string]source.Secret, edit func(*workshop, *source.PkgRepositorySpec)) (int, error) {
	w := newWorkshop(t, chartCanary)
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
		if _, err := w.Reconcile(repo, chart.NewRepository(repo, env)); err != nil {
			t.Fatal(err)
		}
	}
	before := k.asked()
	c := made("PkgRepository/charts", "app", nil)
	_, err := w.Reconcile(c, chart.New(c, env, nil))
	return k.asked() - before, err
}
