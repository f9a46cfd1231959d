package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/santhosh-tekuri/jsonschema/v6"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/schematest"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/kubernetes/controller"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// TestConformance compares an API server with the definitions of our group and a controller with
// the library, for the same documents.
func TestConformance(t *testing.T) {
	c := newCluster(t)
	c.grantFile(t, "../../deploy/headgate/rbac.yaml")
	c.waitPermission(t, "controller", "", permission{"watch", "secrets", ""})
	t.Run("random documents", func(t *testing.T) { randomDocuments(t, c) })
	t.Run("statuses", func(t *testing.T) { goldenStatuses(t, c) })
}

// randomCount is the number of random documents per kind and version.
const randomCount = 40

// randomDocuments compares the verdicts of the API server, the JSON Schema and the library on
// random documents.
func randomDocuments(t *testing.T, c *cluster) {
	config, err := clientcmd.BuildConfigFromFlags("", c.admin)
	testenv.Must(t, err)
	schemas := schematest.Compile(t)
	for i, version := range []string{source.V1, source.V1Beta2} {
		testenv.Must(t, controller.Define(t.Context(), config, source.Group, version == source.V1Beta2))
		for j, k := range source.Kinds(source.Group) {
			if !slices.Contains(k.Versions, version) {
				continue
			}
			c.waitServed(t, source.Group, version, k.Name)
			seed := [2]uint64{uint64(i + 1), uint64(j + 1)}
			t.Run(fmt.Sprint(k.Name, " ", version, " ", seed), func(t *testing.T) {
				v := verdicts{c: c, schema: schemas[k.Name+"/"+version], kind: k.Name}
				r := schematest.Generator{Rand: rand.New(rand.NewPCG(seed[0], seed[1]))}
				for range randomCount {
					doc := r.Document(k, version)
					doc["apiVersion"], doc["kind"] = source.Group+"/"+version, k.Name
					v.judge(t, doc)
				}
				if v.good < 5 || v.wrong < 5 {
					t.Errorf("%d good and %d wrong documents", v.good, v.wrong)
				}
			})
		}
	}
}

// verdicts compares the verdicts on the documents of a kind in a version.
type verdicts struct {
	c           *cluster
	schema      *jsonschema.Schema
	kind        string
	spec        any                        // spec of inCluster
	inCluster   *unstructured.Unstructured // object in the cluster; nil until the first valid document
	good, wrong int
}

// judge compares the verdicts on the user's part of a document, and then on its status.
func (v *verdicts) judge(t *testing.T, doc object) {
	t.Helper()
	head, status := object{"namespace": "default"}, doc["status"]
	all, _ := doc["metadata"].(object)
	for _, field := range []string{"name", "labels", "annotations"} { // the API server sets the others
		if value, ok := all[field]; ok {
			head[field] = value
		}
	}
	doc["metadata"] = head
	delete(doc, "status")
	u := v.compare(t, doc, func(u *unstructured.Unstructured) error {
		return v.c.Create(t.Context(), u, client.DryRunAll, client.FieldValidation("Strict"))
	})
	if u != nil && v.inCluster == nil {
		v.spec, v.inCluster = doc["spec"], u
		v.inCluster.SetName("there")
		testenv.Must(t, v.c.Create(t.Context(), v.inCluster))
		t.Cleanup(func() { testenv.Must(t, v.c.Delete(context.Background(), v.inCluster)) })
	}
	if status == nil || v.inCluster == nil {
		return
	}
	doc["spec"], doc["metadata"], doc["status"] = v.spec, object{"name": v.inCluster.GetName(), "namespace": "default"}, status
	v.compare(t, doc, func(u *unstructured.Unstructured) error {
		u.SetResourceVersion(v.inCluster.GetResourceVersion())
		return v.c.Status().Update(t.Context(), u, client.DryRunAll, client.FieldValidation("Strict"))
	})
}

