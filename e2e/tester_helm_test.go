package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
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
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const (
	podTest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: app-test\n  annotations:\n    helm.sh/hook: test\nspec:\n  restartPolicy: Never\n  containers:\n  - name: test\n    image: test\n"
	jobTest = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: app-test\n  annotations:\n    helm.sh/hook: test\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n      - name: test\n        image: test\n"
)

// TestTesterChartTests checks that chart tests with the real helm work with the
// permissions in docs/deploy, and that a failure names the missing permission.
func TestTesterChartTests(t *testing.T) {
	t.Parallel()
	role := manifests(t, testerFiles...)["Role"][0].(*rbac.Role)
	for _, row := range []struct {
		name, helm, hook, cmd string
		change                func([]rbac.PolicyRule) []rbac.PolicyRule
		fails                 bool   // the chart test fails
		want                  string // part of the response
	}{
		{name: "pod", helm: "helm4", hook: podTest},
		{name: "job", helm: "helm4", hook: jobTest},
		{name: "pod", helm: "helm3", hook: podTest, change: addVerb("get")},
		{name: "job", helm: "helm3", hook: jobTest, change: addVerb("get")},
		{name: "pod, logs", helm: "helm3", hook: podTest, cmd: "test app --logs", change: addVerb("get")},
		{name: "pod that fails", helm: "helm4", hook: podTest, fails: true, want: "exit status 1"},
		{name: "job that fails", helm: "helm3", hook: jobTest, change: addVerb("get"), fails: true, want: "exit status 1"},
		{name: "no get", helm: "helm3", hook: podTest, want: "lacks the permission to get pods in namespace shop"},
		{name: "no get of jobs", helm: "helm3", hook: jobTest, want: "lacks the permission to get jobs in namespace shop"},
		{name: "no create", helm: "helm4", hook: podTest, change: removeVerb("create"), want: "lacks the permission to create pods in namespace shop"},
		{name: "no delete", helm: "helm4", hook: jobTest, change: removeVerb("delete"), want: "lacks the permission to delete jobs in namespace shop"},
		{name: "no watch", helm: "helm4", hook: podTest, change: removeVerb("watch"), want: "lacks the permission to watch pods in namespace shop"},
		{name: "no list", helm: "helm4", hook: podTest, change: removeVerb("list"), want: "lacks the permission to list secrets in namespace shop"},
		{name: "no update", helm: "helm4", hook: podTest, change: removeVerb("update"), want: "lacks the permission to update secrets in namespace shop"},
		{name: "no watch, until its time is over", helm: "helm3", hook: podTest, change: func(r []rbac.PolicyRule) []rbac.PolicyRule { return removeVerb("watch")(addVerb("get")(r)) },
			want: "lacks the permission to watch pods in namespace shop"},
	} {
		t.Run(row.helm+", "+row.name, func(t *testing.T) {
			rules := role.Rules
			if row.change != nil {
				rules = row.change(rules)
			}
			c := newCluster(t, row.hook, rules)
			c.failing, c.neverEnds = row.fails, strings.HasSuffix(row.name, "over")
			s := startTester(t, "--env", "PATH="+programs(t, "helm="+row.helm), "--env", "KUBECONFIG="+c.config(t), "--run-timeout", "10s")
			cmd := "test app"
			if row.cmd != "" {
				cmd = row.cmd
			}
			status, body := ask(t, "POST", s.url+"/", encodedPayload("app", stringMap{"type": "helmv3", "cmd": cmd, "returnCmdOutput": "true"}))
			if (status == 200) != (row.want == "") || !strings.Contains(body, row.want) {
				t.Errorf("%d %s\nit asked for %q, and was refused %q", status, body, c.requested, c.denied)
			}
			if row.want == "" && !strings.Contains(body, "Succeeded") {
				t.Errorf("the output is %q", body)
			}
		})
	}
}

// addVerb returns a function that adds a verb to rules. removeVerb returns one that
// removes it.
func addVerb(verb string) func([]rbac.PolicyRule) []rbac.PolicyRule {
	return func(rules []rbac.PolicyRule) (more []rbac.PolicyRule) {
		for _, rule := range rules {
			rule.Verbs = append([]string{verb}, rule.Verbs...)
			more = append(more, rule)
		}
		return more
	}
}

