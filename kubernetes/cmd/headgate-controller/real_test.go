package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// Tests named TestReal… use the definitions of Flux, and controllers in their own processes.

var full = flag.Bool("full", false, "run too what needs the controllers of Flux or takes minutes, as make e2e-kubernetes does")

func needFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("make e2e-kubernetes runs it")
	}
}

// realCluster starts a cluster with definitions of Flux and a namespace.
func realCluster(t *testing.T, namespace string, flags ...string) *cluster {
	t.Helper()
	c := newCluster(t, flags...)
	definitions := documents(t, tool(t, "source-controller-crds", "SOURCE_DEFINITIONS"))
	if *full {
		definitions = append(definitions, documents(t, tool(t, "kustomize-controller-crds", "KUSTOMIZE_CONTROLLER"))...)
	}
	for _, o := range definitions {
		c.apply(t, o)
	}
	for _, o := range definitions {
		for _, version := range valueAt(o, "spec.versions").([]any) {
			if name := valueAt(version.(object), "name").(string); valueAt(version.(object), "served") == true {
				c.waitServed(t, valueAt(o, "spec.group").(string), name, valueAt(o, "spec.names.kind").(string))
			}
		}
	}
	c.roles(t, "")
	c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace}})
	c.roles(t, namespace)
	return c
}

// documents returns the documents in a file.
func documents(t *testing.T, file string) (all []object) {
	t.Helper()
	f, err := os.Open(file)
	testenv.Must(t, err)
	defer f.Close()
	for d := yaml.NewYAMLToJSONDecoder(f); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// A service forwards requests to the current controller, like the Service source-controller.
type service struct {
	host   string
	target atomic.Value // host of the controller
}

func newService(t *testing.T) *service {
	s := new(service)
	s.target.Store("127.0.0.1:1")
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", s.target.Load().(string) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusServiceUnavailable) },
	})
	t.Cleanup(proxy.Close)
	s.host = strings.TrimPrefix(proxy.URL, "http://")
	return s
}

// A program is a controller in its own process.
type program struct {
	*server
	health string
}