// compare compares the verdicts on a document. It returns the document if it is valid, else nil.
func (v *verdicts) compare(t *testing.T, doc object, try func(*unstructured.Unstructured) error) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(doc)
	testenv.Must(t, err)
	u, sent := new(unstructured.Unstructured), new(unstructured.Unstructured)
	testenv.Must(t, u.UnmarshalJSON(text))
	testenv.Must(t, sent.UnmarshalJSON(text))
	refused := try(sent)
	if refused != nil && !apierrors.IsInvalid(refused) && !apierrors.IsBadRequest(refused) {
		t.Fatalf("%v\n%s", refused, text)
	}
	var set source.Set
	wrong := set.Decode("-", bytes.NewReader(text))
	if wrong != nil && strings.Contains(wrong.Error(), "exists in v1 only") {
		return nil // the API server accepts the fields of both versions in both
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	testenv.Must(t, err)
	if other := v.schema.Validate(value); (other == nil) != (refused == nil) {
		t.Errorf("the API server says %v, the JSON Schema %v\n%s", refused, other, text)
	}
	switch {
	case refused != nil && wrong == nil:
		t.Errorf("valid, and refused by the API server: %v\n%s", refused, text)
	case refused == nil:
		for _, err := range schematest.ExpressibleErrors(v.kind, text, wrong) {
			t.Errorf("%v, and taken by the API server\n%s", err, text)
		}
	}
	if wrong != nil {
		v.wrong++
		return nil
	}
	v.good++
	return u
}

// goldenStatuses repeats the histories of the tests whose expected statuses are in testdata/status,
// and compares the statuses in the API server with these files.
func goldenStatuses(t *testing.T, c *cluster) {
	c.start(t, "default", t.TempDir(), "--group="+source.Group, "--watch-all-namespaces=true", "--storage-adv-addr=store.example", "--min-retry-delay=5m")
	for i, follow := range []struct {
		file string // without .txt
		do   func(*history)
	}{
		{"git/testdata/status/branch", gitBranch},
		{"git/testdata/status/failures", gitFailures},
		{"oci/testdata/status/latest", ociLatest},
		{"oci/testdata/status/selector-and-ignore", ociSelector},
		{"oci/testdata/status/failures", ociFailures},
		{"oci/testdata/status/semver", ociSemver},
		{"oci/testdata/status/verify", ociVerify},
		{"bucket/testdata/status/objects", bucketObjects},
		{"bucket/testdata/status/prefix-and-ignore", bucketPrefix},
		{"bucket/testdata/status/failures", bucketFailures},
		{"chart/testdata/status/repository", chartsRepository},
		{"chart/testdata/status/repository-of-type-oci", chartsOCI},
		{"chart/testdata/status/repository-failures", chartsFailures},
		{"chart/testdata/status/chart-of-a-repository", chartOfRepository},
	} {
		t.Run(follow.file, func(t *testing.T) {
			t.Parallel()
			h := &history{t: t, c: c, namespace: fmt.Sprintf("history-%d", i), want: sourcetest.GoldenStatuses(t, "../../../"+follow.file+".txt")}
			c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": h.namespace}})
			follow.do(h)
		})
	}
}

// A history is a sequence of changes of an object, as in the test of its kind.
type history struct {
	t          *testing.T
	c          *cluster
	namespace  string
	want       map[string]string // expected statuses by step
	kind, name string
	spec       object
	replacer   *strings.Replacer // replaces values of this test with those in the file
	requests   int
}

// setObject sets the object. The file has namespace and the second of each pair in host instead of the
// values of this test.
func (h *history) setObject(kind, namespace, name string, spec object, host ...string) {
	h.kind, h.name, h.spec = kind, name, withFields(object{"interval": "1h"}, spec)
	h.replacer = strings.NewReplacer(append(host, h.namespace+"/", namespace+"/")...)
}

var toldTimes = regexp.MustCompile(`(since|of) \d\d:\d\d:\d\d|request ".*"`)