func removeVerb(verb string) func([]rbac.PolicyRule) []rbac.PolicyRule {
	return func(rules []rbac.PolicyRule) (less []rbac.PolicyRule) {
		for _, rule := range rules {
			var verbs []string
			for _, v := range rule.Verbs {
				if v != verb {
					verbs = append(verbs, v)
				}
			}
			rule.Verbs = verbs
			less = append(less, rule)
		}
		return less
	}
}

// manifests decodes files of docs/deploy with the Kubernetes types. Unknown
// fields and wrong types are errors.
func manifests(t *testing.T, files ...string) map[string][]any {
	t.Helper()
	all := map[string][]any{}
	for _, file := range files {
		file = filepath.Join("../docs/deploy", file)
		for _, document := range strings.Split(read(t, file), "\n---\n") {
			var head struct{ Kind, APIVersion string }
			must(t, yaml.Unmarshal([]byte(document), &head))
			into := map[string]any{
				"v1 Namespace": new(core.Namespace), "v1 ServiceAccount": new(core.ServiceAccount), "v1 PersistentVolumeClaim": new(core.PersistentVolumeClaim),
				"v1 Service": new(core.Service), "v1 Secret": new(core.Secret), "v1 ConfigMap": new(core.ConfigMap), "apps/v1 Deployment": new(apps.Deployment),
				"networking.k8s.io/v1 NetworkPolicy": new(network.NetworkPolicy), "rbac.authorization.k8s.io/v1 Role": new(rbac.Role), "rbac.authorization.k8s.io/v1 RoleBinding": new(rbac.RoleBinding),
			}[head.APIVersion+" "+head.Kind]
			if into == nil {
				t.Fatalf("%s: %s %s is not known", file, head.APIVersion, head.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
				t.Errorf("%s: %s: %v", file, head.Kind, err)
			}
			all[head.Kind] = append(all[head.Kind], into)
		}
	}
	return all
}

// testerFiles are the manifests of the test runner.
var testerFiles = []string{"tested-namespace.yaml", "tester.yaml", "tokens.yaml"}

// TestManifests checks that the manifests in docs/deploy match the Kubernetes
// types.
func TestManifests(t *testing.T) {
	t.Parallel()
	one := func(all map[string][]any, kinds ...string) map[string][]any {
		t.Helper()
		for _, kind := range append(kinds, "Namespace", "PersistentVolumeClaim", "Deployment", "Service", "Secret", "NetworkPolicy") {
			if len(all[kind]) != 1 {
				t.Errorf("%d of kind %s", len(all[kind]), kind)
			}
		}
		return all
	}
	one(manifests(t, "serve.yaml", "serve-tokens.yaml"), "ConfigMap")
	all := one(manifests(t, testerFiles...), "ServiceAccount", "Role", "RoleBinding")
	tokens := all["Secret"][0].(*core.Secret).StringData["tokens.yaml"]
	file := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), tokens)
	s := startTester(t, "--tokens", file)
	if status, _ := ask(t, "POST", s.url+"/gate/check", `{"name": "app", "namespace": "shop"}`); status != 401 {
		t.Errorf("status %d without a token", status)
	}
	must(t, os.Remove(file))
}

// A cluster is a fake API server with one release of a chart whose test is a pod
// or a job. It permits what rules permit, like the RBAC authorizer.
type cluster struct {
	*httptest.Server
	rules []rbac.PolicyRule

	mu        sync.Mutex
	secret    map[string]any
	objects   map[string]map[string]any // pods and jobs, by RESOURCE/NAME
	requested []string                  // VERB RESOURCE, in order, without duplicates
	denied    []string                  // likewise
	failing   bool                      // the chart test fails
	neverEnds bool                      // the chart test never ends
}

const (
	clusterUser   = "system:serviceaccount:headgate:tester"
	releaseSecret = "sh.helm.release.v1.app.v1"
)

// newCluster starts a cluster. Its release app in namespace shop has the test
// hook.
func newCluster(t *testing.T, hook string, rules []rbac.PolicyRule) *cluster {
	t.Helper()
	c := &cluster{rules: rules, objects: map[string]map[string]any{}}
	c.secret = map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
		"metadata": map[string]any{"name": releaseSecret, "namespace": "shop", "resourceVersion": "1", "labels": stringMap{"owner": "helm", "name": "app", "version": "1", "status": "deployed"}},
		"data":     stringMap{"release": release(t, hook)},
	}
	c.Server = httptest.NewServer(c)
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

