package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// Chart tests by the real helm get along with the permissions of docs/deploy,
// and a failure names the one that is missing.
func TestTesterChartTests(t *testing.T) {
	role := manifests(t, testerFiles...)["Role"][0].(*rbac.Role)
	for _, row := range []struct {
		name, helm, hook, cmd string
		change                func([]rbac.PolicyRule) []rbac.PolicyRule
		fails                 bool   // the test itself
		want                  string // in the text of the failure
	}{
		{name: "pod", helm: "helm4", hook: podTest},
		{name: "job", helm: "helm4", hook: jobTest},
		{name: "pod", helm: "helm3", hook: podTest, change: also("get")},
		{name: "job", helm: "helm3", hook: jobTest, change: also("get")},
		{name: "pod, logs", helm: "helm3", hook: podTest, cmd: "test app --logs", change: also("get")},
		{name: "pod that fails", helm: "helm4", hook: podTest, fails: true, want: "exit status 1"},
		{name: "job that fails", helm: "helm3", hook: jobTest, change: also("get"), fails: true, want: "exit status 1"},
		{name: "no get", helm: "helm3", hook: podTest, want: "lacks the permission to get pods in namespace shop"},
		{name: "no get of jobs", helm: "helm3", hook: jobTest, want: "lacks the permission to get jobs in namespace shop"},
		{name: "no create", helm: "helm4", hook: podTest, change: without("create"), want: "lacks the permission to create pods in namespace shop"},
		{name: "no delete", helm: "helm4", hook: jobTest, change: without("delete"), want: "lacks the permission to delete jobs in namespace shop"},
		{name: "no watch", helm: "helm4", hook: podTest, change: without("watch"), want: "lacks the permission to watch pods in namespace shop"},
		{name: "no list", helm: "helm4", hook: podTest, change: without("list"), want: "lacks the permission to list secrets in namespace shop"},
		{name: "no update", helm: "helm4", hook: podTest, change: without("update"), want: "lacks the permission to update secrets in namespace shop"},
		{name: "no watch, until its time is over", helm: "helm3", hook: podTest, change: func(r []rbac.PolicyRule) []rbac.PolicyRule { return without("watch")(also("get")(r)) },
			want: "lacks the permission to watch pods in namespace shop"},
	} {
		t.Run(row.helm+", "+row.name, func(t *testing.T) {
			rules := role.Rules
			if row.change != nil {
				rules = row.change(rules)
			}
			c := newCluster(t, row.hook, rules)
			c.failing, c.lasting = row.fails, strings.HasSuffix(row.name, "over")
			s := startTester(t, "--env", "PATH="+programs(t, "helm="+row.helm), "--env", "KUBECONFIG="+c.config(t), "--run-timeout", "10s")
			cmd := "test app"
			if row.cmd != "" {
				cmd = row.cmd
			}
			status, body := ask(t, "POST", s.url+"/", payload("app", keys{"type": "helmv3", "cmd": cmd, "returnCmdOutput": "true"}))
			if (status == 200) != (row.want == "") || !strings.Contains(body, row.want) {
				t.Errorf("%d %s\nit asked for %q, and was refused %q", status, body, c.asked, c.denied)
			}
			if row.want == "" && !strings.Contains(body, "Succeeded") {
				t.Errorf("the output is %q", body)
			}
		})
	}
}

// also returns rules with one verb more, without returns them with one less.
func also(verb string) func([]rbac.PolicyRule) []rbac.PolicyRule {
	return func(rules []rbac.PolicyRule) (more []rbac.PolicyRule) {
		for _, rule := range rules {
			rule.Verbs = append([]string{verb}, rule.Verbs...)
			more = append(more, rule)
		}
		return more
	}
}

func without(verb string) func([]rbac.PolicyRule) []rbac.PolicyRule {
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

// manifests decodes files of docs/deploy by the types of Kubernetes; unknown
// fields and values of other types are errors.
func manifests(t *testing.T, files ...string) map[string][]any {
	t.Helper()
	all := map[string][]any{}
	for _, file := range files {
		file = filepath.Join("../docs/deploy", file)
		for _, document := range strings.Split(read(t, file), "\n---\n") {
			var head struct{ Kind, APIVersion string }
			check(t, yaml.Unmarshal([]byte(document), &head))
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

// The manifests of the server of sources are what Kubernetes has types for.
func TestServeManifests(t *testing.T) {
	all := manifests(t, "serve.yaml", "serve-tokens.yaml")
	for _, kind := range []string{"Namespace", "ConfigMap", "PersistentVolumeClaim", "Deployment", "Service", "Secret", "NetworkPolicy"} {
		if len(all[kind]) != 1 {
			t.Errorf("%d of kind %s", len(all[kind]), kind)
		}
	}
}

// The manifests of the test runner are what Kubernetes has types for.
func TestTesterManifests(t *testing.T) {
	all := manifests(t, testerFiles...)
	for _, kind := range []string{"Namespace", "ServiceAccount", "PersistentVolumeClaim", "Service", "Secret", "Deployment", "NetworkPolicy", "Role", "RoleBinding"} {
		if len(all[kind]) != 1 {
			t.Errorf("%d of kind %s", len(all[kind]), kind)
		}
	}
	tokens := all["Secret"][0].(*core.Secret).StringData["tokens.yaml"]
	file := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), tokens)
	s := startTester(t, "--tokens", file)
	if status, _ := ask(t, "POST", s.url+"/gate/check", `{"name": "app", "namespace": "shop"}`); status != 401 {
		t.Errorf("status %d without a token", status)
	}
	check(t, os.Remove(file))
}