// step changes fields of the spec, requests a run, and waits for the status in the file.
func (h *history) step(name string, change object) {
	h.t.Helper()
	want, known := h.want[name]
	if !known {
		h.t.Fatalf("the file has no step %q", name)
	}
	h.spec = withFields(h.spec, change)
	var got string
	want = toldTimes.ReplaceAllString(want, "")
	h.request(h.kind, h.name, h.spec, "has the status of step "+name, func(obj source.Object) bool {
		got = toldTimes.ReplaceAllString(h.replacer.Replace(sourcetest.Status(obj, observed(obj))), "")
		return got == want
	}, func() string { return got + "want\n" + want })
}

// request applies an object, requests a run, and waits until is returns true.
func (h *history) request(kind, name string, spec object, what string, is func(source.Object) bool, last func() string) {
	h.t.Helper()
	h.requests++
	request := fmt.Sprint(h.requests)
	doc := withFields(document(kind, h.namespace, name, spec), object{"apiVersion": source.Group + "/" + source.V1})
	doc["metadata"].(object)["annotations"] = object{"reconcile.fluxcd.io/requestedAt": request}
	h.c.apply(h.t, doc)
	u := &unstructured.Unstructured{Object: doc}
	waitUntilOr(h.t, kind+" "+name+" "+what, func() bool {
		text, err := h.c.getVersion(h.t, source.V1, u).MarshalJSON()
		testenv.Must(h.t, err)
		obj, err := source.DecodeObject(text)
		testenv.Must(h.t, err)
		return is(obj) && obj.Common().LastHandledReconcileAt == request
	}, last)
}

// secret creates a Secret.
func (h *history) secret(name string, data object) {
	h.t.Helper()
	h.c.apply(h.t, secretOf(h.namespace, name, "Opaque", data))
}

// observed returns the observed inputs in the status, in the format of the test of its kind.
func observed(obj source.Object) string {
	text := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	switch o := obj.(type) {
	case *source.GitRepository:
		return fmt.Sprintf("ignore %s, sparse checkout %q", text(o.Status.ObservedIgnore), o.Status.ObservedSparseCheckout)
	case *source.OCIRepository:
		return fmt.Sprintf("layerSelector %s, ignore %s", text(o.Status.ObservedLayerSelector), text(o.Status.ObservedIgnore))
	case *source.Bucket:
		return "ignore " + text(o.Status.ObservedIgnore)
	case *source.PkgChart:
		return fmt.Sprintf("%q at %q with %q", o.Status.ObservedChartName, o.Status.ObservedSourceArtifactRevision, o.Status.ObservedValuesFiles)
	}
	return "nothing"
}

// serveGit serves an empty repository and returns a function that commits to it.
func (h *history) serveGit() (server *testenv.GitServer, repo *testenv.Repo, commit func(text string)) {
	repo = testenv.NewRepo(h.t)
	server = testenv.ServeGit(h.t, testenv.GitConfig{}, repo)
	h.setObject("GitRepository", "default", "app", object{"url": server.Repo(), "ref": object{"branch": "main"}}, server.URL, "http://git.example")
	return server, repo, func(text string) {
		repo.Commit(testenv.Commit{Branch: "main", Message: text, Files: fstest.MapFS{"app.yaml": {Data: []byte(text), Mode: 0o644}, "docs/readme.md": {Data: []byte(text), Mode: 0o644}}})
	}
}

func gitBranch(h *history) {
	_, repo, commit := h.serveGit()
	h.step("no branch", nil)
	commit("one")
	h.step("published", nil)
	h.step("nothing changed", nil)
	commit("two")
	h.step("another commit", nil)
	h.step("ignore", object{"ignore": "/docs\n"})
	h.step("sparse checkout", object{"ignore": nil, "sparseCheckout": []any{"./docs"}})
	repo.Tag("v1.0.0", repo.ID("refs/heads/main"))
	h.step("a tag", object{"ref": object{"branch": nil, "semver": "1.x"}, "sparseCheckout": nil})
	h.step("no tag in range", object{"ref": object{"semver": "2.x"}})
}