// release returns the data of a release Secret of helm.
func release(t *testing.T, hook string) string {
	t.Helper()
	kind, _, _ := strings.Cut(hook[strings.Index(hook, "kind: ")+len("kind: "):], "\n")
	text, err := json.Marshal(map[string]any{
		"name": "app", "namespace": "shop", "version": 1, "manifest": "",
		"info":  map[string]any{"status": "deployed", "first_deployed": "2026-01-01T00:00:00Z", "last_deployed": "2026-01-01T00:00:00Z"},
		"chart": map[string]any{"metadata": map[string]any{"name": "app", "version": "1.0.0", "apiVersion": "v2"}},
		"hooks": []any{map[string]any{"name": "app-test", "kind": kind, "path": "app/templates/tests/test.yaml", "manifest": hook, "events": []string{"test"},
			"last_run": map[string]any{"phase": ""}}},
	})
	must(t, err)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(text)
	must(t, err)
	must(t, w.Close())
	inner := base64.StdEncoding.EncodeToString(packed.Bytes())
	return base64.StdEncoding.EncodeToString([]byte(inner)) // Secrets encode their data in base64 again
}

// config writes a kubeconfig for the cluster and returns its path.
func (c *cluster) config(t *testing.T) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "kubeconfig"), fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: shop}}]
current-context: x
`, c.URL))
}

// discovery has the discovery documents of a cluster by path.
var discovery = map[string]any{
	"/version":                  stringMap{"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
	"/openapi/v3":               map[string]any{"paths": map[string]any{"api/v1": stringMap{"serverRelativeURL": "/openapi/v3/api/v1"}, "apis/batch/v1": stringMap{"serverRelativeURL": "/openapi/v3/apis/batch/v1"}}},
	"/openapi/v3/api/v1":        schemas("", "v1", "Pod", "/api/v1/namespaces/{namespace}/pods"),
	"/openapi/v3/apis/batch/v1": schemas("batch", "v1", "Job", "/apis/batch/v1/namespaces/{namespace}/jobs"),
	"/api":                      map[string]any{"kind": "APIVersions", "versions": []string{"v1"}},
	"/apis": map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{"name": "batch",
		"versions": []any{stringMap{"groupVersion": "batch/v1", "version": "v1"}}, "preferredVersion": stringMap{"groupVersion": "batch/v1", "version": "v1"}}}},
	"/api/v1": map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
		map[string]any{"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": []string{"create", "delete", "get", "list", "watch"}},
		map[string]any{"name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret", "verbs": []string{"get", "list", "update", "watch"}}}},
	"/apis/batch/v1": map[string]any{"kind": "APIResourceList", "groupVersion": "batch/v1", "resources": []any{
		map[string]any{"name": "jobs", "singularName": "job", "namespaced": true, "kind": "Job", "verbs": []string{"create", "delete", "get", "list", "watch"}}}},
}

// schemas returns an OpenAPI document in which objects of a kind may have any
// fields.
func schemas(group, version, kind, path string) map[string]any {
	gvk := stringMap{"group": group, "version": version, "kind": kind}
	return map[string]any{"openapi": "3.0.0", "info": stringMap{"title": "Kubernetes", "version": "v1.36.0"},
		"paths": map[string]any{path: map[string]any{"post": map[string]any{"x-kubernetes-action": "post", "x-kubernetes-group-version-kind": gvk,
			"parameters": []any{map[string]any{"name": "fieldValidation", "in": "query", "schema": stringMap{"type": "string"}}}, "responses": map[string]any{}},
			"patch": map[string]any{"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": gvk,
				"parameters": []any{map[string]any{"name": "fieldValidation", "in": "query", "schema": stringMap{"type": "string"}}}, "responses": map[string]any{}}}},
		"components": map[string]any{"schemas": map[string]any{kind: map[string]any{"type": "object", "x-kubernetes-group-version-kind": []any{gvk}}}}}
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if found := discovery[r.URL.Path]; found != nil {
		reply(w, http.StatusOK, found)
		return
	}
	group, rest := "", strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/shop/")
	if after, found := strings.CutPrefix(r.URL.Path, "/apis/batch/v1/namespaces/shop/"); found {
		group, rest = "batch", after
	}
	parts := strings.Split(rest, "/")
	if rest == r.URL.Path || len(parts) > 3 {
		reply(w, http.StatusNotFound, status404)
		return
	}
	resource, name := parts[0], ""
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	verb := verbOf(r, name)
	if !c.allows(verb, group, resource) {
		subject := resource
		if name != "" {
			subject = fmt.Sprintf("%s %q", resource, name)
		}
		reply(w, http.StatusForbidden, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
			"message": fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group %q in the namespace %q", subject, clusterUser, verb, resource, group, "shop")})
		return
	}
	c.serve(w, r, verb, resource, name)
}

var status404 = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}

func verbOf(r *http.Request, name string) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	switch {
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}

func (c *cluster) allows(verb, group, resource string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	allowed := slices.ContainsFunc(c.rules, func(rule rbac.PolicyRule) bool {
		return slices.Contains(rule.Verbs, verb) && slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource)
	})
	list := &c.requested
	if !allowed {
		list = &c.denied
	}
	if what := verb + " " + resource; !slices.Contains(*list, what) {
		*list = append(*list, what)
	}
	return allowed
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request, verb, resource, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := map[string]string{"secrets": "Secret", "pods": "Pod", "jobs": "Job"}[resource]
	switch {
	case resource == "pods/log":
		io.WriteString(w, "the test says hello\n")
	case resource == "secrets" && verb == "list":
		reply(w, http.StatusOK, map[string]any{"kind": "SecretList", "apiVersion": "v1", "metadata": stringMap{"resourceVersion": "1"}, "items": []any{c.secret}})
	case resource == "secrets" && verb == "update":
		json.NewDecoder(r.Body).Decode(&c.secret)
		reply(w, http.StatusOK, c.secret)
	case resource == "secrets" && name == releaseSecret:
		reply(w, http.StatusOK, c.secret)
	case verb == "create":
		c.create(w, r, resource)
	case verb == "watch":
		c.watch(w, r, resource)
	case verb == "list":
		items := []any{}
		for key, o := range c.objects {
			if strings.HasPrefix(key, resource+"/") {
				items = append(items, o)
			}
		}
		reply(w, http.StatusOK, map[string]any{"kind": kind + "List", "apiVersion": c.version(resource), "metadata": stringMap{"resourceVersion": "2"}, "items": items})
	case c.objects[resource+"/"+name] == nil:
		reply(w, http.StatusNotFound, status404)
	case verb == "delete":
		delete(c.objects, resource+"/"+name)
		reply(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	default:
		reply(w, http.StatusOK, c.objects[resource+"/"+name])
	}
}

func (c *cluster) version(resource string) string {
	if resource == "jobs" {
		return "batch/v1"
	}
	return "v1"
}

// create creates an object, which completes immediately unless c.neverEnds is set.
func (c *cluster) create(w http.ResponseWriter, r *http.Request, resource string) {
	var o map[string]any
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		reply(w, http.StatusBadRequest, status404)
		return
	}
	meta := o["metadata"].(map[string]any)
	meta["namespace"], meta["resourceVersion"], meta["uid"], meta["creationTimestamp"] = "shop", "2", "u", "2026-01-01T00:00:00Z"
	phase, condition := "Succeeded", "Complete"
	if c.failing {
		phase, condition = "Failed", "Failed"
	}
	if c.neverEnds {
		phase, condition = "Running", "Suspended"
	}
	o["status"] = map[string]any{"phase": phase, "conditions": []any{stringMap{"type": condition, "status": "True"}}, "succeeded": 1}
	c.objects[resource+"/"+meta["name"].(string)] = o
	reply(w, http.StatusCreated, o)
}

// watch sends the existing objects and then nothing until the client disconnects.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request, resource string) {
	w.Header().Set("Content-Type", "application/json")
	events := json.NewEncoder(w)
	for key, o := range c.objects {
		if strings.HasPrefix(key, resource+"/") {
			events.Encode(map[string]any{"type": "ADDED", "object": o})
		}
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		kind := map[string]string{"pods": "Pod", "jobs": "Job"}[resource]
		events.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{"kind": kind, "apiVersion": c.version(resource),
			"metadata": map[string]any{"resourceVersion": "2", "annotations": stringMap{"k8s.io/initial-events-end": "true"}}}})
	}
	w.(http.Flusher).Flush()
	c.mu.Unlock()
	defer c.mu.Lock()
	left := time.NewTimer(time.Minute)
	defer left.Stop()
	select {
	case <-r.Context().Done():
	case <-left.C:
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}
