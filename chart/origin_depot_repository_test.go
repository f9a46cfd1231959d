package chart_test

import (
	"net/http"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// inIndex publishes charts in a repository over HTTP.
func inIndex(t *testing.T) *depot {
	server := testenv.StartCharts(t, testenv.ChartsConfig{Username: "user", Password: chartCanary})
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: server.URL(), SecretRef: &source.LocalReference{Name: "login"}}}
	d := newDepot(t, repo)
	good := source.Secret{Data: map[string][]byte{"username": []byte("user"), "password": []byte(chartCanary)}}
	d.publish = func(d *depot, before string, tree fstest.MapFS) error {
		version := d.version
		d.secrets["apps/login"] = good
		server.Remove("app", before)
		server.Put(testenv.ChartVersion{Name: "app", Version: version, Archive: testenv.TarGzip(t, wrapped("app", version, tree)).Data})
		return d.refresh()
	}
	defects := map[sourcetest.Defect]*testenv.Defect{
		sourcetest.Denied:     {Phase: testenv.GetChart, Status: http.StatusForbidden},
		sourcetest.Leaking:    {Phase: testenv.GetChart, Do: testenv.Leak, Status: http.StatusBadRequest},
		sourcetest.Truncated:  {Phase: testenv.GetChart, Do: testenv.End, After: 100},
		sourcetest.StallFetch: {Phase: testenv.GetChart, Do: testenv.Stall, After: 100},
		flipped:               {Phase: testenv.GetChart, Do: testenv.Flip, After: 100},
		cut:                   {Phase: testenv.GetChart, Do: testenv.Cut, After: 100},
		"no file":             {Phase: testenv.GetChart, Status: http.StatusNotFound},
		"stall before":        {Phase: testenv.GetChart, Do: testenv.Stall, After: -1},
	}
	d.spoil = func(defect sourcetest.Defect) <-chan struct{} {
		d.secrets["apps/login"] = good
		switch defect {
		case sourcetest.NoSecret:
			delete(d.secrets, "apps/login")
		case wrongLogin:
			d.secrets["apps/login"] = source.Secret{Data: map[string][]byte{"username": []byte("user"), "password": []byte("other")}}
		}
		return server.Break(defects[defect])
	}
	d.object = func(s *source.PkgChartSpec, defect sourcetest.Defect) {
		s.Version = "^1"
		switch defect {
		case sourcetest.Gone:
			s.Chart = "elsewhere"
		case noVersion:
			s.Version = "^7"
		case badName:
			s.Chart = "../app"
		case sourcetest.Invalid:
			s.SourceRef.Kind = "Secret"
		case noValues:
			s.ValuesFiles = []string{"absent.yaml"}
		}
	}
	d.traffic = func() sourcetest.Traffic {
		return sourcetest.Traffic{Requests: server.Count(), Content: int64(server.Count(testenv.GetChart))}
	}
	return d
}

// refresh brings the artifact of the repository up to date.
func (d *depot) refresh() error {
	repo := d.source.(*source.PkgRepository)
	r := source.Reconciler{Store: d.store}
	_, err := r.Reconcile(d.t.Context(), repo, chart.NewRepository(repo, source.Env{Secrets: d.secrets}))
	return err
}

// inRegistry publishes charts in a registry.
func inRegistry(t *testing.T, signed bool) *depot {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "user", Password: chartCanary})
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: g.URL("team"), Type: source.RepositoryOCI, Insecure: true, SecretRef: &source.LocalReference{Name: "login"}}}
	d := newDepot(t, repo)
	good := source.Secret{Data: map[string][]byte{"username": []byte("user"), "password": []byte(chartCanary)}}
	key := testenv.NewCosign(t, 1)
	keys := source.Secret{Data: map[string][]byte{"cosign.pub": key.Public()}}
	push := func() {}
	d.publish = func(d *depot, before string, tree fstest.MapFS) error {
		version := d.version
		d.secrets["apps/login"], d.secrets["apps/keys"] = good, keys
		push = func() {
			name := version
			if d.defect == misnamed {
				name = "7.7.7"
			}
			subject := g.Push("team/app", version, testenv.Manifest{
				Config: &testenv.Blob{MediaType: "application/vnd.cncf.helm.config.v1+json", Data: []byte("{}")},
				Layers: []testenv.Blob{{MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Data: testenv.TarGzip(t, wrapped("app", name, tree)).Data}},
			})
			switch claimed := subject.Digest; {
			case !signed:
			case d.defect == unsigned:
				g.Untag("team/app", testenv.SignatureTag(subject))
			case d.defect == sourcetest.Forged:
				claimed = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
				fallthrough
			default:
				key.Sign(g, "team/app", subject, claimed)
			}
		}
		if push(); before != "" && before != version {
			g.Untag("team/app", before)
		}
		return nil
	}
	defects := map[sourcetest.Defect]*testenv.Defect{
		sourcetest.Denied:       {Status: http.StatusForbidden},
		sourcetest.Leaking:      {Do: testenv.Leak, Status: http.StatusBadRequest},
		sourcetest.Truncated:    {Phase: testenv.GetBlob, Do: testenv.End, After: 100},
		sourcetest.StallResolve: {Do: testenv.Stall, After: -1},
		sourcetest.StallFetch:   {Phase: testenv.GetBlob, Do: testenv.Stall, After: 100},
		flipped:                 {Phase: testenv.GetBlob, Do: testenv.Flip, After: 100},
		"stall manifest":        {Phase: testenv.GetManifest, Do: testenv.Stall, After: 20},
	}
	d.spoil = func(defect sourcetest.Defect) <-chan struct{} {
		d.secrets["apps/login"], d.secrets["apps/keys"] = good, keys
		switch defect {
		case sourcetest.NoSecret:
			delete(d.secrets, "apps/login")
		case noKeys:
			delete(d.secrets, "apps/keys")
		}
		push()
		return g.Break(defects[defect])
	}
	d.object = func(s *source.PkgChartSpec, defect sourcetest.Defect) {
		s.Version = "^1"
		switch defect {
		case sourcetest.Gone:
			s.Chart = "elsewhere"
		case noVersion:
			s.Version = "^7"
		case badName:
			s.Chart = "../app"
		case noValues:
			s.ValuesFiles = []string{"absent.yaml"}
		case sourcetest.Signed, sourcetest.Forged, unsigned, noKeys:
			s.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
		}
	}
	d.traffic = func() sourcetest.Traffic {
		return sourcetest.Traffic{Requests: g.Count(), Content: int64(g.Count(testenv.GetBlob))}
	}
	return d
}
