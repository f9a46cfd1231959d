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
		for _, version := range at(o, "spec.versions").([]any) {
			if name := at(version.(object), "name").(string); at(version.(object), "served") == true {
				c.served(t, at(o, "spec.group").(string), name, at(o, "spec.names.kind").(string))
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
	host string
	to   atomic.Value // host of the controller
}

func newService(t *testing.T) *service {
	s := new(service)
	s.to.Store("127.0.0.1:1")
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", s.to.Load().(string) },
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

// ours starts headgate-controller for a namespace, and theirs starts source-controller. The service
// then forwards to it.
func (c *cluster) ours(t *testing.T, namespace string, s *service, dir string, flags ...string) *program {
	t.Helper()
	path, err := controllerBinary()
	testenv.Must(t, err)
	return c.sources(t, path, c.kubeconfig, namespace, s, dir, flags)
}

func (c *cluster) theirs(t *testing.T, namespace string, s *service, dir string, flags ...string) *program {
	t.Helper()
	return c.sources(t, tool(t, "source-controller", "SOURCE_CONTROLLER"), c.reference, namespace, s, dir, flags)
}

func (c *cluster) sources(t *testing.T, path, kubeconfig, namespace string, s *service, dir string, flags []string) *program {
	t.Helper()
	flags = append([]string{"--storage-path=" + dir, "--storage-addr=127.0.0.1:PORT", "--storage-adv-addr=" + s.host, "--watch-all-namespaces=false"}, flags...)
	p, args := c.program(t, path, kubeconfig, namespace, flags...)
	s.to.Store(strings.TrimPrefix(args[1], "--storage-addr="))
	return p
}

// program starts a controller. PORT in a flag is replaced with a free port.
func (c *cluster) program(t *testing.T, path, kubeconfig, namespace string, flags ...string) (_ *program, args []string) {
	t.Helper()
	for {
		health := "127.0.0.1:" + freePort(t)
		args = nil
		for _, flag := range append(flags, "--metrics-addr=0", "--events-addr=", "--health-addr="+health) {
			args = append(args, strings.ReplaceAll(flag, "PORT", freePort(t)))
		}
		p := &program{launch(t, t.TempDir(), path, []string{asController + "=1", "KUBECONFIG=" + kubeconfig, "RUNTIME_NAMESPACE=" + namespace}, args...), health}
		t.Cleanup(func() {
			p.kill()
			if t.Failed() {
				t.Logf("%s said:\n%s", filepath.Base(path), p.said())
			}
		})
		for p.code("/healthz") == 0 {
			select {
			case <-p.ended:
				if strings.Contains(p.said(), "address already in use") { // another program took the port
					break
				}
				t.Fatalf("%s has ended:\n%s", filepath.Base(path), p.said())
			case <-time.After(10 * time.Millisecond):
				continue
			}
			break
		}
		if p.code("/healthz") != 0 {
			return p, args
		}
	}
}

// code returns the status code of a path of the health address, or 0 without an answer.
func (p *program) code(path string) int {
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

// A named identifies an object in a namespace.
type named struct{ kind, name string }

// upstreams are the servers that objects of all kinds are fetched from.
type upstreams struct {
	repo     *testenv.Repo
	git      *testenv.Server
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
	u.git = testenv.ServeHTTP(t, testenv.HTTP{Allow: func(r *http.Request) bool {
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

// login returns the Secret for the Git server.
func login(namespace, password string) object {
	return object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "git", "namespace": namespace}, "stringData": object{"username": "alice", "password": password}}
}

// documents returns Secrets and objects of each kind, and the names of the objects.
func (u *upstreams) documents(namespace string) (docs []object, all []named) {
	git := object{"url": u.git.Repo(), "ref": object{"branch": "main"}, "secretRef": object{"name": "git"}}
	for _, d := range []struct {
		named
		spec object
	}{
		{named{"GitRepository", "app"}, git},
		{named{"GitRepository", "including"}, with(git, object{"include": []any{object{"repository": object{"name": "app"}, "toPath": "included"}}})},
		{named{"OCIRepository", "images"}, object{"url": u.registry.URL("images"), "insecure": true, "ref": object{"semver": ">=1.0.0"}}},
		{named{"Bucket", "objects"}, object{"endpoint": u.store.Host, "insecure": true, "bucketName": "objects", "secretRef": object{"name": "s3"}}},
		{named{"HelmRepository", "charts"}, object{"url": u.charts.URL()}},
		{named{"HelmChart", "remote"}, object{"chart": "podinfo", "version": "6.x", "sourceRef": object{"kind": "HelmRepository", "name": "charts"}}},
		{named{"HelmChart", "local"}, object{"chart": "chart", "sourceRef": object{"kind": "GitRepository", "name": "app"}}},
	} {
		docs, all = append(docs, document(d.kind, namespace, d.name, with(d.spec, object{"interval": "1h"}))), append(all, d.named)
	}
	s3 := object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "s3", "namespace": namespace}, "stringData": object{"accesskey": "access", "secretkey": "secret"}}
	return append([]object{login(namespace, u.password.Load().(string)), s3}, docs...), all
}

// request requests a run of objects and waits until they have run and are ready.
func (c *cluster) request(t *testing.T, namespace string, all []named, value string) {
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

// gone waits until an object no longer exists.
func (c *cluster) gone(t *testing.T, namespace string, o named) {
	t.Helper()
	until(t, o.kind+" "+o.name+" is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: o.name}, blank(o.kind, namespace, o.name)))
	})
}

// verified waits until the service serves an artifact with the right size and digest.
func (s *service) verified(t *testing.T, a *artifact.Artifact) {
	t.Helper()
	if a == nil {
		t.Error("there is no artifact")
		return
	}
	testenv.Equal(t, a.URL, "http://"+s.host+"/"+a.Path)
	untilOr(t, "the artifact "+a.Path+" is served", func() bool {
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
