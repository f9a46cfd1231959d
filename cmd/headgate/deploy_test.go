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

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A manifest is a document in docs/deploy.
type manifest map[string]any

// at returns the value at a path of keys. The index of a list is a number.
func (o manifest) at(path string) any {
	var value any = map[string]any(o)
	for key := range strings.SplitSeq(path, ".") {
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

// deployManifests returns the documents of docs/deploy by KIND/NAMESPACE/NAME.
func deployManifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob("../../docs/deploy/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	all := map[string]manifest{}
	for _, file := range files {
		if strings.Contains(file, "alerts") { // Prometheus rules, which promtool checks
			continue
		}
		for document := range strings.SplitSeq(read(t, file), "\n---\n") {
			var o manifest
			if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			namespace, _ := o.at("metadata.namespace").(string)
			all[o.at("kind").(string)+"/"+namespace+"/"+o.at("metadata.name").(string)] = o
		}
	}
	return all
}

// checkPairs compares each pair of values: the deployed one and the expected one.
func checkPairs(t *testing.T, pairs map[string][2]any) {
	t.Helper()
	for what, pair := range pairs {
		if pair[0] == nil || !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
}

// TestDeployedManifests checks that references between the manifests match, that no container runs
// as root, and that the test runner has exactly the permissions that the specification names for
// chart tests.
func TestDeployedManifests(t *testing.T) {
	all := deployManifests(t)
	checkPairs(t, map[string][2]any{
		"account":       {all["Deployment/headgate/tester"].at("spec.template.spec.serviceAccountName"), all["ServiceAccount/headgate/tester"].at("metadata.name")},
		"subject":       {all["RoleBinding/shop/headgate-tester"].at("subjects.0.name"), "tester"},
		"its namespace": {all["RoleBinding/shop/headgate-tester"].at("subjects.0.namespace"), "headgate"},
		"role":          {all["RoleBinding/shop/headgate-tester"].at("roleRef.name"), "headgate-tester"},
		"of sources":    {all["Deployment/headgate-sources/sources"].at("spec.template.spec.automountServiceAccountToken"), false},
		"rules": {all["Role/shop/headgate-tester"].at("rules"), []any{
			map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get", "watch", "list", "update"}},
			map[string]any{"apiGroups": []any{""}, "resources": []any{"pods", "pods/log"}, "verbs": []any{"create", "list", "delete", "watch"}},
			map[string]any{"apiGroups": []any{"batch"}, "resources": []any{"jobs"}, "verbs": []any{"create", "list", "delete", "watch"}},
		}},
	})
	for _, d := range []struct {
		name, command, namespace, tokens string
		port                             float64
	}{{"tester", "tester", "headgate", "tester-tokens", 8080}, {"sources", "serve", "headgate-sources", "sources-tokens", 9090}} {
		named := func(kind string) manifest { return all[kind+"/"+d.namespace+"/"+d.name] }
		deployment := named("Deployment")
		pod := manifest(deployment.at("spec.template").(map[string]any))
		container := manifest(pod.at("spec.containers.0").(map[string]any))
		labels := pod.at("metadata.labels")
		checkPairs(t, map[string][2]any{
			"selector of the Deployment":    {deployment.at("spec.selector.matchLabels"), labels},
			"selector of the Service":       {named("Service").at("spec.selector"), labels},
			"selector of the NetworkPolicy": {named("NetworkPolicy").at("spec.podSelector.matchLabels"), labels},
			"port of the Service":           {named("Service").at("spec.ports.0.targetPort"), container.at("ports.0.name")},
			"port before it":                {named("Service").at("spec.ports.0.port"), 80.0},
			"port of the container":         {container.at("ports.0.containerPort"), d.port},
			"claim":                         {pod.at("spec.volumes.0.persistentVolumeClaim.claimName"), named("PersistentVolumeClaim").at("metadata.name")},
			"tokens":                        {pod.at("spec.volumes.1.secret.secretName"), all["Secret/"+d.namespace+"/"+d.tokens].at("metadata.name")},
			"replicas":                      {deployment.at("spec.replicas"), 1.0},
			"strategy":                      {deployment.at("spec.strategy.type"), "Recreate"},
			"root":                          {pod.at("spec.securityContext.runAsNonRoot"), true},
			"root file system":              {container.at("securityContext.readOnlyRootFilesystem"), true},
			"escalation":                    {container.at("securityContext.allowPrivilegeEscalation"), false},
			"capabilities":                  {container.at("securityContext.capabilities.drop"), []any{"ALL"}},
		})
		args := words(container.at("args"))
		if d.command == "serve" { // its image accepts any command name
			testenv.Equal(t, args[0], d.command, "%s runs %v", d.name, args)
			args = args[1:]
		}
		grace := parseListenFlags(t, d.command, args).listenEndpoint.Grace
		if seconds := pod.at("spec.terminationGracePeriodSeconds").(float64); time.Duration(seconds)*time.Second <= grace {
			t.Errorf("the pod is killed after %v s, what is under way has %s", seconds, grace)
		}
		for _, mount := range container.at("volumeMounts").([]any) {
			path := mount.(map[string]any)["mountPath"].(string)
			if path != "/tmp" && !strings.Contains(strings.Join(args, " "), path) {
				t.Errorf("nothing uses %s of %v", path, args)
			}
		}
	}
	var set source.Set
	text := all["ConfigMap/headgate-sources/sources"]["data"].(map[string]any)["app.yaml"].(string)
	if err := set.Decode("app.yaml", strings.NewReader(text)); err != nil || len(set.Objects) != 1 || len(set.Warnings) > 0 {
		t.Errorf("%d objects, %v, warnings %v", len(set.Objects), err, set.Warnings)
	}
}

// TestDeployedUnit checks that the systemd unit starts the command with flags that exist, and
// provides the files and directories that they name.
func TestDeployedUnit(t *testing.T) {
	settings := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(read(t, "../../docs/deploy/headgate-serve.service"), -1) {
		settings[m[1]] = m[2]
	}
	args := strings.Fields(settings["ExecStart"])
	if len(args) < 3 || args[0] != "/usr/local/bin/headgate" || args[1] != "serve" {
		t.Fatalf("ExecStart=%s", settings["ExecStart"])
	}
	if !slices.Contains(args, "--store=/var/lib/"+settings["StateDirectory"]) {
		t.Errorf("ExecStart=%v, StateDirectory=%s", args, settings["StateDirectory"])
	}
	grace := parseListenFlags(t, "serve", args[2:]).listenEndpoint.Grace
	if stop, err := time.ParseDuration(settings["TimeoutStopSec"]); err != nil || stop <= grace {
		t.Errorf("TimeoutStopSec=%s, and answers have %s", settings["TimeoutStopSec"], grace)
	}
	for name, want := range map[string]string{
		"NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "ProtectSystem": "strict", "Restart": "on-failure", "StateDirectoryMode": "0700", "PrivateDevices": "yes",
	} {
		if got, set := settings[name]; !set || got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
}

// TestDockerfile checks that the recipes start the command with flags that exist, and not as root.
func TestDockerfile(t *testing.T) {
	stages := map[string]string{}
	for _, stage := range strings.Split("\n"+read(t, "../../docs/deploy/Dockerfile"), "\nFROM ")[1:] {
		head, _, _ := strings.Cut(stage, "\n")
		_, name, _ := strings.Cut(head, " AS ")
		stages[name] = stage
	}
	if !strings.Contains(stages["build"], "CGO_ENABLED=0") {
		t.Error("the binary needs a C library")
	}
	for name, command := range map[string]string{"tester": "tester", "headgate": "serve"} {
		var entry, args any
		for instruction, into := range map[string]*any{"ENTRYPOINT": &entry, "CMD": &args} {
			line := regexp.MustCompile(`(?m)^` + instruction + ` (\[.*\])$`).FindStringSubmatch(stages[name])
			if line == nil {
				t.Fatalf("%s: no %s", name, instruction)
			}
			must(t, json.Unmarshal([]byte(line[1]), into))
		}
		line := append(words(entry), words(args)...)
		testenv.Equal(t, line[:2], []string{"/usr/local/bin/headgate", command}, "%s: it runs %v", name, line)
		parseListenFlags(t, command, line[2:])
		if !strings.Contains(stages[name], "\nUSER 65532:65532\n") {
			t.Errorf("%s: it runs as root", name)
		}
	}
}

func words(list any) (words []string) {
	for _, word := range list.([]any) {
		words = append(words, word.(string))
	}
	return words
}

// parseListenFlags parses the flags of a server with its own command and returns the listener flags.
func parseListenFlags(t *testing.T, name string, args []string) listenFlags {
	t.Helper()
	var c *cobra.Command
	var check func() (listenFlags, error)
	if name == "tester" {
		f := new(testerFlags)
		c, check = new(program).testerCommand(f), func() (listenFlags, error) { return f.listenFlags, f.check(os.LookupEnv) }
	} else {
		f := new(serveFlags)
		c, check = new(program).serveCommand(f), func() (listenFlags, error) { return f.listenFlags, f.check() }
	}
	if err := c.ParseFlags(args); err != nil || c.Flags().NArg() > 0 {
		t.Fatalf("%v, arguments %v", err, c.Flags().Args())
	}
	f, err := check()
	must(t, err)
	return f
}

// TestDeployedAlerts checks that each alert says what is wrong and what to do, and links to a
// heading of a document. The module e2e checks the rules with promtool.
func TestDeployedAlerts(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Labels      map[string]string
				Annotations struct {
					Summary, Description string
					Runbook              string `json:"runbook_url"`
				}
			}
		}
	}
	must(t, yaml.Unmarshal([]byte(read(t, "../../docs/deploy/alerts.yaml")), &rules))
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			a := rule.Annotations
			file, heading, _ := strings.Cut(strings.TrimPrefix(a.Runbook, "https://github.com/headgate-io/headgate/blob/main/"), "#")
			if a.Summary == "" || a.Description == "" || rule.Labels["severity"] == "" || !slices.Contains(headings(read(t, "../../"+file)), heading) {
				t.Errorf("%+v", rule)
			}
		}
	}
	testenv.Equal(t, len(rules.Groups), 2)
}
