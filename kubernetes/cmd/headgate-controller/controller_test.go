package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

// document returns a document of the reference's group.
func document(kind, namespace, name string, spec object) object {
	return object{"apiVersion": source.ReferenceGroup + "/" + source.V1, "kind": kind, "metadata": object{"name": name, "namespace": namespace}, "spec": spec}
}

// withFields returns a copy of an object with more fields.
func withFields(o object, more object) object {
	all := object{}
	for _, from := range []object{o, more} {
		for key, value := range from {
			all[key] = value
		}
	}
	return all
}

// runCount returns the number of finished runs in this process, of one object, or of a kind in a
// namespace if name is "".
func runCount(t *testing.T, kind, namespace, name string) (n uint64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	for _, f := range families {
		if f.GetName() != "gotk_reconcile_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["kind"] == kind && labels["namespace"] == namespace && (name == "" || labels["name"] == name) {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

// TestAllKinds applies 60 valid objects and some invalid ones. After a restart the controller must
// write no status.
func TestAllKinds(t *testing.T) {
	c := startCluster(t)
	ns := c.namespace(t)
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{
		"app.yaml":          {Data: []byte("a: 1\n")},
		"charts/Chart.yaml": {Data: []byte("apiVersion: v2\nname: local\nversion: 0.1.0\n")},
	}})
	git := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	registry.Push("apps", "1.0.0", testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, fstest.MapFS{"a.yaml": {Data: []byte("a: 1\n")}})}})
	store := testenv.StartS3(t, testenv.StoreConfig{AccessKey: "access", SecretKey: "secret"})
	store.Bucket("objects").Put("a.yaml", "a: 1\n")
	charts := testenv.StartCharts(t, testenv.ChartsConfig{})
	charts.Put(testenv.ChartVersion{Name: "podinfo", Version: "6.0.0"})
	c.apply(t, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "s3", "namespace": ns}, "stringData": object{"accesskey": "access", "secretkey": "secret"}})

	type ref struct{ kind, name string }
	var good []ref
	add := func(kind string, n int, spec func(i int) object) {
		for i := range n {
			name := fmt.Sprintf("%s-%d", strings.ToLower(kind), i)
			c.apply(t, document(kind, ns, name, withFields(spec(i), object{"interval": "1h"})))
			good = append(good, ref{kind, name})
		}
	}
	add("HelmChart", 12, func(i int) object { // before the objects that they need
		if i%2 == 0 {
			return object{"chart": "podinfo", "version": "6.x", "sourceRef": object{"kind": "HelmRepository", "name": "helmrepository-0"}}
		}
		return object{"chart": "charts", "sourceRef": object{"kind": "GitRepository", "name": "gitrepository-0"}}
	})
	add("GitRepository", 20, func(i int) object {
		spec := object{"url": git.Repo(), "ref": object{"branch": "main"}}
		if i%4 == 1 {
			spec["include"] = []any{object{"repository": object{"name": "gitrepository-0"}, "toPath": "included"}}
		}
		return spec
	})
	add("OCIRepository", 10, func(int) object {
		return object{"url": registry.URL("apps"), "insecure": true, "ref": object{"semver": "1.x"}}
	})
	add("Bucket", 10, func(int) object {
		return object{"endpoint": strings.TrimPrefix(store.URL, "http://"), "insecure": true, "bucketName": "objects", "secretRef": object{"name": "s3"}}
	})
	add("HelmRepository", 8, func(int) object { return object{"url": charts.URL()} })
	testenv.Equal(t, len(good), 60)
	bad := []struct {
		name, kind string
		spec       object
		condition  string
		reason     string
		says       string
	}{
		{"bad-scheme", "GitRepository", object{"url": "ftp://example.org/r.git", "interval": "1h"}, "Stalled", "InvalidSpec", "spec.url"},
		{"bad-field", "Bucket", object{"endpoint": "example.org", "bucketName": "x", "interval": "1h", "unknown": 1}, "Stalled", "InvalidSpec", "spec.unknown"},
		{"bad-type", "OCIRepository", object{"url": object{"a": "b"}, "interval": []any{1}}, "Stalled", "InvalidSpec", "spec.interval"},
		{"bad-null", "HelmChart", nil, "Stalled", "InvalidSpec", "spec"},
		{"no-branch", "GitRepository", object{"url": git.Repo(), "interval": "1h", "ref": object{"branch": "none"}}, "FetchFailed", "GitOperationFailed", "none"},
		{"no-secret", "GitRepository", object{"url": git.Repo(), "interval": "1h", "secretRef": object{"name": "none"}}, "FetchFailed", "AuthenticationFailed", "secret " + ns + "/none does not exist"},
	}
	for _, b := range bad {
		c.apply(t, document(b.kind, ns, b.name, b.spec))
	}
	artifacts := t.TempDir()
	r := c.start(t, ns, artifacts)
	served := "http://" + r.loggedValue("artifacts are served", "addr")
	versions := map[ref]string{}
	for _, g := range good {
		obj := c.wait(t, g.kind, ns, g.name, "is ready", isReady)
		if a := obj.Artifact(); a != nil {
			checkArtifact(t, served, *a)
		} else {
			t.Errorf("%v has no artifact", g)
		}
	}
	for _, b := range bad {
		obj := c.wait(t, b.kind, ns, b.name, "has a condition", func(obj source.Object) bool { return obj.Common().Condition(b.condition).Status == "True" })
		got := obj.Common().Condition(b.condition)
		testenv.Equal(t, got.Reason, b.reason, b.name)
		if !strings.Contains(got.Message, b.says) || obj.Common().Condition("Ready").Status != "False" {
			t.Errorf("%s: %+v, want it to say %q and not be ready", b.name, obj.Common().Conditions, b.says)
		}
	}
	r.end()

	for _, g := range good {
		versions[g] = c.get(t, g.kind, ns, g.name).Head().Metadata.ResourceVersion
	}
	needing, before := uint64(12+5), runCount(t, "HelmChart", ns, "")+runCount(t, "GitRepository", ns, "")
	retried := runCount(t, "GitRepository", ns, "no-branch") + runCount(t, "GitRepository", ns, "no-secret") + runCount(t, "GitRepository", ns, "bad-scheme") + runCount(t, "HelmChart", ns, "bad-null")
	r = c.start(t, ns, artifacts)
	waitUntil(t, "all that need others ran again", func() bool {
		now := runCount(t, "GitRepository", ns, "no-branch") + runCount(t, "GitRepository", ns, "no-secret") + runCount(t, "GitRepository", ns, "bad-scheme") + runCount(t, "HelmChart", ns, "bad-null")
		return runCount(t, "HelmChart", ns, "")+runCount(t, "GitRepository", ns, "")-before >= needing+now-retried
	})
	r.end()
	for _, g := range good {
		testenv.Equal(t, c.get(t, g.kind, ns, g.name).Head().Metadata.ResourceVersion, versions[g], "resourceVersion of %v after a restart", g)
	}
}

