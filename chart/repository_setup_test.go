package chart_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A repositorySetup reconciles PkgRepository objects with a real store and a real ledger.
type repositorySetup struct {
	*testing.T
	*sourcetest.Fixture
	server  *testenv.Charts
	secrets sourcetest.Secrets
	limits  artifact.Limits
	local   map[string]string
	spools  *testenv.TempFiles
}

func newRepositorySetup(t *testing.T, c testenv.ChartsConfig) *repositorySetup {
	t.Helper()
	r := &repositorySetup{T: t, server: testenv.StartCharts(t, c), secrets: newRepoSecrets(c.CA)}
	r.Fixture = sourcetest.NewFixture(t, func() []string { return repoSecretForms })
	r.spools = testenv.NewTempFiles(t)
	r.limits.Temp = r.spools.Create
	return r
}

// object returns an object for r.s after edit, which may be nil.
func (r *repositorySetup) object(edit func(*source.PkgRepositorySpec)) *source.PkgRepository {
	obj := repoObject(r.server)
	if edit != nil {
		edit(&obj.Spec)
	}
	return obj
}

func (r *repositorySetup) origin(obj *source.PkgRepository) *chart.Repository {
	return chart.NewRepository(obj, source.Env{Secrets: r.secrets, Limits: r.limits, Local: r.local})
}

// run reconciles obj and demands an outcome.
func (r *repositorySetup) run(obj *source.PkgRepository, want source.Outcome) source.Result {
	r.Helper()
	result, err := r.Reconcile(obj, r.origin(obj))
	if result.Outcome != want || (err != nil) != (want == source.Failed || want == source.Stalled) {
		r.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, want)
	}
	r.spools.RequireClosed()
	return result
}

// mustRefuse reconciles obj and demands an error that contains every one of texts, and that
// nothing is stored.
func (r *repositorySetup) mustRefuse(obj *source.PkgRepository, reason string, texts ...string) source.Result {
	r.Helper()
	result := r.MustRefuse(obj, r.origin(obj), obj.Artifact(), reason, texts...)
	r.spools.RequireClosed()
	return result
}

// bytes returns an artifact as it is stored, after checking its revision, digest and name.
func (r *repositorySetup) bytes(a *artifact.Artifact) []byte {
	r.Helper()
	data := storedBytes(r.T, r.Fixture, a)
	sum := sha256.Sum256(data)
	id := hex.EncodeToString(sum[:])
	if a.Revision != "sha256:"+id || a.Digest != a.Revision || !strings.HasSuffix(a.Path, "/index-"+id+".yaml") || a.Size != int64(len(data)) {
		r.Errorf("artifact %+v of %d bytes whose SHA-256 is %s", a, len(data), id)
	}
	return data
}

// deleteFile removes the file of an artifact.
func (r *repositorySetup) deleteFile(a *artifact.Artifact) {
	r.Helper()
	must(r, os.Remove(filepath.Join(r.Dir, filepath.FromSlash(a.Path))))
}

// statuses returns the statuses of the responses since the last call.
func (r *repositorySetup) statuses() (all []int) {
	for _, q := range r.server.Requests() {
		all = append(all, q.Status)
	}
	r.server.Reset()
	return all
}

// requireStatuses demands the statuses of the responses since the last call.
func (r *repositorySetup) requireStatuses(want ...int) {
	r.Helper()
	if got := r.statuses(); !slices.Equal(got, want) {
		r.Errorf("the answers had the statuses %v, want %v", got, want)
	}
}

var update = flag.Bool("update", false, "rewrite the expectations in testdata/status")

// A repositoryHistory is a sequence of steps for one object. After each step, its outcome,
// its status and its events must be those of testdata/status (specification,
// "PkgRepository"; reference A2, A3, A4 and A12).
type repositoryHistory struct {
	name  string
	steps []repoStep
}

type repoStep struct {
	name string
	do   func(r *repositorySetup, obj *source.PkgRepository) // before the object is reconciled
}

// publishIndex publishes an index of versions, generated at some time.
func publishIndex(generated string, versions ...string) func(*repositorySetup, *source.PkgRepository) {
	return func(r *repositorySetup, _ *source.PkgRepository) {
		text := "apiVersion: v1\nentries:\n  web:\n"
		for _, v := range versions {
			text += "  - name: web\n    version: " + v + "\n    urls:\n    - web-" + v + ".tgz\n"
		}
		r.server.Break(nil)
		r.server.SetIndex([]byte(text + "generated: \"" + generated + "\"\n"))
	}
}

