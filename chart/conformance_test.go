package chart_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// shortenTimeout shortens the timeout of the source until the upstream is repaired.
func shortenTimeout(up sourcetest.Upstream) { up.(*chartServer).timeout(250 * time.Millisecond) }

// runConformance runs the suite with charts whose upstreams are chartServers.
func runConformance(t *testing.T, eventReason string, open func(*testing.T) *chartServer, edit func(*sourcetest.Kind)) {
	k := sourcetest.Kind{
		Name: "PkgChart", Dir: treeDir, EventReason: eventReason, ShortenTimeout: shortenTimeout,
		Open:   func(tb sourcetest.TB) sourcetest.Upstream { return open(tb.(*testing.T)) },
		Drift:  func(obj source.Object) { obj.(*source.PkgChart).Spec.ValuesFiles = []string{"values.yaml"} },
		Stalls: []sourcetest.Defect{sourcetest.StallFetch},
	}
	edit(&k)
	sourcetest.Run(t, k)
}

func stalledFailure(d sourcetest.Defect, condition, reason, message string) sourcetest.Failure {
	return sourcetest.Failure{Defect: d, Outcome: source.Stalled, Condition: condition, Reason: reason, Message: message}
}

func TestConformanceOfCharts(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) *chartServer { return inTree(t, new(source.GitRepository), false) }
		runConformance(t, "ChartPackageSucceeded", open, func(k *sourcetest.Kind) {
			k.ReadsContent = true
			k.Failures = []sourcetest.Failure{
				stalledFailure(sourcetest.Gone, "FetchFailed", "InvalidChartReference", "elsewhere"),
				stalledFailure(sourcetest.Invalid, "BuildFailed", "ValuesFilesError", "must not lead out"),
				stalledFailure(noValues, "BuildFailed", "ValuesFilesError", "absent.yaml"),
				{Defect: sourcetest.Waits, Outcome: source.Waiting, Condition: "FetchFailed", Reason: "SourceUnavailable", Message: "GitRepository/apps/absent"},
				sourcetest.NewFailure(sourcetest.Truncated, "ChartPullError", "GitRepository/apps/src"),
			}
		})
	})
	t.Run("copied layer", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) *chartServer {
			obj := new(source.OCIRepository)
			obj.Spec.LayerSelector = &source.OCILayerSelector{Operation: source.LayerCopy}
			return inTree(t, obj, true)
		}
		runConformance(t, "ChartPullSucceeded", open, func(k *sourcetest.Kind) {
			k.ReadsContent, k.Variant = true, true
			k.Hostile = []string{"../../up", "a/../../../up", "/absolute", `a\b`, ".."}
			k.Failures = []sourcetest.Failure{
				stalledFailure(sourcetest.Gone, "FetchFailed", "InvalidChartReference", "elsewhere"),
				sourcetest.NewFailure(sourcetest.Truncated, "ChartPullError", "OCIRepository/apps/src"),
			}
		})
	})
	t.Run("index", func(t *testing.T) {
		t.Parallel()
		runConformance(t, "ChartPullSucceeded", inIndex, func(k *sourcetest.Kind) {
			k.Hostile = []string{"../../up", "a/../../../up", "/absolute", `a\b`, ".."}
			k.Stalls = []sourcetest.Defect{sourcetest.StallFetch, "stall before"}
			k.Failures = []sourcetest.Failure{
				stalledFailure(sourcetest.Gone, "FetchFailed", "InvalidChartReference", "elsewhere"),
				stalledFailure(noVersion, "FetchFailed", "InvalidChartReference", "^7"),
				stalledFailure(badName, "FetchFailed", "InvalidChartReference", "../app"),
				stalledFailure(noValues, "BuildFailed", "ValuesFilesError", "absent.yaml"),
				stalledFailure(sourcetest.Invalid, "FetchFailed", "UnsupportedSourceKind", "Secret"),
				sourcetest.NewFailure(sourcetest.NoSecret, "AuthenticationFailed", "apps/login"),
				sourcetest.NewFailure(wrongLogin, "AuthenticationFailed", "401"),
				sourcetest.NewFailure(sourcetest.Denied, "AuthenticationFailed", "403"),
				sourcetest.NewFailure(sourcetest.Leaking, "ChartPullError", "400"),
				sourcetest.NewFailure(sourcetest.Truncated, "ChartPullError", ""),
				sourcetest.NewFailure(cut, "ChartPullError", ""),
				sourcetest.NewFailure(flipped, "ChartPullError", ""),
				sourcetest.NewFailure("no file", "ChartPullError", "404"),
			}
		})
	})
	t.Run("registry", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) *chartServer { return inRegistry(t, false) }
		runConformance(t, "ChartPullSucceeded", open, func(k *sourcetest.Kind) {
			k.Stalls = []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch, "stall manifest"}
			k.Failures = []sourcetest.Failure{
				sourcetest.NewFailure(sourcetest.Gone, "ChartPullError", "elsewhere"),
				sourcetest.NewFailure(noVersion, "ChartPullError", "^7"),
				stalledFailure(badName, "FetchFailed", "InvalidChartReference", "../app"),
				stalledFailure(noValues, "BuildFailed", "ValuesFilesError", "absent.yaml"),
				sourcetest.NewFailure(sourcetest.NoSecret, "AuthenticationFailed", "apps/login"),
				sourcetest.NewFailure(sourcetest.Denied, "AuthenticationFailed", "403"),
				sourcetest.NewFailure(sourcetest.Leaking, "ChartPullError", "400"),
				sourcetest.NewFailure(sourcetest.Truncated, "ChartPullError", ""),
				sourcetest.NewFailure(flipped, "ChartPullError", ""),
				sourcetest.NewFailure(misnamed, "ChartPullError", "7.7.7"),
			}
		})
	})
	t.Run("signed in a registry", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) *chartServer { return inRegistry(t, true) }
		refused := func(d sourcetest.Defect, reason, message string) sourcetest.Failure {
			return sourcetest.Failure{Defect: d, Outcome: source.Failed, Condition: "SourceVerified", Reason: reason, Message: message}
		}
		runConformance(t, "ChartPullSucceeded", open, func(k *sourcetest.Kind) {
			k.Variant, k.Verifies = true, true
			k.Failures = []sourcetest.Failure{
				refused(sourcetest.Forged, "ChartVerificationError", "signature of something else"),
				refused(unsigned, "ChartVerificationError", "is not signed"),
				refused(noKeys, "VerificationError", "apps/keys"),
			}
		})
	})
}