func gitFailures(h *history) {
	server, _, commit := h.serveGit()
	commit("one")
	h.step("published", nil)
	commit("two")
	server.Break(&testenv.Defect{Phase: testenv.Pack, Status: http.StatusForbidden})
	h.step("commit that cannot be fetched", nil)
	server.Break(testenv.Status(http.StatusForbidden))
	h.step("forbidden", nil)
	server.Break(nil)
	h.step("mended", nil)
}

// serveOCI starts a registry and returns a function that pushes a signed artifact with two layers.
func (h *history) serveOCI() (g *testenv.Registry, push func(tag, content string) (signature string)) {
	g = testenv.StartRegistry(h.t, testenv.RegistryConfig{Username: "user", Password: "password"})
	h.c.apply(h.t, secretOf(h.namespace, "login", "kubernetes.io/dockerconfigjson", object{".dockerconfigjson": fmt.Sprintf(`{"auths":{%q:{"username":"user","password":"password"}}}`, g.Host)}))
	h.setObject("OCIRepository", "default", "app", object{"url": g.URL("team/app"), "insecure": true, "secretRef": object{"name": "login"}}, g.Host, "registry.example:5000",
		// The controller has a cache, so it reads the layer into the cache first.
		"fetch blob "+g.Host+"/team/app@sha256:0ad7d5d3…: ", "read archive: receive layer sha256:0ad7d5d3… of registry.example:5000/team/app: ")
	return g, func(tag, content string) string {
		layer := func(name string) testenv.Blob {
			return testenv.TarPlain(h.t, fstest.MapFS{name: {Data: []byte(content), Mode: 0o644}})
		}
		notes := layer("notes.md")
		notes.MediaType = "application/vnd.example.notes"
		d := g.Push("team/app", tag, testenv.Manifest{Layers: []testenv.Blob{layer("app.yaml"), notes}, Annotations: map[string]string{
			"org.opencontainers.image.source": "https://git.example.com/team/app", "org.opencontainers.image.revision": "main@sha1:" + content,
		}})
		testenv.NewCosign(h.t, 1).Sign(g, "team/app", d, d.Digest)
		return testenv.SignatureTag(d)
	}
}

func ociLatest(h *history) {
	_, push := h.serveOCI()
	h.step("nothing is there", nil)
	push("latest", "one")
	h.step("published", nil)
	h.step("nothing changed", nil)
	push("latest", "two")
	h.step("published anew", nil)
	h.step("asked for by annotation", nil)
}

func ociSelector(h *history) {
	_, push := h.serveOCI()
	push("latest", "one")
	h.step("published", nil)
	selector := func(mediaType, operation string) object {
		return object{"layerSelector": object{"mediaType": mediaType, "operation": operation}}
	}
	h.step("other layer, copied", selector("application/vnd.example.notes", "copy"))
	h.step("extracted", selector("application/vnd.example.notes", "extract"))
	h.step("ignore", object{"ignore": "*.txt"})
	h.step("no such layer", selector("application/absent", "extract"))
	h.step("no selector, which is the first layer", object{"layerSelector": nil})
}

