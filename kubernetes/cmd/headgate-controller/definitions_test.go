package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/kubernetes/controller"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

// definition returns the definition of a kind, or nil.
func (c *cluster) definition(t *testing.T, plural, group string) *unstructured.Unstructured {
	t.Helper()
	u := new(unstructured.Unstructured)
	u.SetAPIVersion("apiextensions.k8s.io/v1")
	u.SetKind("CustomResourceDefinition")
	err := c.Get(t.Context(), client.ObjectKey{Name: plural + "." + group}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	testenv.Must(t, err)
	return u
}

// decodeAll returns the documents of a file.
func decodeAll(t *testing.T, r io.Reader) (all []*unstructured.Unstructured) {
	t.Helper()
	for d := yaml.NewYAMLOrJSONDecoder(r, 4096); ; {
		u := new(unstructured.Unstructured)
		if err := d.Decode(&u.Object); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 {
			all = append(all, u)
		}
	}
}

// grantFile grants the ClusterRoles in a file to the user of the controller.
func (c *cluster) grantFile(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	testenv.Must(t, err)
	defer f.Close()
	for _, u := range decodeAll(t, f) {
		if !strings.HasPrefix(u.GetKind(), "Cluster") {
			continue
		}
		if u.GetKind() == "ClusterRoleBinding" {
			u.Object["subjects"] = []any{object{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "controller"}}
		}
		c.apply(t, u.Object)
	}
}

// versioned returns an object of our group in a version.
func versioned(t *testing.T, version, kind, namespace, name string, spec object) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(withFields(document(kind, namespace, name, spec), object{"apiVersion": source.Group + "/" + version}))
	testenv.Must(t, err)
	u := new(unstructured.Unstructured)
	testenv.Must(t, u.UnmarshalJSON(text))
	return u
}

// getVersion returns an object in a version, as the API server converts it.
func (c *cluster) getVersion(t *testing.T, version string, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	now := new(unstructured.Unstructured)
	now.SetAPIVersion(source.Group + "/" + version)
	now.SetKind(u.GetKind())
	testenv.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(u), now))
	return now
}