// chartCanary is a password that must not appear anywhere.
const chartCanary = "cAnArY-passw0rd/+="

// treeDir is the directory of a chart that holds the tree published by the suite.
const treeDir = "app/files"

// chartWithTree returns the files of version of a chart that holds tree. Names of tree are not
// cleaned, so that they may lead out of the chart.
func chartWithTree(dir, version string, tree fstest.MapFS) fstest.MapFS {
	all := files(dir+"/Chart.yaml", "apiVersion: v2\nname: app\nversion: "+version+"\n", dir+"/values.yaml", "a: 1\n")
	for name, file := range tree {
		if !path.IsAbs(name) {
			name = dir + "/files/" + name
		}
		all[name] = file
	}
	return all
}

// A chartServer is a source of charts for the conformance suite.
type chartServer struct {
	*source.Inventory
	t       *testing.T
	secrets sourcetest.Secrets
	version string // published version
	defect  sourcetest.Defect
	opened  int64         // how often an artifact was opened
	stalled chan struct{} // closed once reading an artifact stalls

	publish     func(d *chartServer, before string, tree fstest.MapFS) error // publishes d.version in place of before
	breakServer func(defect sourcetest.Defect) <-chan struct{}
	traffic     func() sourcetest.Traffic
	object      func(s *source.PkgChartSpec, defect sourcetest.Defect)
	source      source.Object
}