func ociFailures(h *history) {
	g, push := h.serveOCI()
	push("latest", "one")
	h.step("published", nil)
	push("latest", "two")
	g.Break(&testenv.Defect{Phase: testenv.GetBlob, Do: testenv.End, After: 99})
	h.step("layer broken of what is new", nil)
	g.Break(testenv.Status(http.StatusForbidden))
	h.step("forbidden", nil)
	g.Break(&testenv.Defect{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"600"}}})
	h.step("busy for a while", nil)
	g.Break(&testenv.Defect{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7200"}}})
	h.step("busy for longer than the interval", nil)
	g.Break(nil)
	h.step("mended", nil)
}

func ociSemver(h *history) {
	_, push := h.serveOCI()
	push("1.0.0", "one")
	h.step("range", object{"ref": object{"semver": "1.x", "semverFilter": `^1\.\d+\.\d+$`, "tag": "other"}})
	push("1.1.0", "two")
	push("1.9.0-rc.1", "three")
	h.step("higher version, and higher ones that the filter leaves out", nil)
	h.step("nothing in range", object{"ref": object{"semver": "3.x"}})
}

func ociVerify(h *history) {
	g, push := h.serveOCI()
	h.secret("keys", object{"cosign.pub": string(testenv.NewCosign(h.t, 1).Public())})
	push("latest", "one")
	h.step("signed", object{"verify": object{"provider": "cosign", "secretRef": object{"name": "keys"}}})
	h.step("nothing changed", nil)
	g.Untag("team/app", push("latest", "two"))
	h.step("not signed", nil)
}

// serveBucket starts an object store and returns a function that replaces the objects of its bucket.
func (h *history) serveBucket() (s *testenv.Store, holds func(keyContent ...string)) {
	s = testenv.StartS3(h.t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: "secret"})
	h.secret("keys", object{"accesskey": "AKIA", "secretkey": "secret"})
	h.setObject("Bucket", "default", "app", object{"endpoint": s.Host, "insecure": true, "bucketName": "app", "secretRef": object{"name": "keys"}}, s.Host, "s3.example:9000")
	b := s.Bucket("app")
	return s, func(keyContent ...string) {
		contents := map[string]string{}
		for pair := range slices.Chunk(keyContent, 2) {
			contents[pair[0]] = pair[1]
		}
		b.Replace(contents)
	}
}

func bucketObjects(h *history) {
	_, holds := h.serveBucket()
	h.step("an empty bucket", nil)
	holds("app.yaml", "one")
	h.step("one object", nil)
	h.step("nothing changed", nil)
	holds("app.yaml", "two")
	h.step("another content", nil)
	holds("app.yaml", "two", "deploy/", "", "deploy/app.yaml", "three")
	h.step("another object, and a directory marker", nil)
	h.step("asked for by annotation", nil)
	holds("deploy/app.yaml", "three")
	h.step("one object less", nil)
	h.step("no such bucket", object{"bucketName": "other"})
}

func bucketPrefix(h *history) {
	_, holds := h.serveBucket()
	holds("app.yaml", "one", "deploy/app.yaml", "two", "deploy/ignored.txt", "three")
	h.step("a prefix", object{"prefix": "deploy/"})
	h.step("ignore", object{"ignore": "*.txt"})
	h.step("nothing changed", nil)
	h.step("ignore that ignores nothing more", object{"ignore": "*.txt\n*.md"})
	holds("app.yaml", "one", "deploy/app.yaml", "two", "deploy/ignored.txt", "three", ".sourceignore", "*.yaml")
	h.step("an ignore file", object{"ignore": ""})
	h.step("the prefix of nothing", object{"prefix": "nothing/"})
}

