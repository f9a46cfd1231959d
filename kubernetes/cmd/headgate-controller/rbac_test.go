package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logger "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// The loggers of libraries are process-wide: the first controller would set them while clients of
// other tests use them.
func init() {
	libraryLogs.Do(func() {
		logger.SetLogger(logr.Discard())
		klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	})
}

// A permission is a verb for a resource.
type permission struct{ verb, resource, group string }

// String returns the permission in the wording of the API server's refusals.
func (r permission) String() string {
	return fmt.Sprintf("%s resource %q in API group %q", r.verb, r.resource, r.group)
}

// rightsOf returns the permissions of the Roles and ClusterRoles in a manifest.
func rightsOf(t *testing.T, name string) (all []permission) {
	t.Helper()
	f, err := os.Open(filepath.Join("../../deploy", name))
	testenv.Must(t, err)
	defer f.Close()
	for d := yaml.NewYAMLToJSONDecoder(f); ; {
		var role rbacv1.ClusterRole
		if err := d.Decode(&role); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all = append(all, permission{verb, resource, group})
					}
				}
			}
		}
	}
}

// grant grants permissions to a service account, with a Role in its namespace or with a
// ClusterRole.
func (c *cluster) grant(t *testing.T, kind, name, namespace, account string, rights []permission) {
	t.Helper()
	var rules []any
	for _, r := range rights {
		rules = append(rules, object{"apiGroups": []any{r.group}, "resources": []any{r.resource}, "verbs": []any{r.verb}})
	}
	const group = "rbac.authorization.k8s.io"
	head := object{"name": name}
	if kind == "Role" {
		head["namespace"] = namespace
	}
	c.apply(t, object{"apiVersion": group + "/v1", "kind": kind, "metadata": head, "rules": rules})
	c.apply(t, object{
		"apiVersion": group + "/v1", "kind": kind + "Binding", "metadata": head,
		"roleRef":  object{"apiGroup": group, "kind": kind, "name": name},
		"subjects": []any{object{"kind": "ServiceAccount", "name": account, "namespace": namespace}},
	})
	within := namespace
	if kind == "ClusterRole" {
		within = ""
	}
	c.waitPermission(t, "system:serviceaccount:"+namespace+":"+account, within, rights[0])
}

// withAccount creates a service account and returns a copy of c with its kubeconfig. The kubeconfig uses the
// cluster entry at.
func (c *cluster) withAccount(t *testing.T, namespace, account string, at object) *cluster {
	t.Helper()
	c.apply(t, object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": account, "namespace": namespace}})
	of := new(corev1.ServiceAccount)
	of.Namespace, of.Name = namespace, account
	request := new(authenticationv1.TokenRequest)
	testenv.Must(t, c.SubResource("token").Create(t.Context(), of, request))
	other := *c
	other.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "t", "clusters": []any{object{"name": "t", "cluster": at}},
		"users": []any{object{"name": "a", "user": object{"token": request.Status.Token}}}, "contexts": []any{object{"name": "t", "context": object{"cluster": "t", "user": "a"}}},
	})
	testenv.Must(t, err)
	testenv.Must(t, os.WriteFile(other.kubeconfig, text, 0o600))
	return &other
}

// startConflictProxy starts a proxy in front of the API server and returns its cluster entry for a kubeconfig.
// It changes each object just before the first patch of its status, which causes a conflict. In
// namespaces that begin with list it refuses to send lists as a watch, as servers before Kubernetes
// 1.34 do.
func (c *cluster) startConflictProxy(t *testing.T) object {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	testenv.Must(t, err)
	target, err := url.Parse(config.Host)
	testenv.Must(t, err)
	way, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: config.TLSClientConfig})
	testenv.Must(t, err)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: way, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	var touched sync.Map
	server, ca := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.Split(r.URL.Path, "/") // /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/status
		if r.Method == http.MethodPatch && len(path) == 9 && path[8] == "status" {
			if _, again := touched.LoadOrStore(r.URL.Path, true); !again {
				i := slices.IndexFunc(scenarioKinds, func(kind string) bool { return resourceOf(kind) == path[6] })
				u := emptyObject(scenarioKinds[i], path[5], path[7])
				_ = c.Patch(r.Context(), u, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"touched":"1"}}}`))) // the object may be deleted
			}
		}
		if r.URL.Query().Has("sendInitialEvents") && strings.Contains(r.URL.Path, "/namespaces/list") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","code":422}`)
			return
		}
		forward.ServeHTTP(w, r)
	})), testenv.NewCA(t)
	server.TLS = ca.ServerConfig(false)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return object{"server": server.URL, "certificate-authority-data": ca.PEM()}
}

var scenarioKinds = []string{"GitRepository", "OCIRepository", "Bucket", "HelmRepository", "HelmChart"}

func resourceOf(kind string) string {
	if stem, ok := strings.CutSuffix(strings.ToLower(kind), "y"); ok {
		return stem + "ies"
	}
	return strings.ToLower(kind) + "s"
}