func newChartServer(t *testing.T, obj source.Object) *chartServer {
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	obj.Head().Metadata = source.Metadata{Name: "src", Namespace: "apps"}
	source.Default(obj)
	return &chartServer{t: t, secrets: sourcetest.Secrets{}, source: obj, Inventory: &source.Inventory{Objects: []source.Object{obj}, Store: store}}
}

func (d *chartServer) Publish(tree fstest.MapFS) error {
	before := d.version
	d.version = versionOf(tree)
	return d.publish(d, before, tree)
}

// versionOf returns a version that depends on the content of tree.
func versionOf(tree fstest.MapFS) string {
	sum := crc32.NewIEEE()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		fmt.Fprintf(sum, "%q %q %v\n", name, tree[name].Data, tree[name].Mode)
	}
	return fmt.Sprintf("1.0.%d", sum.Sum32())
}

func (d *chartServer) Break(defect sourcetest.Defect) <-chan struct{} {
	d.defect = defect
	d.timeout(time.Minute)
	if d.breakServer != nil {
		return d.breakServer(defect)
	}
	d.stalled = make(chan struct{})
	return d.stalled
}

// timeout sets the timeout of the source.
func (d *chartServer) timeout(to time.Duration) {
	switch obj := d.source.(type) {
	case *source.PkgRepository:
		obj.Spec.Timeout = source.Duration(to)
	case *source.GitRepository:
		obj.Spec.Timeout = source.Duration(to)
	case *source.OCIRepository:
		obj.Spec.Timeout = source.Duration(to)
	}
}

func (d *chartServer) Object() source.Object {
	ref := source.ReferenceTo(d.source)
	c := newPkgChart(ref.Kind+"/"+ref.Name, "app", func(s *source.PkgChartSpec) {
		if d.object != nil {
			d.object(s, d.defect)
		}
	})
	c.Metadata.Generation = 0 // the ledger assigns it
	return c
}

func (d *chartServer) Origin(obj source.Object) source.Origin {
	return chart.New(obj.(*source.PkgChart), source.Env{Sources: d, Secrets: d.secrets}, map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})})
}

func (d *chartServer) Traffic() sourcetest.Traffic {
	if d.traffic != nil {
		return d.traffic()
	}
	return sourcetest.Traffic{Requests: int(d.opened), Content: d.opened}
}

func (d *chartServer) Secrets() []string {
	return []string{chartCanary, base64.StdEncoding.EncodeToString([]byte("user:" + chartCanary))}
}

// Open implements [source.Sources].
func (d *chartServer) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	d.opened++
	r, err := d.Inventory.Open(ctx, a)
	if err == nil && d.breakServer == nil && (d.defect == sourcetest.StallFetch || d.defect == sourcetest.Truncated) {
		r = &truncatedArtifact{ReadCloser: r, d: d, ctx: ctx}
	}
	return r, err
}

// A truncatedArtifact stalls or ends after a few bytes.
type truncatedArtifact struct {
	io.ReadCloser
	d    *chartServer
	ctx  context.Context
	read bool
}

