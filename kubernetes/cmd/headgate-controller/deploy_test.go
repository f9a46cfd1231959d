package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

var update = flag.Bool("update", false, "write the manifests that are made of others anew")

// TestGeneratedManifests compares generated manifests with their sources. Run it with -update after
// a change.
func TestGeneratedManifests(t *testing.T) {
	definitions, err := schema.YAML(source.Group, false)
	testenv.Must(t, err)
	roles, err := os.ReadFile("../../deploy/rbac.yaml")
	testenv.Must(t, err)
	// ClusterRoles get other names, so that controllers of both groups can coexist.
	parts := strings.Split(strings.NewReplacer(source.ReferenceGroup, source.Group, "helmrepositories", "pkgrepositories", "helmcharts", "pkgcharts", "flux-system", "headgate-system").Replace(string(roles)), "\n---\n")
	for i, part := range parts {
		if strings.Contains(part, "\nkind: ClusterRole") {
			parts[i] = regexp.MustCompile(`(?m)^(metadata:\n  name: |roleRef:\n.*\n.*\n  name: )(\S+)$`).ReplaceAllString(part, "${1}${2}-own")
		}
	}
	for name, want := range map[string]string{
		"../../deploy/crds/source.headgate.dev.yaml": "# Made by go test ./cmd/headgate-controller -run TestGeneratedManifests -update\n" + string(definitions),
		"../../deploy/headgate/rbac.yaml":            "# Made of ../rbac.yaml by go test ./cmd/headgate-controller -run TestGeneratedManifests -update\n" + strings.Join(parts, "\n---\n"),
	} {
		if *update {
			testenv.Must(t, os.WriteFile(name, []byte(want), 0o644))
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s is not what it is made of (%v): run this test with -update", name, err)
		}
	}
}

// command runs a program with an input and returns its output.
func command(t *testing.T, input []byte, path string, args ...string) []byte {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &problems)
	}
	return out.Bytes()
}

// TestDeploy checks that a real API server accepts all output of kustomize and helm for
// kubernetes/deploy and the chart, and that the parts match each other and the command.
func TestDeploy(t *testing.T) {
	c := startCluster(t)
	kubectl, helm := tool(t, "kubectl", "KUBECTL"), tool(t, "helm3", "HELM3")
	for _, name := range []string{"flux-system", "headgate-system"} {
		c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}})
	}
	kustomize := func(dir string) func(t *testing.T) []byte {
		return func(t *testing.T) []byte { return command(t, nil, kubectl, "kustomize", dir) }
	}
	rows := map[string]func(t *testing.T) []byte{}
	files, err := filepath.Glob("../../deploy/*/kustomization.yaml")
	testenv.Must(t, err)
	for _, file := range append(files, "../../deploy/kustomization.yaml") {
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "\nkind: Kustomization\n") {
			rows[file] = kustomize(filepath.Dir(file))
		}
	}
	// A kustomization in another directory uses a component.
	dir := t.TempDir()
	testenv.Must(t, os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS("../../deploy")))
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: [deploy/headgate]\ncomponents: [deploy/with-crds]\nnamespace: headgate-system\nimages: [{name: headgate-controller, newName: registry.example/headgate-controller, newTag: v1}]\n"), 0o644))
	rows["with-crds"] = kustomize(dir)
	for _, set := range []string{
		"",
		"allNamespaces=false,replicas=2,labelSelector=a in (b\\,c),networkPolicy=false,imagePullSecrets[0].name=pull,serviceAccount.name=mine",
		"group=source.headgate.dev,crds.apply=true,crds.v1beta2=true,persistence.size=1Gi,persistence.storageClass=fast,eventsAddr=https://events.example/",
		"shards=3,persistence.size=1Gi,hooks.enabled=true,hooks.secret=hooks",
		"shards=2,replicas=0,identities=true,watchSecrets=false",
		"priorityClassName=system-cluster-critical,podLabels.a=b,podAnnotations.c=d,nodeSelector.e=f,tolerations[0].operator=Exists,serviceAccount.annotations.g=h,service.name=s,env[0].name=HTTPS_PROXY,env[0].value=http://proxy.example,args[0]=--interval-jitter-percentage=10",
	} {
		rows["chart "+set] = func(t *testing.T) []byte {
			return command(t, nil, helm, "template", "release", "../../charts/headgate", "--namespace=flux-system", "--set", set)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := rows[name](t)
			if len(bytes.TrimSpace(text)) == 0 {
				t.Fatal("there is nothing in it")
			}
			namespace := "flux-system"
			if bytes.Contains(text, []byte("\n  namespace: headgate-system\n")) {
				namespace = "headgate-system"
			}
			command(t, text, kubectl, "--kubeconfig="+c.admin, "--namespace="+namespace, "apply", "--dry-run=server", "--validate=strict", "--filename=-")
			d := deployment{decodeAll(t, bytes.NewReader(text))}
			if d.first("Deployment") == nil && d.first("StatefulSet") == nil {
				return // a base, or a set of definitions
			}
			d.check(t, c)
		})
	}
}