// A scenario has the upstreams of objects that make a controller use all its permissions.
type scenario struct {
	git      *testenv.GitServer
	registry *testenv.Registry
	store    *testenv.Store
	charts   *testenv.Charts
}

func newScenario(t *testing.T) *scenario {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{"a": {Data: []byte("a")}}})
	s := &scenario{
		git:      testenv.ServeGit(t, testenv.GitConfig{}, repo),
		registry: testenv.StartRegistry(t, testenv.RegistryConfig{}),
		store:    testenv.StartS3(t, testenv.StoreConfig{AccessKey: "access", SecretKey: "secret"}),
		charts:   testenv.StartCharts(t, testenv.ChartsConfig{}),
	}
	s.registry.Push("apps", "1.0.0", testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, fstest.MapFS{"a.yaml": {Data: []byte("a: 1\n")}})}})
	s.store.Bucket("objects").Put("a.yaml", "a: 1\n")
	s.charts.Put(testenv.ChartVersion{Name: "podinfo", Version: "6.0.0"})
	return s
}

func secretOf(namespace, name, kind string, data object) object {
	return object{"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": object{"name": name, "namespace": namespace}, "stringData": data}
}

// apply creates the objects of s and everything they need, except the Secret late.
func (s *scenario) apply(t *testing.T, c *cluster, ns string) {
	t.Helper()
	c.apply(t, secretOf(ns, "s3", "Opaque", object{"accesskey": "access", "secretkey": "secret"}))
	c.apply(t, secretOf(ns, "pull", "kubernetes.io/dockerconfigjson", object{".dockerconfigjson": `{"auths":{}}`}))
	c.apply(t, object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "pull", "namespace": ns}, "imagePullSecrets": []any{object{"name": "pull"}}})
	for _, o := range []struct {
		kind, name string
		spec       object
	}{
		{"GitRepository", "late", object{"url": s.git.Repo(), "ref": object{"branch": "main"}, "secretRef": object{"name": "late"}}},
		{"OCIRepository", "app", object{"url": s.registry.URL("apps"), "insecure": true, "ref": object{"tag": "1.0.0"}, "serviceAccountName": "pull"}},
		{"Bucket", "app", object{"endpoint": strings.TrimPrefix(s.store.URL, "http://"), "insecure": true, "bucketName": "objects", "secretRef": object{"name": "s3"}}},
		{"HelmRepository", "app", object{"url": s.charts.URL()}},
		{"HelmChart", "app", object{"chart": "podinfo", "sourceRef": object{"kind": "HelmRepository", "name": "app"}}},
	} {
		doc := document(o.kind, ns, o.name, withFields(o.spec, object{"interval": "1h"}))
		doc["metadata"] = object{"name": o.name, "namespace": ns, "labels": object{"tenant": ns}, "finalizers": []any{"finalizers.fluxcd.io"}}
		c.apply(t, doc)
	}
}