// TestDefinitions tests how the controller applies the definitions of our group.
func TestDefinitions(t *testing.T) {
	c := freshCluster(t)
	ns := c.namespace(t)
	attempt := func() error {
		args := []string{"--kubeconfig=" + c.kubeconfig, "--group=" + source.Group, "--crds", "--storage-path=" + t.TempDir()}
		return run(t.Context(), args, func(string) (string, bool) { return "", false }, io.Discard)
	}
	refused := func(err error, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want something about %s", err, text)
			}
		}
	}
	create := func(plural string, change func(names object)) *unstructured.Unstructured {
		all, err := schema.Definitions(source.Group, false)
		testenv.Must(t, err)
		kind := slices.IndexFunc(all, func(d object) bool { return d["spec"].(object)["names"].(object)["plural"] == plural })
		change(all[kind]["spec"].(object)["names"].(object))
		all[kind]["metadata"].(object)["name"] = all[kind]["spec"].(object)["names"].(object)["plural"].(string) + "." + source.Group
		text, err := json.Marshal(all[kind])
		testenv.Must(t, err)
		u := new(unstructured.Unstructured)
		testenv.Must(t, u.UnmarshalJSON(text))
		testenv.Must(t, c.Create(t.Context(), u, client.FieldOwner("kustomize-controller")))
		return u
	}
	theirs := create("pkgcharts", func(names object) { names["singular"] = "chart-of-another" })

	// The controller lacks the permissions.
	var err error
	waitUntil(t, "there are no rights", func() bool { err = attempt(); return apierrors.IsForbidden(err) })
	refused(err, "--crds", `"buckets.source.headgate.dev" is forbidden`, `cannot get resource "customresourcedefinitions"`)

	// Another field manager owns a definition. The command in the error takes it away from that
	// manager.
	c.grantFile(t, "../../deploy/with-crds/rbac.yaml")
	c.grantFile(t, "../../deploy/headgate/rbac.yaml")
	waitUntil(t, "the rights count", func() bool { err = attempt(); return !apierrors.IsForbidden(err) })
	refused(err, "--crds", "pkgcharts.source.headgate.dev (kustomize-controller)", "managedFields")
	if c.definition(t, "buckets", source.Group) != nil {
		t.Error("a definition was applied beside one of another manager")
	}
	_, command, _ := strings.Cut(err.Error(), "hand each over: ")
	command = strings.NewReplacer("kubectl", tool(t, "kubectl", "KUBECTL")+" --kubeconfig="+c.admin, "NAME", theirs.GetName()).Replace(command)
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}

	// Another definition has the same kind.
	twin := create("buckets", func(names object) { names["plural"], names["singular"] = "others", "other" })
	waitUntil(t, "the other definition has the name", func() bool {
		testenv.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(twin), twin))
		return strings.Contains(fmt.Sprint(twin.Object["status"]), "Established")
	})
	refused(attempt(), "--crds", "definition buckets.source.headgate.dev was applied and is not served", "is already in use")
	testenv.Must(t, c.Delete(t.Context(), twin))
	waitUntil(t, "the name is free", func() bool {
		return !strings.Contains(fmt.Sprint(c.definition(t, "buckets", source.Group).Object["status"]), "already in use")
	})

	// An object created as v1beta2 keeps its fields, including those that v1 lacks, and can be read
	// in both versions.
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{
		"chart/Chart.yaml":  {Data: []byte("apiVersion: v2\nname: local\nversion: 0.1.0\n")},
		"chart/values.yaml": {Data: []byte("a: 0\n")},
		"chart/first.yaml":  {Data: []byte("a: 1\n")},
	}})
	git := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	r := c.start(t, ns, t.TempDir(), "--group="+source.Group, "--crds", "--with-v1beta2")
	beta := []*unstructured.Unstructured{
		versioned(t, source.V1Beta2, "GitRepository", ns, "app", object{
			"url": git.Repo(), "interval": "1h", "ref": object{"branch": "main"}, "gitImplementation": "go-git", "sparseCheckout": []any{"chart"},
		}),
		versioned(t, source.V1Beta2, "PkgChart", ns, "app", object{
			"chart": "chart", "interval": "1h", "sourceRef": object{"kind": "GitRepository", "name": "app"}, "valuesFile": "chart/first.yaml",
		}),
	}
	ready := func(u *unstructured.Unstructured, is func(source.Object) bool) *unstructured.Unstructured {
		t.Helper()
		var now *unstructured.Unstructured
		waitUntilOr(t, u.GetKind()+" is ready", func() bool {
			now = c.getVersion(t, source.V1, u)
			text, err := now.MarshalJSON()
			testenv.Must(t, err)
			obj, err := source.DecodeObject(text)
			testenv.Must(t, err)
			return isReady(obj) && is(obj)
		}, func() string { return fmt.Sprint(now.Object) })
		return now
	}
	for _, u := range beta {
		waitUntil(t, "v1beta2 is served", func() bool { return client.IgnoreAlreadyExists(c.Create(t.Context(), u.DeepCopy())) == nil })
	}
	for _, u := range beta {
		now := ready(u, func(source.Object) bool { return true })
		before := c.getVersion(t, source.V1Beta2, u)
		testenv.Equal(t, fmt.Sprint(before.Object["status"]), fmt.Sprint(now.Object["status"]), "status in v1beta2")
		testenv.Equal(t, fmt.Sprint(before.Object["spec"]), fmt.Sprint(now.Object["spec"]), "spec in v1beta2")
		for field, value := range u.Object["spec"].(object) {
			testenv.Equal(t, fmt.Sprint(now.Object["spec"].(object)[field]), fmt.Sprint(value), field)
		}
	}
	files, _, err := unstructured.NestedStringSlice(c.getVersion(t, source.V1, beta[1]).Object, "status", "observedValuesFiles")
	testenv.Must(t, err)
	testenv.Equal(t, strings.Join(files, " "), "chart/first.yaml", "spec.valuesFile")

	// A restart changes no definition. Without --with-v1beta2 that version is no longer served, and
	// the objects stay.
	versions := func() (all []string) {
		for _, k := range source.Kinds(source.Group) {
			m := c.definition(t, k.Plural, source.Group)
			all = append(all, m.GetName()+" "+m.GetResourceVersion())
			if !slices.ContainsFunc(m.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == controller.FieldManager }) {
				t.Errorf("%s has the field managers %v", m.GetName(), m.GetManagedFields())
			}
		}
		return all
	}
	before := versions()
	r.end()
	r = c.start(t, ns, t.TempDir(), "--group="+source.Group, "--crds", "--with-v1beta2")
	testenv.Equal(t, strings.Join(versions(), "\n"), strings.Join(before, "\n"), "definitions after a restart")
	r.end()
	var once sync.Once
	edited := c.startProxy(t, func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/customresourcedefinitions/") {
			once.Do(func() { // a definition that changed after it was read is read again
				m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, ObjectMeta: metav1.ObjectMeta{Name: path.Base(r.URL.Path)}}
				err = c.Patch(context.Background(), m, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"edited":"yes"}}}`)))
			})
		}
		return 0
	})
	edited.start(t, ns, t.TempDir(), "--group="+source.Group, "--crds")
	testenv.Must(t, err)
	edited.mu.Lock()
	if conflict := func(text string) bool {
		return strings.Contains(text, "/customresourcedefinitions/") && strings.HasSuffix(text, " 409")
	}; !slices.ContainsFunc(edited.answered, conflict) {
		t.Error("there was no conflict")
	}
	edited.mu.Unlock()
	waitUntil(t, "v1beta2 is not served", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(beta[0]), beta[0].DeepCopy()))
	})
	for _, u := range beta {
		testenv.Must(t, c.Patch(t.Context(), c.getVersion(t, source.V1, u), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"1"}}}`))))
		ready(u, func(obj source.Object) bool { return obj.Common().LastHandledReconcileAt == "1" })
	}
}