// deployment holds the documents of a deployment.
type deployment struct{ all []*unstructured.Unstructured }

// first returns the first document of a kind, or nil.
func (d deployment) first(kind string) *unstructured.Unstructured {
	for _, u := range d.all {
		if u.GetKind() == kind {
			return u
		}
	}
	return nil
}

// valueAt returns the value at a path. In a list it uses the first item.
func valueAt(o object, path string) any {
	var value any = o
	for name := range strings.SplitSeq(path, ".") {
		if list, ok := value.([]any); ok && len(list) > 0 {
			value = list[0]
		}
		fields, _ := value.(object)
		value = fields[name]
	}
	return value
}

// check checks that the parts match, and creates the pod in a dry run under the restricted security
// profile.
func (d deployment) check(t *testing.T, c *cluster) {
	t.Helper()
	workload := d.first("Deployment")
	if workload == nil {
		workload = d.first("StatefulSet")
	}
	template := valueAt(workload.Object, "spec.template").(object)
	if name, made := valueAt(workload.Object, "spec.volumeClaimTemplates.metadata.name").(string); made {
		spec := template["spec"].(object)
		spec["volumes"] = append(spec["volumes"].([]any), object{"name": name, "persistentVolumeClaim": object{"claimName": name}})
	}
	c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "restricted", "labels": object{"pod-security.kubernetes.io/enforce": "restricted"}}})
	pod := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}}
	pod.SetName("pod")
	pod.SetNamespace("restricted")
	testenv.Must(t, c.Create(t.Context(), pod, client.DryRunAll))
	labels := valueAt(template, "metadata.labels").(object)
	for _, selector := range []any{valueAt(workload.Object, "spec.selector.matchLabels"), d.selector("Service", "spec.selector"), d.selector("NetworkPolicy", "spec.podSelector.matchLabels")} {
		for key, value := range selector.(object) {
			if labels[key] != value {
				t.Errorf("a selector wants %s: %v, the pod has %v", key, value, labels)
			}
		}
	}
	namespace, account := workload.GetNamespace(), valueAt(template, "spec.serviceAccountName")
	if namespace == "" {
		namespace = "flux-system"
	}
	if made := d.first("ServiceAccount"); made != nil && made.GetName() != account {
		t.Errorf("the pod has the service account %v, %s is made", account, made.GetName())
	}
	for _, u := range d.all {
		if strings.HasSuffix(u.GetKind(), "RoleBinding") && (valueAt(u.Object, "subjects.name") != account || valueAt(u.Object, "subjects.namespace") != namespace) {
			t.Errorf("%s %s is for %v, not for %s/%v", u.GetKind(), u.GetName(), u.Object["subjects"], namespace, account)
		}
	}

	// The command accepts its arguments and variables.
	container := valueAt(template, "spec.containers").([]any)[0].(object)
	variables, values := map[string]string{"POD_NAME": "pod-0"}, []string{}
	for _, v := range container["env"].([]any) {
		name := v.(object)["name"].(string)
		value, _ := v.(object)["value"].(string)
		if name == "RUNTIME_NAMESPACE" {
			value = namespace
		} else if name == "POD_NAME" {
			value = "pod-0"
		}
		variables[name] = strings.NewReplacer(values...).Replace(value)
		values = append(values, "$("+name+")", variables[name])
	}
	var args []string
	for _, arg := range container["args"].([]any) {
		args = append(args, strings.NewReplacer(values...).Replace(arg.(string)))
	}
	f, warnings, err := parse(args, func(name string) (string, bool) { value, ok := variables[name]; return value, ok }, t.Output())
	testenv.Must(t, err)
	if len(warnings) > 0 {
		t.Errorf("warnings %q", warnings)
	}
	if service := d.first("Service"); service != nil {
		want := service.GetName() + "." + namespace + ".svc.cluster.local."
		if workload.GetKind() == "StatefulSet" {
			want = "pod-0." + want + ":9090"
			testenv.Equal(t, valueAt(workload.Object, "spec.serviceName"), any(service.GetName()))
			testenv.Equal(t, valueAt(service.Object, "spec.clusterIP"), any("None"))
		}
		testenv.Equal(t, f.storageAdvAddr, want, "the address of artifacts")
	}
	if _, err := f.serveConfig(func(string) (string, bool) { return "", false }); err != nil {
		t.Error(err)
	}

	// The permissions are equal to those of the kustomization, with which other tests run the
	// controller.
	file := "../../deploy/rbac.yaml"
	if f.group == source.Group {
		file = "../../deploy/headgate/rbac.yaml"
	}
	want := rulesOf(t, file)
	if !f.watchSecrets {
		want = strings.Replace(want, `"resources":["secrets","serviceaccounts"],"verbs":["get","list","watch"]`, `"resources":["secrets","serviceaccounts"],"verbs":["get"]`, 1)
	}
	if f.gates[identities] {
		more := strings.Split(want+"\n"+rulesOf(t, "../../deploy/rbac-tokens.yaml"), "\n")
		slices.Sort(more)
		want = strings.Join(more, "\n")
	}
	if got := d.rules(); len(got) > 0 && got != want {
		t.Errorf("rights\n%s\nwant\n%s", got, want)
	}
}