// controllerBinary returns the path of the controller: the test binary, or with -full a binary
// built as in the Containerfile.
var controllerBinary = sync.OnceValues(func() (string, error) {
	if !*full {
		return os.Executable()
	}
	path := filepath.Join(workDir, "headgate-controller")
	build := exec.Command("go", "build", "-tags=disable_grpc_modules,grpcnotrace", "-trimpath", "-ldflags=-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return path, err
})

// startHeadgate starts headgate-controller for a namespace, and startReference starts source-controller. The service
// then forwards to it.
func (c *cluster) startHeadgate(t *testing.T, namespace string, s *service, dir string, flags ...string) *program {
	t.Helper()
	path, err := controllerBinary()
	testenv.Must(t, err)
	return c.startController(t, path, c.kubeconfig, namespace, s, dir, flags)
}

func (c *cluster) startReference(t *testing.T, namespace string, s *service, dir string, flags ...string) *program {
	t.Helper()
	return c.startController(t, tool(t, "source-controller", "SOURCE_CONTROLLER"), c.reference, namespace, s, dir, flags)
}

func (c *cluster) startController(t *testing.T, path, kubeconfig, namespace string, s *service, dir string, flags []string) *program {
	t.Helper()
	flags = append([]string{"--storage-path=" + dir, "--storage-addr=127.0.0.1:PORT", "--storage-adv-addr=" + s.host, "--watch-all-namespaces=false"}, flags...)
	p, args := c.startProgram(t, path, kubeconfig, namespace, flags...)
	s.target.Store(strings.TrimPrefix(args[1], "--storage-addr="))
	return p
}

// startProgram starts a controller. PORT in a flag is replaced with a free port.
func (c *cluster) startProgram(t *testing.T, path, kubeconfig, namespace string, flags ...string) (_ *program, args []string) {
	t.Helper()
	for {
		health := "127.0.0.1:" + freePort(t)
		args = nil
		for _, flag := range append(flags, "--metrics-addr=0", "--events-addr=", "--health-addr="+health) {
			args = append(args, strings.ReplaceAll(flag, "PORT", freePort(t)))
		}
		p := &program{launch(t, t.TempDir(), path, []string{controllerEnv + "=1", "KUBECONFIG=" + kubeconfig, "RUNTIME_NAMESPACE=" + namespace}, args...), health}
		t.Cleanup(func() {
			p.kill()
			if t.Failed() {
				t.Logf("%s said:\n%s", filepath.Base(path), p.logTail())
			}
		})
		for p.statusCode("/healthz") == 0 {
			select {
			case <-p.ended:
				if strings.Contains(p.logTail(), "address already in use") { // another program took the port
					break
				}
				t.Fatalf("%s has ended:\n%s", filepath.Base(path), p.logTail())
			case <-time.After(10 * time.Millisecond):
				continue
			}
			break
		}
		if p.statusCode("/healthz") != 0 {
			return p, args
		}
	}
}

// statusCode returns the status code of a path of the health address, or 0 without an answer.
func (p *program) statusCode(path string) int {
	resp, err := http.Get("http://" + p.health + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// end terminates the controller with SIGTERM, as a cluster does.
func (p *program) end(t *testing.T) {
	t.Helper()
	syscall.Kill(p.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Errorf("%s does not end", p.cmd.Path)
		p.kill()
	}
}

// A objectName identifies an object in a namespace.
type objectName struct{ kind, name string }

// upstreams are the servers that objects of all kinds are fetched from.
type upstreams struct {
	repo     *testenv.Repo
	git      *testenv.GitServer
	registry *testenv.Registry
	store    *testenv.Store
	charts   *testenv.Charts
	password atomic.Value // current password of the Git server
}

func newUpstreams(t *testing.T) *upstreams {
	t.Helper()
	u := &upstreams{repo: testenv.NewRepo(t), registry: testenv.StartRegistry(t, testenv.RegistryConfig{}),
		store: testenv.StartS3(t, testenv.StoreConfig{AccessKey: "access", SecretKey: "secret"}), charts: testenv.StartCharts(t, testenv.ChartsConfig{})}
	u.password.Store("s3cret")
	u.git = testenv.ServeGit(t, testenv.GitConfig{Allow: func(r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		return password == u.password.Load()
	}}, u.repo)
	u.push("main", "first")
	u.push("dev", "dev")
	u.pushImage(t, "1.0.0")
	u.store.Bucket("objects").Put("a.yaml", "a: 1\n")
	u.charts.Put(testenv.ChartVersion{Name: "podinfo", Version: "6.0.0"})
	return u
}

// push makes a commit with a ConfigMap that contains text.
func (u *upstreams) push(branch, text string) (revision string) {
	return branch + "@sha1:" + u.repo.Commit(testenv.Commit{Branch: branch, Message: text, Files: fstest.MapFS{
		"app/map.yaml":     {Data: fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  text: %s\n", text)},
		"chart/Chart.yaml": {Data: []byte("apiVersion: v2\nname: local\nversion: 0.1.0\n")},
	}})
}

func (u *upstreams) pushImage(t *testing.T, tag string) {
	t.Helper()
	u.registry.Push("images", tag, testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, fstest.MapFS{"a.yaml": {Data: []byte("tag: " + tag + "\n")}})}})
}

// loginSecret returns the Secret for the Git server.
func loginSecret(namespace, password string) object {
	return object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "git", "namespace": namespace}, "stringData": object{"username": "alice", "password": password}}
}