// run runs a controller through the scenario, and ends early if over returns true. If watches is
// false, it requests a run after each change of the Secret.
func (s *scenario) run(t *testing.T, c *cluster, ns string, watches bool, over func() bool) {
	t.Helper()
	ended := false
	wait := func(what string, is func() bool) bool {
		t.Helper()
		waitUntil(t, what, func() bool { ended = ended || over(); return ended || is() })
		return !ended
	}
	of := func(kind, name string, is func(source.Object) bool) func() bool {
		return func() bool { return is(c.get(t, kind, ns, name)) }
	}
	failing := func(obj source.Object) bool { return obj.Common().Condition("FetchFailed").Status == "True" }
	late := func(exists bool) {
		secret := secretOf(ns, "late", "Opaque", object{"username": "a", "password": "b"})
		if exists {
			c.apply(t, secret)
		} else {
			gone := new(corev1.Secret)
			gone.Namespace, gone.Name = ns, "late"
			testenv.Must(t, c.Delete(t.Context(), gone))
		}
		if !watches {
			c.patch(t, "GitRepository", ns, "late", false, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"%v"}}}`, exists))
		}
	}
	s.apply(t, c, ns)
	for _, kind := range scenarioKinds[1:] {
		if !wait(kind+" is ready", of(kind, "app", isReady)) {
			return
		}
	}
	if !wait("the Secret is missing", of("GitRepository", "late", failing)) {
		return
	}
	late(true)
	if !wait("the Secret is there", of("GitRepository", "late", isReady)) {
		return
	}
	late(false)
	if !wait("the Secret is missing again", of("GitRepository", "late", failing)) {
		return
	}
	if !wait("its Event is counted", func() bool {
		list := new(corev1.EventList)
		testenv.Must(t, c.List(t.Context(), list, client.InNamespace(ns)))
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.InvolvedObject.Name == "late" && e.Count > 1 })
	}) {
		return
	}
	name := func(kind string) string {
		return map[bool]string{true: "late", false: "app"}[kind == "GitRepository"]
	}
	for _, kind := range scenarioKinds {
		testenv.Must(t, c.Delete(t.Context(), emptyObject(kind, ns, name(kind))))
	}
	for _, kind := range scenarioKinds {
		if !wait(kind+" is gone", func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name(kind)}, emptyObject(kind, ns, name(kind))))
		}) {
			return
		}
	}
}

// missingPermissions returns the missing permissions in the log.
func (r *localController) missingPermissions() (all []string) {
	for line := range strings.Lines(r.log.text()) {
		var values struct{ Msg, Missing, Do string }
		if json.Unmarshal([]byte(line), &values) == nil && values.Msg == "permission" && values.Do != "" {
			all = append(all, values.Missing)
		}
	}
	return all
}

// TestRights checks that the permissions in the manifests suffice, and that the log names each
// missing permission.
func TestRights(t *testing.T) {
	c := startCluster(t)
	all := rightsOf(t, "rbac.yaml")
	one := rightsOf(t, "rbac-namespace.yaml")
	order := func(a, b permission) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(all, order)
	slices.SortFunc(one, order)
	testenv.Equal(t, one, all, "rights of rbac-namespace.yaml")
	without := func(is func(permission) bool) (left, removed []permission) {
		for _, r := range all {
			if is(r) {
				removed = append(removed, r)
			} else {
				left = append(left, r)
			}
		}
		return left, removed
	}
	lease := func(r permission) bool { return r.resource == "leases" }
	status := func(r permission) bool { return strings.HasSuffix(r.resource, "/status") }
	used := func(r permission) bool { return r.resource == "secrets" || r.resource == "serviceaccounts" }
	s, at := newScenario(t), c.startConflictProxy(t)
	var removed []permission // removed in any subtest
	for name, is := range map[string]func(permission) bool{
		"nothing":        nil,
		"cluster":        nil,
		"watch secrets":  func(r permission) bool { return used(r) && r.verb != "get" },
		"get":            func(r permission) bool { return r.verb == "get" && !lease(r) },
		"list":           func(r permission) bool { return r.verb == "list" && !lease(r) },
		"watch":          func(r permission) bool { return r.verb == "watch" },
		"patch":          func(r permission) bool { return r.verb == "patch" && !status(r) && r.resource != "events" },
		"patch events":   func(r permission) bool { return r.verb == "patch" && r.resource == "events" },
		"status, events": func(r permission) bool { return status(r) || r.resource == "events" && r.verb == "create" },
		"list lease":     func(r permission) bool { return lease(r) && r.verb == "list" },
		"get lease":      func(r permission) bool { return lease(r) && r.verb == "get" },
		"create lease":   func(r permission) bool { return lease(r) && r.verb == "create" },
		"update lease":   func(r permission) bool { return lease(r) && r.verb == "update" },
	} {
		left, gone, enough := all, []permission(nil), is == nil || name == "watch secrets"
		if is != nil {
			if left, gone = without(is); name != "watch secrets" {
				removed = append(removed, gone...)
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-") + fmt.Sprintf("-%x", time.Now().UnixNano())
			c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": ns}})
			v := c.withAccount(t, ns, "headgate-controller", at)
			args := []string{"--enable-leader-election", "--leader-election-retry-period=200ms"}
			switch name {
			case "cluster":
				c.grant(t, "ClusterRole", ns, ns, "headgate-controller", slices.DeleteFunc(slices.Clone(left), lease))
				c.grant(t, "Role", "lease", ns, "headgate-controller", slices.DeleteFunc(slices.Clone(left), func(r permission) bool { return !lease(r) }))
				args = append(args, "--watch-all-namespaces=true", "--watch-label-selector=tenant="+ns)
			case "watch secrets":
				args = append(args, "--watch-secrets=false")
				fallthrough
			default:
				c.grant(t, "Role", "headgate-controller", ns, "headgate-controller", left)
			}
			r := v.begin(t, ns, t.TempDir(), args...)
			told := func() bool {
				if name != "list lease" { // without it the controller ends
					r.readyz() // restarts it if its port was taken
				}
				said := r.missingPermissions()
				return !slices.ContainsFunc(gone, func(right permission) bool {
					return !slices.ContainsFunc(said, func(text string) bool {
						return strings.HasPrefix(text, right.String()) && strings.Contains(text, fmt.Sprintf("in the namespace %q", ns))
					})
				})
			}
			if enough {
				s.run(t, c, ns, name != "watch secrets", func() bool { r.readyz(); return false })
				testenv.Equal(t, r.missingPermissions(), nil, "missing rights")
				return
			}
			s.run(t, c, ns, true, told)
			waitUntil(t, "each missing right is told", told)
			if name == "list lease" {
				err := <-r.ended
				r.ended <- nil
				if err == nil || !strings.Contains(err.Error(), "cannot list resource \"leases\"") {
					t.Errorf("the controller ended: %v", err)
				}
			}
			for _, text := range r.missingPermissions() {
				if !slices.ContainsFunc(gone, func(right permission) bool { return strings.HasPrefix(text, right.String()) }) {
					t.Errorf("missing: %s, which was not removed", text)
				}
			}
		})
	}
	slices.SortFunc(removed, order)
	testenv.Equal(t, removed, all, "rights that were removed once")
}