// checkArtifact fetches an artifact and checks its URL, size and digest.
func checkArtifact(t *testing.T, served string, a artifact.Artifact) {
	t.Helper()
	testenv.Equal(t, a.URL, "http://source-controller.example/"+a.Path)
	resp, err := http.Get(served + "/" + a.Path)
	testenv.Must(t, err)
	defer resp.Body.Close()
	hash, err := artifact.SHA256.New()
	testenv.Must(t, err)
	size, err := io.Copy(hash, resp.Body)
	testenv.Must(t, err)
	testenv.Equal(t, size, a.Size, a.Path)
	testenv.Equal(t, fmt.Sprintf("sha256:%x", hash.Sum(nil)), a.Digest, a.Path)
}

// TestLifeCycle tests the life cycle of one object.
func TestLifeCycle(t *testing.T) {
	c := startCluster(t)
	ns := c.namespace(t)
	repo := testenv.NewRepo(t)
	commit := func(text string) string {
		return repo.Commit(testenv.Commit{Branch: "main", Message: text, Files: fstest.MapFS{"a": {Data: []byte(text)}}})
	}
	first := commit("first")
	git := testenv.ServeGit(t, testenv.GitConfig{Username: "alice", Password: "s3cret"}, repo)
	var events receiver
	receives := httptest.NewServer(&events)
	t.Cleanup(receives.Close)
	dir := t.TempDir()
	r := c.start(t, ns, dir, "--events-addr="+receives.URL, "--min-retry-delay=5m") // no retries during the test

	const kind, name = "GitRepository", "app"
	doc := document(kind, ns, name, object{"url": git.Repo(), "interval": "1h", "ref": object{"branch": "main"}, "secretRef": object{"name": "login"}})
	doc["metadata"].(object)["finalizers"] = []string{"finalizers.fluxcd.io"}
	secret := func(password string) {
		c.apply(t, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "login", "namespace": ns}, "stringData": object{"username": "alice", "password": password}})
	}
	revision := func(id string) func(source.Object) bool {
		return func(obj source.Object) bool {
			return isReady(obj) && obj.Artifact() != nil && obj.Artifact().Revision == "main@sha1:"+id
		}
	}
	request := func(name, value string) {
		c.patch(t, kind, ns, name, false, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, value))
	}
	handled := func(value string) func(source.Object) bool {
		return func(obj source.Object) bool { return obj.Common().LastHandledReconcileAt == value }
	}
	failing := func(obj source.Object) bool { return obj.Common().Condition("FetchFailed").Status == "True" }

	c.apply(t, doc)
	c.wait(t, kind, ns, name, "lacks its Secret", failing)
	secret("s3cret")
	c.wait(t, kind, ns, name, "is ready by its Secret", revision(first))
	waitUntil(t, "there are an Event and a post of the new artifact", func() bool {
		list := new(corev1.EventList)
		testenv.Must(t, c.List(t.Context(), list, client.InNamespace(ns)))
		return events.has("NewArtifact", "first") && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == "NewArtifact" && e.InvolvedObject.Name == name && e.InvolvedObject.UID != "" && e.Type == "Normal" && strings.Contains(e.Message, "first")
		})
	})

	// One request causes one run, which keeps conditions of other controllers.
	c.patch(t, kind, ns, name, true, `{"status":{"conditions":`+conditions(t, c.get(t, kind, ns, name), source.Condition{Type: "Approved", Status: "True", Reason: "Human", Message: "m"})+`}}`)
	waitUntil(t, "the run is logged", func() bool { return r.runCounts()[kind+"/"+ns+"/"+name] == 1 }) // the log entry follows the count
	second, before := commit("second"), runCount(t, kind, ns, name)
	request(name, "1")
	obj := c.wait(t, kind, ns, name, "is at the second commit", revision(second))
	testenv.Equal(t, obj.Common().LastHandledReconcileAt, "1")
	testenv.Equal(t, obj.Common().Condition("Approved").Reason, "Human")
	c.apply(t, withFields(doc, object{"metadata": object{"name": "other", "namespace": ns}}))
	c.wait(t, kind, ns, "other", "is ready", revision(second))
	waitUntil(t, "the run is counted", func() bool { return runCount(t, kind, ns, name) > before })
	testenv.Equal(t, runCount(t, kind, ns, name)-before, 1, "runs by a request")

	// A changed Secret takes effect immediately, whether it becomes wrong or right.
	secret("wrong")
	obj = c.wait(t, kind, ns, name, "fails by its Secret", failing)
	testenv.Equal(t, obj.Artifact().Revision, "main@sha1:"+second)
	secret("s3cret")
	c.wait(t, kind, ns, name, "is ready again", revision(second))

	// A status that another program changed is repaired.
	c.patch(t, kind, ns, name, true, `{"status":{"artifact":{"revision":"main@sha1:0000000000000000000000000000000000000000","digest":"sha256:00"},"conditions":[]}}`)
	obj = c.wait(t, kind, ns, name, "is repaired", revision(second))
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(obj.Artifact().Path))); err != nil {
		t.Error(err)
	}

	// A suspended object does not run.
	c.patch(t, kind, ns, name, false, `{"spec":{"suspend":true}}`)
	third := commit("third")
	request(name, "2")
	request("other", "2")
	c.wait(t, kind, ns, "other", "is at the third commit", revision(third))
	testenv.Equal(t, c.get(t, kind, ns, name).Artifact().Revision, "main@sha1:"+second)
	c.patch(t, kind, ns, name, false, `{"spec":{"suspend":false}}`)
	c.wait(t, kind, ns, name, "goes on", func(obj source.Object) bool { return revision(third)(obj) && handled("2")(obj) })

	// An invalid spec keeps the artifact.
	c.patch(t, kind, ns, name, false, `{"spec":{"url":"ftp://example.org/r.git"}}`)
	obj = c.wait(t, kind, ns, name, "is stalled", func(obj source.Object) bool { return obj.Common().Condition("Stalled").Status == "True" })
	testenv.Equal(t, obj.Artifact().Revision, "main@sha1:"+third)
	c.patch(t, kind, ns, name, false, fmt.Sprintf(`{"spec":{"url":%q}}`, git.Repo()))
	c.wait(t, kind, ns, name, "can be used again", revision(third))

	// Deleting an object deletes its artifacts; it can be created again.
	testenv.Must(t, c.Delete(t.Context(), emptyObject(kind, ns, name)))
	waitUntil(t, "the object is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, emptyObject(kind, ns, name)))
	})
	c.apply(t, doc)
	c.wait(t, kind, ns, name, "is there again", revision(third))
	testenv.Must(t, c.Delete(t.Context(), emptyObject(kind, ns, name)))
	waitUntil(t, "its files are gone", func() bool {
		_, files := os.Stat(filepath.Join(dir, "gitrepository", ns, name))
		_, state := os.Stat(filepath.Join(dir, ".state", "gitrepository", ns, name))
		return os.IsNotExist(files) && os.IsNotExist(state)
	})
	c.wait(t, kind, ns, "other", "is as it was", revision(third))
}

