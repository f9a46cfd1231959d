package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// An object is a document of docs/deploy.
type object map[string]any

// at returns what is at a path of keys; an index of a list is a number in brackets.
func (o object) at(path string) any {
	var value any = map[string]any(o)
	for _, key := range strings.Split(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			value = v[slices.Index([]string{"0", "1", "2"}, key)]
		default:
			return nil
		}
	}
	return value
}

// deployed returns the documents of docs/deploy, by KIND/NAMESPACE/NAME.
func deployed(t *testing.T) map[string]object {
	t.Helper()
	files, err := filepath.Glob("../../docs/deploy/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	all := map[string]object{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			var o object
			if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			namespace, _ := o.at("metadata.namespace").(string)
			all[o.at("kind").(string)+"/"+namespace+"/"+o.at("metadata.name").(string)] = o
		}
	}
	return all
}

// The role has the permissions that the specification names for chart tests, and no others.
func TestDeployedRole(t *testing.T) {
	role := deployed(t)["Role/shop/headgate-tester"]
	want := []any{
		map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get", "watch", "list", "update"}},
		map[string]any{"apiGroups": []any{""}, "resources": []any{"pods", "pods/log"}, "verbs": []any{"create", "list", "delete", "watch"}},
		map[string]any{"apiGroups": []any{"batch"}, "resources": []any{"jobs"}, "verbs": []any{"create", "list", "delete", "watch"}},
	}
	if got := role.at("rules"); !reflect.DeepEqual(got, want) {
		t.Errorf("rules %v", got)
	}
}

// The manifests name each other as they are called.
func TestDeployedNames(t *testing.T) {
	all := deployed(t)
	pod := object(all["Deployment/headgate/tester"].at("spec.template").(map[string]any))
	container := object(pod.at("spec.containers.0").(map[string]any))
	labels := pod.at("metadata.labels")
	for what, pair := range map[string][2]any{
		"selector of the Deployment":    {all["Deployment/headgate/tester"].at("spec.selector.matchLabels"), labels},
		"selector of the Service":       {all["Service/headgate/tester"].at("spec.selector"), labels},
		"selector of the NetworkPolicy": {all["NetworkPolicy/headgate/tester"].at("spec.podSelector.matchLabels"), labels},
		"port of the Service":           {all["Service/headgate/tester"].at("spec.ports.0.targetPort"), container.at("ports.0.name")},
		"port before it":                {all["Service/headgate/tester"].at("spec.ports.0.port"), 80.0},
		"port of the container":         {container.at("ports.0.containerPort"), 8080.0},
		"account":                       {pod.at("spec.serviceAccountName"), all["ServiceAccount/headgate/tester"].at("metadata.name")},
		"claim":                         {pod.at("spec.volumes.0.persistentVolumeClaim.claimName"), all["PersistentVolumeClaim/headgate/tester"].at("metadata.name")},
		"tokens":                        {pod.at("spec.volumes.1.secret.secretName"), all["Secret/headgate/tester-tokens"].at("metadata.name")},
		"subject":                       {all["RoleBinding/shop/headgate-tester"].at("subjects.0.name"), "tester"},
		"its namespace":                 {all["RoleBinding/shop/headgate-tester"].at("subjects.0.namespace"), "headgate"},
		"role":                          {all["RoleBinding/shop/headgate-tester"].at("roleRef.name"), "headgate-tester"},
		"replicas":                      {all["Deployment/headgate/tester"].at("spec.replicas"), 1.0},
		"strategy":                      {all["Deployment/headgate/tester"].at("spec.strategy.type"), "Recreate"},
		"root":                          {pod.at("spec.securityContext.runAsNonRoot"), true},
		"root file system":              {container.at("securityContext.readOnlyRootFilesystem"), true},
		"escalation":                    {container.at("securityContext.allowPrivilegeEscalation"), false},
		"capabilities":                  {container.at("securityContext.capabilities.drop"), []any{"ALL"}},
	} {
		if pair[0] == nil || !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
	args := words(t, container.at("args"))
	f := flagsOf(t, args)
	if seconds := pod.at("spec.terminationGracePeriodSeconds").(float64); time.Duration(seconds)*time.Second <= f.grace {
		t.Errorf("the pod is killed after %v s, runs have %s", seconds, f.grace)
	}
	for _, mount := range container.at("volumeMounts").([]any) {
		path := mount.(map[string]any)["mountPath"].(string)
		if path != "/tmp" && !strings.Contains(strings.Join(args, " "), path) {
			t.Errorf("nothing uses %s of %v", path, args)
		}
	}
}

// The recipe has the command begin with flags that it has, and not as root.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../docs/deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var entry, args any
	for name, into := range map[string]*any{"ENTRYPOINT": &entry, "CMD": &args} {
		line := regexp.MustCompile(`(?m)^` + name + ` (\[.*\])$`).FindSubmatch(text)
		if line == nil {
			t.Fatalf("no %s", name)
		}
		if err := json.Unmarshal(line[1], into); err != nil {
			t.Fatal(err)
		}
	}
	if got := words(t, entry); !slices.Equal(got, []string{"/usr/local/bin/headgate", "tester"}) {
		t.Errorf("ENTRYPOINT %v", got)
	}
	flagsOf(t, words(t, args))
	for _, line := range []string{"USER 65532:65532", "CGO_ENABLED=0"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("no %s", line)
		}
	}
}

func words(t *testing.T, list any) (words []string) {
	t.Helper()
	for _, word := range list.([]any) {
		words = append(words, word.(string))
	}
	if len(words) == 0 {
		t.Fatal("no words")
	}
	return words
}

// flagsOf parses the flags of headgate tester, and has them describe a server.
func flagsOf(t *testing.T, args []string) *testerFlags {
	t.Helper()
	f := new(testerFlags)
	c := new(program).testerCommand(f)
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.server(os.LookupEnv); err != nil {
		t.Fatal(err)
	}
	return f
}