func breakServer(d *testenv.Defect) func(*repositorySetup, *source.PkgRepository) {
	return func(r *repositorySetup, _ *source.PkgRepository) { r.server.Break(d) }
}

func editRepository(edit func(*source.PkgRepositorySpec)) func(*repositorySetup, *source.PkgRepository) {
	return func(_ *repositorySetup, obj *source.PkgRepository) { edit(&obj.Spec) }
}

func noRepositoryChange(*repositorySetup, *source.PkgRepository) {}

var repositoryHistories = []repositoryHistory{
	{"repository", []repoStep{
		{"nothing is there", breakServer(testenv.Status(404))},
		{"published", publishIndex("2026-01-01", "1.0.0")},
		{"nothing changed", noRepositoryChange},
		{"stamped anew", publishIndex("2026-01-02", "1.0.0")},
		{"a new version, and two that are none", publishIndex("2026-01-03", "1.0.0", "1.1.0", "one", "1.x")},
		{"asked for by annotation", func(_ *repositorySetup, obj *source.PkgRepository) {
			obj.Metadata.Annotations = map[string]string{"reconcile.headgate.dev/requestedAt": "now"}
		}},
		{"suspended, and a new version", func(r *repositorySetup, obj *source.PkgRepository) {
			publishIndex("2026-01-04", "2.0.0")(r, obj)
			obj.Spec.Suspend = true
		}},
		{"resumed", editRepository(func(s *source.PkgRepositorySpec) { s.Suspend = false })},
	}},
	{"repository of type oci", []repoStep{
		{"published", publishIndex("2026-01-01", "1.0.0")},
		{"type oci", editRepository(func(s *source.PkgRepositorySpec) {
			s.Type, s.URL = source.RepositoryOCI, "oci://registry.example/charts"
		})},
		{"nothing changed", noRepositoryChange},
		{"type oci at a URL that is none", editRepository(func(s *source.PkgRepositorySpec) { s.URL = "https://charts.example" })},
		{"a registry without its type", editRepository(func(s *source.PkgRepositorySpec) { s.Type, s.URL = "", "oci://registry.example/charts" })},
		{"an index again", func(r *repositorySetup, obj *source.PkgRepository) { obj.Spec.URL = r.server.URL() }},
	}},
	{"repository failures", []repoStep{
		{"published", publishIndex("2026-01-01", "1.0.0")},
		{"no index", breakServer(&testenv.Defect{Do: testenv.Answer, Status: 200, Body: "entries: []"})},
		{"a web page", breakServer(&testenv.Defect{Do: testenv.Answer, Status: 200, Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, Body: "<p>Charts</p>"})},
		{"forbidden", breakServer(testenv.Status(403))},
		{"busy for a while", breakServer(&testenv.Defect{Status: 429, Header: http.Header{"Retry-After": {"600"}}})},
		{"a new version, cut short", func(r *repositorySetup, obj *source.PkgRepository) {
			publishIndex("2026-01-01", "1.0.0", "1.1.0")(r, obj)
			r.server.Break(&testenv.Defect{Do: testenv.Cut, After: 20})
		}},
		{"mended", breakServer(nil)},
		{"URL that is none", editRepository(func(s *source.PkgRepositorySpec) { s.URL = "https:///charts" })},
		{"no Secret", func(r *repositorySetup, obj *source.PkgRepository) {
			obj.Spec.URL, obj.Spec.SecretRef = r.server.URL(), &source.LocalReference{Name: "absent"}
		}},
		{"user name without password", editRepository(func(s *source.PkgRepositorySpec) { s.SecretRef.Name = "half" })},
		{"with both", editRepository(func(s *source.PkgRepositorySpec) { s.SecretRef.Name = "login" })},
	}},
}

func TestRepositoryStatuses(t *testing.T) {
	for _, l := range repositoryHistories {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			r := newRepositorySetup(t, testenv.ChartsConfig{})
			obj := r.object(nil)
			var got strings.Builder
			for _, s := range l.steps {
				r.Now = r.Now.Add(time.Hour)
				s.do(r, obj)
				obj = &source.PkgRepository{Header: obj.Header, Spec: obj.Spec}
				obj.Metadata.Generation = 0 // the ledger assigns it
				result, err := r.Reconcile(obj, r.origin(obj))
				description := r.DescribeRun(obj, result, err, "nothing", strings.Join(append([]string{"notes:"}, result.Report.Notes...), " "))
				fmt.Fprintf(&got, "# %s\n%s", s.name, strings.ReplaceAll(description, r.server.Base, "http://charts.example"))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", strings.ReplaceAll(l.name, " ", "-")+".txt"), got.String(), *update)
		})
	}
}