func (s *truncatedArtifact) Read(p []byte) (int, error) {
	if !s.read {
		s.read = true
		return s.ReadCloser.Read(p[:10])
	}
	if s.d.defect == sourcetest.Truncated {
		return 0, io.ErrUnexpectedEOF
	}
	close(s.d.stalled)
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

// put stores what write writes as the artifact of the source.
func (d *chartServer) put(file, revision string, write func(io.Writer) error) error {
	dir, err := source.Address(d.source)
	if err != nil {
		return err
	}
	a, err := d.Store.Put(d.t.Context(), dir, file, write)
	if err == nil {
		a.Revision = revision
		d.source.Common().Artifact = &a
	}
	return err
}

// inTree publishes charts in the artifact of a source: as a directory, or as an archive
// like that from a registry.
func inTree(t *testing.T, obj source.Object, asArchive bool) *chartServer {
	d := newChartServer(t, obj)
	d.publish = func(d *chartServer, _ string, tree fstest.MapFS) error {
		version := d.version
		all := chartWithTree("app", version, tree)
		if !asArchive {
			all["README.md"] = &fstest.MapFile{}
		}
		return d.put("source.tar.gz", "main@sha1:0123456789abcdef"+version, func(w io.Writer) error {
			if asArchive {
				_, err := w.Write(testenv.TarGzip(t, all).Data)
				return err
			}
			_, err := artifact.Pack(t.Context(), w, all)
			return err
		})
	}
	d.object = func(s *source.PkgChartSpec, defect sourcetest.Defect) {
		switch defect {
		case sourcetest.Gone:
			s.Chart = "elsewhere"
		case sourcetest.Invalid:
			s.ValuesFiles = []string{"../x"}
		case sourcetest.Waits:
			s.ValuesFiles = []string{"source:absent/x"}
		case noValues:
			s.ValuesFiles = []string{"absent.yaml"}
		}
	}
	return d
}

const (
	noValues   sourcetest.Defect = "no values"
	noVersion  sourcetest.Defect = "no version"
	flipped    sourcetest.Defect = "flipped"
	cut        sourcetest.Defect = "cut"
	misnamed   sourcetest.Defect = "misnamed"
	unsigned   sourcetest.Defect = "unsigned"
	noKeys     sourcetest.Defect = "no keys"
	badName    sourcetest.Defect = "bad name"
	wrongLogin sourcetest.Defect = "wrong login"
)

// inIndex publishes charts in a repository over HTTP.
func inIndex(t *testing.T) *chartServer {
	server := testenv.StartCharts(t, testenv.ChartsConfig{Username: "user", Password: chartCanary})
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: server.URL(), SecretRef: &source.LocalReference{Name: "login"}}}
	d := newChartServer(t, repo)
	loginSecret := source.Secret{Data: map[string][]byte{"username": []byte("user"), "password": []byte(chartCanary)}}
	d.publish = func(d *chartServer, before string, tree fstest.MapFS) error {
		version := d.version
		d.secrets["apps/login"] = loginSecret
		server.Remove("app", before)
		server.Put(testenv.ChartVersion{Name: "app", Version: version, Archive: testenv.TarGzip(t, chartWithTree("app", version, tree)).Data})
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
	d.breakServer = func(defect sourcetest.Defect) <-chan struct{} {
		d.secrets["apps/login"] = loginSecret
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

// refresh updates the artifact of the repository.
func (d *chartServer) refresh() error {
	repo := d.source.(*source.PkgRepository)
	r := source.Reconciler{Store: d.Store}
	_, err := r.Reconcile(d.t.Context(), repo, chart.NewRepository(repo, source.Env{Secrets: d.secrets}))
	return err
}

// inRegistry publishes charts in a registry.
func inRegistry(t *testing.T, signed bool) *chartServer {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "user", Password: chartCanary})
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: g.URL("team"), Type: source.RepositoryOCI, Insecure: true, SecretRef: &source.LocalReference{Name: "login"}}}
	d := newChartServer(t, repo)
	loginSecret := source.Secret{Data: map[string][]byte{"username": []byte("user"), "password": []byte(chartCanary)}}
	key := testenv.NewCosign(t, 1)
	keys := source.Secret{Data: map[string][]byte{"cosign.pub": key.Public()}}
	push := func() {}
	d.publish = func(d *chartServer, before string, tree fstest.MapFS) error {
		version := d.version
		d.secrets["apps/login"], d.secrets["apps/keys"] = loginSecret, keys
		push = func() {
			name := version
			if d.defect == misnamed {
				name = "7.7.7"
			}
			subject := g.Push("team/app", version, testenv.Manifest{
				Config: &testenv.Blob{MediaType: "application/vnd.cncf.helm.config.v1+json", Data: []byte("{}")},
				Layers: []testenv.Blob{{MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Data: testenv.TarGzip(t, chartWithTree("app", name, tree)).Data}},
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
	d.breakServer = func(defect sourcetest.Defect) <-chan struct{} {
		d.secrets["apps/login"], d.secrets["apps/keys"] = loginSecret, keys
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