// TestLease starts two controllers for the same objects. The second, with its own volume, takes
// over when the first has ended.
func TestLease(t *testing.T) {
	c := startCluster(t)
	ns := c.namespace(t)
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	registry.Push("apps", "1.0.0", testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, fstest.MapFS{"a.yaml": {Data: []byte("a: 1\n")}})}})
	const kind, name = "OCIRepository", "app"
	c.apply(t, document(kind, ns, name, object{"url": registry.URL("apps"), "insecure": true, "ref": object{"semver": "1.x"}, "interval": "1h"}))
	election := []string{"--enable-leader-election", "--leader-election-retry-period=200ms"}
	first := c.start(t, ns, t.TempDir(), election...)
	c.wait(t, kind, ns, name, "is ready", isReady)
	lease := new(coordinationv1.Lease)
	testenv.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "source-controller-leader-election"}, lease))
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	told := false // the alerts use this metric of the lease
	for _, f := range families {
		told = told || f.GetName() == "leader_election_master_status" && strings.Contains(f.String(), `"`+lease.Name+`"`)
	}
	if !told {
		t.Error("the lease is not in the metrics")
	}
	second := c.begin(t, ns, t.TempDir(), election...)
	notReady := func() bool { return second.readyz() == http.StatusInternalServerError }
	waitUntil(t, "the second waits", notReady)
	c.patch(t, kind, ns, name, false, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"1"}}}`)
	c.wait(t, kind, ns, name, "ran by the first", func(obj source.Object) bool { return isReady(obj) && obj.Common().LastHandledReconcileAt == "1" })
	if !notReady() {
		t.Error("the second is ready while the first has the lease")
	}
	first.end()
	waitUntil(t, "the second is ready", func() bool { return second.readyz() == http.StatusOK })
	served := "http://" + second.loggedValue("artifacts are served", "addr")
	obj := c.wait(t, kind, ns, name, "is served by the second", func(obj source.Object) bool {
		if !isReady(obj) || obj.Artifact() == nil {
			return false
		}
		resp, err := http.Head(served + "/" + obj.Artifact().Path)
		testenv.Must(t, err)
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	checkArtifact(t, served, *obj.Artifact())
}

// TestOwnGroup tests objects of our own group with the definitions in the cluster.
func TestOwnGroup(t *testing.T) {
	c := freshCluster(t)
	ns := c.namespace(t)
	definitions, err := schema.Definitions(source.Group, false)
	testenv.Must(t, err)
	left := slices.IndexFunc(definitions, func(d object) bool {
		return strings.HasPrefix(d["metadata"].(object)["name"].(string), "externalartifacts.")
	})
	for i, d := range definitions {
		if i != left { // a cluster may lack a kind
			c.apply(t, d)
		}
	}
	c.apply(t, object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": "own-group"},
		"rules": []any{object{"apiGroups": []any{source.Group}, "resources": []any{"*"}, "verbs": []any{"get", "list", "watch", "patch"}}},
	})
	c.apply(t, object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": "own-group"},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "own-group"},
		"subjects": []any{object{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "controller"}},
	})
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{"chart/Chart.yaml": {Data: []byte("apiVersion: v2\nname: local\nversion: 0.1.0\n")}}})
	git := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	own := func(kind, name string, spec object) *unstructured.Unstructured {
		doc := withFields(document(kind, ns, name, spec), object{"apiVersion": source.Group + "/" + source.V1})
		text, err := json.Marshal(doc)
		testenv.Must(t, err)
		u := new(unstructured.Unstructured)
		testenv.Must(t, u.UnmarshalJSON(text))
		return u
	}
	objects := []*unstructured.Unstructured{
		own("GitRepository", "app", object{"url": git.Repo(), "interval": "1h", "ref": object{"branch": "main"}}),
		own("PkgChart", "app", object{"chart": "chart", "interval": "1h", "sourceRef": object{"kind": "GitRepository", "name": "app"}}),
	}
	for _, u := range objects {
		waitUntil(t, "the definition is served", func() bool { return client.IgnoreAlreadyExists(c.Create(t.Context(), u.DeepCopy())) == nil })
	}
	for _, bad := range []object{{"url": "ftp://example.org/r.git", "interval": "1h"}, {"url": git.Repo(), "interval": "soon"}} {
		if err := c.Create(t.Context(), own("GitRepository", "bad", bad)); !apierrors.IsInvalid(err) {
			t.Errorf("%v: %v, want it to be refused", bad, err)
		}
	}
	c.start(t, ns, t.TempDir(), "--group="+source.Group, "--watch-label-selector=!shard")
	c.apply(t, definitions[left])
	for _, u := range objects {
		waitUntilOr(t, u.GetKind()+" is ready", func() bool {
			testenv.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(u), u))
			text, err := u.MarshalJSON()
			testenv.Must(t, err)
			obj, err := source.DecodeObject(text)
			testenv.Must(t, err)
			return isReady(obj)
		}, func() string { return fmt.Sprint(u.Object) })
	}
}

// conditions returns the conditions of an object and one more as JSON.
func conditions(t *testing.T, obj source.Object, more source.Condition) string {
	text, err := json.Marshal(append(obj.Common().Conditions, more))
	testenv.Must(t, err)
	return string(text)
}

// A receiver records posted events.
type receiver struct {
	mu     sync.Mutex
	events []source.Event
}

func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	var e source.Event
	if json.NewDecoder(req.Body).Decode(&e) == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}
}

func (r *receiver) has(reason, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(e source.Event) bool {
		return e.Reason == reason && strings.Contains(e.Message, text) && e.InvolvedObject.UID != ""
	})
}

// TestFlags checks that the flags of source-controller are accepted and that invalid flags are
// refused.
func TestFlags(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	env := func(name string) (string, bool) { // an empty variable is ignored
		return map[string]string{"EVENTS_ADDR": "events.example"}[name], true
	}
	f, warnings, err := parse([]string{"--concurrent=10", "--no-cross-namespace-refs", "--requeue-dependency=5s", "--helm-cache-max-size=10", "--feature-gates=CacheSecretsAndConfigMaps=true,ObjectLevelWorkloadIdentity=false"}, env, t.Output())
	testenv.Must(t, err)
	testenv.Equal(t, f.eventsAddr, "events.example")
	testenv.Equal(t, f.healthAddr, ":9440")
	testenv.Equal(t, f.leaseName(), "source-controller-leader-election")
	f.selector = "sharding.fluxcd.io/key=shard1"
	testenv.Equal(t, f.leaseName(), "source-controller-leader-election-73fdc1be") // the name in source-controller v1.9.5
	testenv.Equal(t, len(warnings), 3, strings.Join(warnings, "\n"))
	for _, args := range []string{"x", "--group=example.org", "--interval-jitter-percentage=51", "--artifact-retention-records=0", "--feature-gates=X", "--unknown", "--min-retry-delay=0s", "--with-v1beta2", "--default-service-account=tenant", "--hook-secret=hooks"} {
		if _, _, err := parse([]string{args}, none, t.Output()); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
}