// documents returns Secrets and objects of each kind, and the names of the objects.
func (u *upstreams) documents(namespace string) (docs []object, all []objectName) {
	git := object{"url": u.git.Repo(), "ref": object{"branch": "main"}, "secretRef": object{"name": "git"}}
	for _, d := range []struct {
		objectName
		spec object
	}{
		{objectName{"GitRepository", "app"}, git},
		{objectName{"GitRepository", "including"}, withFields(git, object{"include": []any{object{"repository": object{"name": "app"}, "toPath": "included"}}})},
		{objectName{"OCIRepository", "images"}, object{"url": u.registry.URL("images"), "insecure": true, "ref": object{"semver": ">=1.0.0"}}},
		{objectName{"Bucket", "objects"}, object{"endpoint": u.store.Host, "insecure": true, "bucketName": "objects", "secretRef": object{"name": "s3"}}},
		{objectName{"HelmRepository", "charts"}, object{"url": u.charts.URL()}},
		{objectName{"HelmChart", "remote"}, object{"chart": "podinfo", "version": "6.x", "sourceRef": object{"kind": "HelmRepository", "name": "charts"}}},
		{objectName{"HelmChart", "local"}, object{"chart": "chart", "sourceRef": object{"kind": "GitRepository", "name": "app"}}},
	} {
		docs, all = append(docs, document(d.kind, namespace, d.name, withFields(d.spec, object{"interval": "1h"}))), append(all, d.objectName)
	}
	s3 := object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "s3", "namespace": namespace}, "stringData": object{"accesskey": "access", "secretkey": "secret"}}
	return append([]object{loginSecret(namespace, u.password.Load().(string)), s3}, docs...), all
}

// request requests a run of objects and waits until they have run and are ready.
func (c *cluster) request(t *testing.T, namespace string, all []objectName, value string) {
	t.Helper()
	for _, o := range all {
		c.patch(t, o.kind, namespace, o.name, false, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, value))
	}
	for _, o := range all {
		c.wait(t, o.kind, namespace, o.name, "ran for request "+value, func(obj source.Object) bool {
			return isReady(obj) && obj.Common().LastHandledReconcileAt == value
		})
	}
}

// waitGone waits until an object no longer exists.
func (c *cluster) waitGone(t *testing.T, namespace string, o objectName) {
	t.Helper()
	waitUntil(t, o.kind+" "+o.name+" is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: o.name}, emptyObject(o.kind, namespace, o.name)))
	})
}

// waitArtifact waits until the service serves an artifact with the right size and digest.
func (s *service) waitArtifact(t *testing.T, a *artifact.Artifact) {
	t.Helper()
	if a == nil {
		t.Error("there is no artifact")
		return
	}
	testenv.Equal(t, a.URL, "http://"+s.host+"/"+a.Path)
	waitUntilOr(t, "the artifact "+a.Path+" is served", func() bool {
		resp, err := http.Get(a.URL)
		testenv.Must(t, err)
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return false
		}
		hash, err := artifact.SHA256.New()
		testenv.Must(t, err)
		size, err := io.Copy(hash, resp.Body)
		return err == nil && size == a.Size && fmt.Sprintf("sha256:%x", hash.Sum(nil)) == a.Digest
	}, nil)
}

// field returns a field of an object as JSON, or as plain text if it is a string. It returns "" if
// the object or the field does not exist.
func (c *cluster) field(t *testing.T, version, kind, namespace, name string, path ...string) string {
	t.Helper()
	u := new(unstructured.Unstructured)
	u.SetAPIVersion(version)
	u.SetKind(kind)
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, u); apierrors.IsNotFound(err) {
		return ""
	} else if err != nil {
		t.Fatal(err)
	}
	value, found, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	if text, ok := value.(string); ok || !found {
		return text
	}
	text, err := json.Marshal(value)
	testenv.Must(t, err)
	return string(text)
}

// flux runs the flux command in a namespace and returns the command line and the output.
func (c *cluster) flux(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool(t, "flux", "FLUX"), append([]string{"--kubeconfig=" + c.admin, "--namespace=" + namespace, "--timeout=1m"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	text := "$ flux " + strings.Join(args, " ") + "\n" + string(out)
	if err != nil {
		text += err.Error() + "\n"
	}
	return text
}