// repoCanary is a password that must not appear anywhere.
const repoCanary = "cAnArY-passw0rd/+="

// repoSecretForms are the forms in which the canary might appear.
var repoSecretForms = []string{repoCanary, url.QueryEscape(repoCanary), url.PathEscape(repoCanary), base64.StdEncoding.EncodeToString([]byte("user:" + repoCanary))}

// repoObject returns a PkgRepository that follows a server.
func repoObject(s *testenv.Charts) *source.PkgRepository {
	return &source.PkgRepository{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "PkgRepository",
			Metadata: source.Metadata{Name: "charts", Namespace: "default"}},
		Spec: source.PkgRepositorySpec{URL: s.URL(), Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
}

// A repoUpstream is a repository of charts for the conformance suite. A tree is
// published as an index in which each file is the version of a chart.
type repoUpstream struct {
	server  *testenv.Charts
	variant repoVariant
	secrets sourcetest.Secrets
	defect  sourcetest.Defect
}

// A repoVariant is one way to serve an index.
type repoVariant struct {
	config testenv.ChartsConfig
	tls    bool
	kind   func(*sourcetest.Kind)
}

// The defects in addition to those of the suite.
const (
	repoNoIndex       sourcetest.Defect = "no index"
	repoWebPage       sourcetest.Defect = "web page"
	repoWrongPassword sourcetest.Defect = "wrong password"
	repoBusy          sourcetest.Defect = "busy"
	repoRegistry      sourcetest.Defect = "registry without its type"
	repoHalfSecret    sourcetest.Defect = "user name without password"
	repoBadTLS        sourcetest.Defect = "certificate that is none"
)

// repoDefects holds the server's behavior for the defects that are on its side.
var repoDefects = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         {Status: http.StatusNotFound},
	sourcetest.Denied:       {Status: http.StatusForbidden},
	sourcetest.Leaking:      {Do: testenv.Leak, Status: http.StatusBadRequest},
	sourcetest.Truncated:    {Do: testenv.Cut, After: 100},
	repoNoIndex:             {Status: http.StatusOK, Body: "entries: [1, 2"},
	repoWebPage:             {Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<!DOCTYPE html><html><body>charts</body></html>"},
	repoBusy:                {Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7200"}}},
	sourcetest.StallResolve: {Do: testenv.Stall, After: -1},
	sourcetest.StallFetch:   {Do: testenv.Stall, After: 100},
}

func (u *repoUpstream) Publish(tree fstest.MapFS) error {
	entries := map[string]any{}
	for i, name := range slices.Sorted(maps.Keys(tree)) {
		chart := fmt.Sprintf("file-%04d", i)
		entries[chart] = []any{map[string]any{
			"name": chart, "version": "1.0.0", "urls": []string{chart + ".tgz"},
			"annotations": map[string]string{"path": name, "mode": fmt.Sprintf("%o", tree[name].Mode), "data": base64.StdEncoding.EncodeToString(tree[name].Data)},
		}}
	}
	encode := yaml.Marshal
	if u.variant.config.JSON {
		encode = json.Marshal
	}
	text, err := encode(map[string]any{"apiVersion": "v1", "entries": entries, "generated": "2026-01-01T00:00:00Z"})
	u.server.SetIndex(text)
	return err
}

// repoRead returns the files that an index was made of.
func repoRead(r io.Reader) (fs.FS, error) {
	var index struct {
		Entries map[string][]struct{ Annotations map[string]string }
	}
	if err := yaml.NewDecoder(r).Decode(&index); err != nil {
		return nil, err
	}
	tree := fstest.MapFS{}
	for _, versions := range index.Entries {
		a := versions[0].Annotations
		data, err := base64.StdEncoding.DecodeString(a["data"])
		if err != nil {
			return nil, err
		}
		var mode fs.FileMode
		fmt.Sscanf(a["mode"], "%o", &mode)
		tree[a["path"]] = &fstest.MapFile{Data: data, Mode: mode}
	}
	return tree, nil
}

func (u *repoUpstream) Break(d sourcetest.Defect) <-chan struct{} {
	u.defect = d
	return u.server.Break(repoDefects[d])
}

func (u *repoUpstream) Object() source.Object {
	p := repoObject(u.server)
	p.Spec.SecretRef = &source.LocalReference{Name: "login"}
	if u.variant.tls {
		p.Spec.CertSecretRef = &source.LocalReference{Name: "tls"}
	}
	switch u.defect {
	case sourcetest.Invalid:
		p.Spec.URL = "https:///charts"
	case repoRegistry:
		p.Spec.URL = "oci://" + u.server.Host + "/charts"
	case sourcetest.NoSecret:
		p.Spec.SecretRef = &source.LocalReference{Name: "absent"}
	case repoWrongPassword:
		p.Spec.SecretRef = &source.LocalReference{Name: "wrong"}
	case repoHalfSecret:
		p.Spec.SecretRef = &source.LocalReference{Name: "half"}
	case repoBadTLS:
		p.Spec.CertSecretRef = &source.LocalReference{Name: "broken"}
	}
	return p
}

func (u *repoUpstream) Origin(obj source.Object) source.Origin {
	return chart.NewRepository(obj.(*source.PkgRepository), source.Env{Secrets: u.secrets})
}

func (u *repoUpstream) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: u.server.Count(), Content: u.server.ContentBytes()}
}