func bucketFailures(h *history) {
	s, holds := h.serveBucket()
	holds("app.yaml", "one")
	h.step("one object", nil)
	holds("app.yaml", "two")
	state := testenv.S3Failure(http.StatusBadRequest, "InvalidObjectState", "The operation is not valid for the object's storage class")
	state.Phase = testenv.GetObject
	s.Break(state)
	h.step("object that cannot be read", nil)
	s.Break(testenv.S3Failure(http.StatusForbidden, "AccessDenied", "Access Denied"))
	h.step("forbidden", nil)
	busy := func(seconds string) {
		d := testenv.S3Failure(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
		d.Header.Set("Retry-After", seconds)
		s.Break(d)
	}
	busy("600")
	h.step("busy for a while", nil)
	busy("7200")
	h.step("busy for longer than the interval", nil)
	s.Break(nil)
	h.step("mended", nil)
}

// serveCharts starts a chart repository and returns a function that publishes an index with versions
// and a timestamp.
func (h *history) serveCharts() (s *testenv.Charts, index func(generated string, versions ...string)) {
	s = testenv.StartCharts(h.t, testenv.ChartsConfig{})
	h.setObject("PkgRepository", "default", "charts", object{"url": s.URL()}, s.Base, "http://charts.example")
	return s, func(generated string, versions ...string) {
		text := "apiVersion: v1\nentries:\n  web:\n"
		for _, v := range versions {
			text += "  - name: web\n    version: " + v + "\n    urls:\n    - web-" + v + ".tgz\n"
		}
		s.SetIndex([]byte(text + "generated: \"" + generated + "\"\n"))
	}
}

func chartsRepository(h *history) {
	s, index := h.serveCharts()
	s.Break(testenv.Status(http.StatusNotFound))
	h.step("nothing is there", nil)
	s.Break(nil)
	index("2026-01-01", "1.0.0")
	h.step("published", nil)
	h.step("nothing changed", nil)
	index("2026-01-02", "1.0.0")
	h.step("stamped anew", nil)
	index("2026-01-03", "1.0.0", "1.1.0", "one", "1.x")
	h.step("a new version, and two that are none", nil)
	h.step("asked for by annotation", nil)
}

func chartsOCI(h *history) {
	_, index := h.serveCharts()
	index("2026-01-01", "1.0.0")
	h.step("published", nil)
	h.step("type oci", object{"type": "oci", "url": "oci://registry.example/charts"})
	h.step("nothing changed", nil)
}

func chartsFailures(h *history) {
	s, index := h.serveCharts()
	index("2026-01-01", "1.0.0")
	h.step("published", nil)
	s.Break(&testenv.Defect{Do: testenv.Answer, Status: http.StatusOK, Body: "entries: []"})
	h.step("no index", nil)
	s.Break(&testenv.Defect{Do: testenv.Answer, Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, Body: "<p>Charts</p>"})
	h.step("a web page", nil)
	s.Break(testenv.Status(http.StatusForbidden))
	h.step("forbidden", nil)
	s.Break(&testenv.Defect{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"600"}}})
	h.step("busy for a while", nil)
	index("2026-01-01", "1.0.0", "1.1.0")
	s.Break(&testenv.Defect{Do: testenv.Cut, After: 20})
	h.step("a new version, cut short", nil)
	s.Break(nil)
	h.step("mended", nil)
}

func chartOfRepository(h *history) {
	s := testenv.StartCharts(h.t, testenv.ChartsConfig{})
	h.setObject("PkgChart", "apps", "app", object{"chart": "app", "sourceRef": object{"kind": "PkgRepository", "name": "src"}}, s.Base, "http://charts.example")
	put := func(version string, more ...string) {
		files := map[string]string{
			"app/Chart.yaml":  "apiVersion: v2\nname: app\nversion:   " + version + " # odd\n",
			"app/values.yaml": "a: 1\nb: {c: 2}\n", "app/prod.yaml": "b: {d: 3}\n",
		}
		for pair := range slices.Chunk(more, 2) {
			files["app/"+pair[0]] = pair[1]
		}
		tree, err := artifact.Read(bytes.NewReader(testenv.ChartArchive(h.t, files)), artifact.Limits{})
		testenv.Must(h.t, err)
		defer tree.Close()
		var b bytes.Buffer // repacked, because Go's compressor may change between releases
		_, err = artifact.Pack(h.t.Context(), &b, tree)
		testenv.Must(h.t, err)
		s.Put(testenv.ChartVersion{Name: "app", Version: version, Archive: b.Bytes()})
		h.request("PkgRepository", "src", object{"url": s.URL(), "interval": "1h"}, "is ready", isReady, nil)
	}
	h.step("no repository", nil)
	put("1.0.0")
	h.step("published", nil)
	h.step("nothing changed", nil)
	put("1.1.0")
	h.step("a new version", nil)
	h.step("a range without versions", object{"version": "^2"})
	put("2.0.0")
	h.step("mended", nil)
	h.step("with values", object{"valuesFiles": []any{"values.yaml", "prod.yaml"}})
	h.step("with values that are missing", object{"valuesFiles": []any{"prod.yaml", "none.yaml"}})
	h.step("which may be missing", object{"ignoreMissingValuesFiles": true})
	put("2.0.0", "more.yaml", "x")
	h.step("published again", nil)
}