// selector returns the selector of the first document of a kind.
func (d deployment) selector(kind, path string) any {
	if u := d.first(kind); u != nil {
		return valueAt(u.Object, path)
	}
	return object{}
}

// rules returns the permissions as text, except those for definitions.
func (d deployment) rules() string {
	var all []string
	for _, u := range d.all {
		if !strings.HasSuffix(u.GetKind(), "Role") {
			continue
		}
		for _, rule := range u.Object["rules"].([]any) {
			if text, _ := json.Marshal(rule); !bytes.Contains(text, []byte("customresourcedefinitions")) {
				all = append(all, string(text))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func rulesOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.Must(t, err)
	return deployment{decodeAll(t, bytes.NewReader(text))}.rules()
}

// TestChart checks the chart with the real helm, and that helm refuses invalid values.
func TestChart(t *testing.T) {
	helm := tool(t, "helm3", "HELM3")
	command(t, nil, helm, "lint", "--strict", "../../charts/headgate")
	notes := command(t, nil, helm, "install", "sources", "../../charts/headgate", "--kubeconfig="+startCluster(t).admin, "--dry-run=server", "--set=shards=3")
	for _, want := range []string{"3 pods share them", "kubectl get fluxcd-sources"} {
		if !bytes.Contains(notes, []byte(want)) {
			t.Errorf("the notes say nothing of %q:\n%s", want, notes)
		}
	}
	for set, want := range map[string]string{
		"group=example.org":                   "group",
		"shards=0":                            "shards",
		"shard=3":                             "shard",
		"image.tagg=v1":                       "tagg",
		"persistence.size=much":               "size",
		"args[0]=concurrent":                  "args",
		"crds.v1beta2=true":                   "crds.v1beta2 requires crds.apply",
		"persistence.size=1Gi,replicas=2":     "persistence.size requires replicas: 1",
		"podAnnotations.a=1":                  "podAnnotations",
		"imagePullSecrets[0].names=pull":      "imagePullSecrets",
		"networkPolicy=no,allNamespaces=true": "networkPolicy",
	} {
		out, err := exec.Command(helm, "template", "release", "../../charts/headgate", "--set", set).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("--set %s: %v, want an error about %s\n%.300s", set, err, want, out)
		}
	}
}

// TestFluxSystem checks that a kustomization of a bootstrapped Flux can replace the image of
// source-controller with ours. The Deployment and its arguments are those of source-controller
// v1.9.5.
func TestFluxSystem(t *testing.T) {
	shown, err := os.ReadFile("testdata/flux-system/kustomization.yaml")
	testenv.Must(t, err)
	if page, err := os.ReadFile("../../../docs/kubernetes.md"); err != nil || !strings.Contains(string(page), string(shown)) {
		t.Errorf("docs/kubernetes.md does not show testdata/flux-system/kustomization.yaml: %v", err)
	}
	text := command(t, nil, tool(t, "kubectl", "KUBECTL"), "kustomize", "testdata/flux-system")
	d := deployment{decodeAll(t, bytes.NewReader(text))}
	testenv.Equal(t, fmt.Sprint(valueAt(d.first("Deployment").Object, "spec.template.spec.containers.image")), "registry.example.org/headgate-controller:v1.0.0")
	testenv.Equal(t, fmt.Sprint(valueAt(d.first("Deployment").Object, "spec.template.spec.containers.readinessProbe.httpGet")), "map[path:/ port:http]")
	testenv.Equal(t, d.first("Deployment").GetName()+" "+d.first("Service").GetName(), "source-controller source-controller")
	d.check(t, startCluster(t))
}

// TestPage runs the kubectl and helm commands in docs/kubernetes.md in order.
func TestPage(t *testing.T) {
	c := freshCluster(t)
	page, err := os.ReadFile("../../../docs/kubernetes.md")
	testenv.Must(t, err)
	kubernetes, err := filepath.Abs("../..")
	testenv.Must(t, err)
	dir := t.TempDir()
	namespace := "apps-" + strings.ToLower(rand.Text()[:8])
	config, err := os.ReadFile(c.admin)
	testenv.Must(t, err)
	for name, text := range map[string]string{
		"kubeconfig":        strings.ReplaceAll(string(config), "namespace: default", "namespace: "+namespace),
		"sources/app.yaml":  "{apiVersion: source.headgate.dev/v1, kind: GitRepository, metadata: {name: app}, spec: {url: https://git.example.org/app.git, interval: 5m, secretRef: {name: git}}}",
		"secrets/git/token": "s3cret",
	} {
		testenv.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		testenv.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for name, path := range map[string]string{"kubernetes": kubernetes, "kubectl": tool(t, "kubectl", "KUBECTL"), "helm": tool(t, "helm3", "HELM3")} {
		testenv.Must(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "flux-system"}})
	lines := []string{"kubectl apply -k kubernetes/cmd/headgate-controller/testdata/flux-system"}
	for _, m := range regexp.MustCompile("(?m)^    ((?:kubectl|helm|for) .*)$|^\\|.*`(kubectl .*)` \\|$").FindAllStringSubmatch(string(page), -1) {
		lines = append(lines, strings.ReplaceAll(m[1]+m[2], " apps", " "+namespace))
		if strings.HasPrefix(m[1], "kubectl wait ") { // a kind is served shortly after its definition is established
			lines = append(lines, "for i in $(seq 600); do kubectl get gitrepositories.v1.source.headgate.dev && break; sleep 0.2; done")
		}
	}
	if len(lines) < 15 {
		t.Fatalf("only %d commands", len(lines))
	}
	cmd := exec.Command("bash", "-euxc", strings.Join(append(lines, "helm uninstall sources -n flux-system", "helm uninstall sources -n headgate-system"), "\n"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "gitrepository.source.headgate.dev/app") {
		t.Errorf("%v\n%s", err, out)
	}
	app := c.getVersion(t, source.V1, versioned(t, source.V1, "GitRepository", namespace, "app", nil))
	if app.GetAnnotations()["reconcile.fluxcd.io/requestedAt"] == "" || valueAt(app.Object, "spec.suspend") != true {
		t.Errorf("the object is %v", app.Object)
	}
}

// TestProbe sends the probe in source-controller's Deployment: a request to the root of the
// artifact address.
func TestProbe(t *testing.T) {
	ready := false
	handler := artifacts(http.NotFoundHandler(), func() bool { return ready })
	for _, want := range []struct {
		ready bool
		path  string
		code  int
	}{{false, "/", http.StatusServiceUnavailable}, {true, "/", http.StatusOK}, {true, "/gitrepository/a/b", http.StatusNotFound}} {
		ready = want.ready
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, want.path, nil))
		testenv.Equal(t, w.Code, want.code, want.path)
	}
}

// TestContainerfile checks the important lines of the Containerfile, which this test cannot build.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile("../../Containerfile")
	testenv.Must(t, err)
	build, last, _ := strings.Cut(string(text), "\nFROM gcr.io/distroless/static-debian12:nonroot\n") // the base image has CA certificates
	for _, line := range []string{
		"RUN cd kubernetes && CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -tags=disable_grpc_modules,grpcnotrace -trimpath -buildvcs=false -ldflags='-s -w' -o /headgate-controller ./cmd/headgate-controller",
		"COPY . .",
	} {
		if !strings.Contains(build, "\n"+line+"\n") {
			t.Errorf("it has no line %q", line)
		}
	}
	for _, line := range []string{
		"COPY --from=binary /headgate-controller /usr/local/bin/headgate-controller",
		"USER 65532:65532",
		`ENTRYPOINT ["/usr/local/bin/headgate-controller"]`,
	} {
		if !strings.Contains(last, line+"\n") {
			t.Errorf("the image has no line %q", line)
		}
	}
}