func (u *repoUpstream) Secrets() []string { return repoSecretForms }

// repoVariants are the variants that run the whole suite.
var repoVariants = map[string]repoVariant{
	"yaml": {},
	"json, gzip, weak ETag, basic over mutual TLS": {
		tls:    true,
		config: testenv.ChartsConfig{JSON: true, Gzip: true, WeakETags: true, NoLastModified: true, Mutual: true, Username: "user", Password: repoCanary},
		kind: func(k *sourcetest.Kind) {
			k.KeepFailures(sourcetest.Denied, sourcetest.NoSecret, sourcetest.Leaking, repoNoIndex)
			k.Failures = append(k.Failures, sourcetest.NewFailure(repoWrongPassword, "AuthenticationFailed", "401"))
		},
	},
}

func TestRepositoryConformance(t *testing.T) {
	for name, v := range repoVariants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := repoKind(func(tb sourcetest.TB) sourcetest.Upstream { return newRepoUpstream(tb.(*testing.T), v) })
			if v.kind != nil {
				kind.Variant = true
				v.kind(&kind)
			}
			sourcetest.Run(t, kind)
		})
	}
}

func newRepoUpstream(t *testing.T, v repoVariant) *repoUpstream {
	c := v.config
	if v.tls {
		c.CA = testenv.NewCA(t)
	}
	return &repoUpstream{server: testenv.StartCharts(t, c), variant: v, secrets: newRepoSecrets(c.CA)}
}

// newRepoSecrets returns the Secrets that objects may name.
func newRepoSecrets(ca *testenv.CA) sourcetest.Secrets {
	k := sourcetest.Secrets{
		"default/login": sourcetest.Secret("username", "user", "password", repoCanary), "default/wrong": sourcetest.Secret("username", "user", "password", "other-"+repoCanary),
		"default/half": sourcetest.Secret("username", "user"), "default/broken": sourcetest.Secret("ca.crt", repoCanary),
	}
	if ca != nil {
		cert, key := ca.Client("user")
		k["default/tls"] = sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key))
	}
	return k
}

// repoKind describes a PkgRepository.
func repoKind(open func(sourcetest.TB) sourcetest.Upstream) sourcetest.Kind {
	stalled := func(d sourcetest.Defect, message string) sourcetest.Failure {
		return sourcetest.Failure{Defect: d, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "URLInvalid", Message: message}
	}
	return sourcetest.Kind{
		Name: "PkgRepository",
		Open: open,
		Read: repoRead,
		Failures: []sourcetest.Failure{
			sourcetest.NewFailure(sourcetest.Gone, "Failed", "404 Not Found: spec.url must be the URL of the directory that index.yaml is in"),
			sourcetest.NewFailure(sourcetest.Denied, "AuthenticationFailed", "403"),
			sourcetest.NewFailure(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
			sourcetest.NewFailure(sourcetest.Leaking, "Failed", "400"),
			sourcetest.NewFailure(sourcetest.Truncated, "Failed", "receive index, after 100 bytes"),
			sourcetest.NewFailure(repoNoIndex, "IndexationFailed", "index.yaml: "),
			sourcetest.NewFailure(repoWebPage, "IndexationFailed", "the answer is a web page"),
			sourcetest.NewFailure(repoBusy, "Failed", "try again in 2h0m0s"),
			sourcetest.NewFailure(repoHalfSecret, "AuthenticationFailed", "secret default/half: key password is missing"),
			sourcetest.NewFailure(repoBadTLS, "AuthenticationFailed", "secret default/broken: key ca.crt is not PEM"),
			stalled(sourcetest.Invalid, "spec.url"),
			stalled(repoRegistry, "set spec.type: oci"),
		},
		Stalls:       []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch},
		ReadsContent: true,
	}
}

var must = testenv.Must
