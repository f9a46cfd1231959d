package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A cluster is an API server with the definitions of sources, and a client with all permissions.
type cluster struct {
	client.Client
	kubeconfig string             // for the user controller, which has the roles of the kustomization
	admin      string             // for a user with all permissions
	reference  string             // for another user with all permissions
	restart    func(t *testing.T) // kills the API server and starts it again
}

// A server is a running program.
type server struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended
}

// kill kills the server and waits for its end.
func (s *server) kill() {
	select {
	case <-s.ended:
	default:
		syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // it leads a process group
		<-s.ended
	}
}

// text returns the log.
func (s *server) text() string {
	text, _ := os.ReadFile(s.log)
	return string(text)
}

// logTail returns the end of the log.
func (s *server) logTail() string {
	text := s.text()
	return text[max(0, len(text)-3000):]
}

var (
	startOnce     sync.Once
	sharedCluster *cluster
	servers       []*server
	workDir       string
)

func TestMain(m *testing.M) {
	if os.Getenv(controllerEnv) != "" {
		main()
		return
	}
	os.Exit(func() int {
		var err error
		if workDir, err = os.MkdirTemp("", "headgate-kubernetes-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() {
			for _, s := range servers {
				s.kill()
			}
			os.RemoveAll(workDir)
		}()
		return m.Run()
	}())
}

// startCluster returns the shared cluster, which the first test starts.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	startOnce.Do(func() { sharedCluster = freshCluster(t) })
	if sharedCluster == nil {
		t.Fatal("the API server did not start")
	}
	return sharedCluster
}

// freshCluster returns a cluster for one test, without definitions of our group.
func freshCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.define(t)
	c.roles(t, "")
	return c
}

// tool returns the path of a program that .ci/servers builds.
func tool(t *testing.T, name, variable string) string {
	t.Helper()
	text, err := os.ReadFile("../../../.ci/versions")
	testenv.Must(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+variable+"=")
	line, _, _ := strings.Cut(rest, "\n")
	_, version, pinned := strings.Cut(line, "@")
	cache, err := os.UserCacheDir()
	testenv.Must(t, err)
	path := filepath.Join(cache, "headgate", "e2e", "bin", name+"@"+version)
	if _, err := os.Stat(path); err != nil || !found || !pinned {
		t.Fatalf("%s is missing: run .ci/servers %s", path, name)
	}
	return path
}

// nextPort is the counter of freePort. Its range is below the ephemeral ports of the system.
var nextPort atomic.Int32

func freePort(t *testing.T) string {
	t.Helper()
	for range 10000 {
		port := strconv.Itoa(int(20000 + (int32(os.Getpid())*100+nextPort.Add(1))%10000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port from 20000 to 29999 is free")
	return ""
}

// launch starts a program with additional environment variables. It is killed after all tests.
func launch(t *testing.T, dir, path string, env []string, args ...string) *server {
	t.Helper()
	out, err := os.CreateTemp(dir, filepath.Base(path)+"-*.log")
	testenv.Must(t, err)
	defer out.Close()
	s := &server{exec.Command(path, args...), out.Name(), make(chan struct{})}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr, s.cmd.Env = dir, out, out, append(os.Environ(), env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testenv.Must(t, s.cmd.Start())
	servers = append(servers, s)
	go func() { s.cmd.Wait(); close(s.ended) }()
	return s
}

// newCluster starts an API server with additional flags, and etcd.
func newCluster(t *testing.T, flags ...string) (c *cluster) {
	t.Helper()
	var err error
	for range 5 { // another program may take a port first
		if c, err = tryCluster(t, flags); err == nil {
			return c
		}
		t.Log(err)
	}
	t.Fatal(err)
	return nil
}

func tryCluster(t *testing.T, flags []string) (*cluster, error) {
	dir, err := os.MkdirTemp(workDir, "")
	testenv.Must(t, err)
	write := func(name string, content []byte) string {
		name = filepath.Join(dir, name)
		testenv.Must(t, os.WriteFile(name, content, 0o600))
		return name
	}
	ca := testenv.NewCA(t)
	cert, key := ca.Server()
	caFile, certFile, keyFile := write("ca.crt", ca.PEM()), write("api.crt", cert), write("api.key", key)
	signing, err := rsa.GenerateKey(rand.Reader, 2048)
	testenv.Must(t, err)
	accounts := write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(signing)}))
	tokens := write("tokens.csv", []byte("admintoken,admin,1,\"system:masters\"\ncontrollertoken,controller,2\nreferencetoken,reference,3,\"system:masters\"\n"))
	clients, peers, secure := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t), freePort(t)
	etcd := launch(t, dir, tool(t, "etcd", "ETCD"), nil, "--data-dir", "etcd", "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	flags = append([]string{"--etcd-servers=" + clients,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + secure, "--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile,
		"--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + accounts, "--service-account-signing-key-file=" + accounts,
		"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"}, flags...)
	url := "https://127.0.0.1:" + secure
	var api *server
	begin := func() error {
		api = launch(t, dir, tool(t, "kube-apiserver", "KUBE_APISERVER"), nil, flags...)
		return ready(url, ca, etcd, api)
	}
	if err := begin(); err != nil {
		etcd.kill()
		api.kill()
		return nil, fmt.Errorf("%w\n%s\n%s", err, etcd.logTail(), api.logTail())
	}
	kubeconfig := func(user string) string {
		return write(user+".kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: t,
 clusters: [{name: t, cluster: {server: %q, certificate-authority: %q}}],
 users: [{name: a, user: {token: %q}}], contexts: [{name: t, context: {cluster: t, user: a, namespace: default}}]}`, url, caFile, user+"token"))
	}
	config := &rest.Config{Host: url, BearerToken: "admintoken", QPS: 1000, Burst: 1000, WarningHandler: rest.NoWarnings{}, TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM()}}
	all, err := client.New(config, client.Options{})
	return &cluster{
		Client: all, kubeconfig: kubeconfig("controller"), admin: kubeconfig("admin"), reference: kubeconfig("reference"),
		restart: func(t *testing.T) {
			api.kill()
			testenv.Must(t, begin())
		},
	}, err
}

// ready waits until the API server is ready. It returns an error if etcd or the API server ends.
func ready(url string, ca *testenv.CA, etcd, api *server) error {
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}}
	defer web.CloseIdleConnections()
	for begun := time.Now(); time.Since(begun) < 3*time.Minute; {
		r, err := web.Get(url + "/readyz")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-etcd.ended:
			return errors.New("etcd has ended")
		case <-api.ended:
			return errors.New("kube-apiserver has ended")
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New("the API server is not ready after 3 minutes")
}

// define applies definitions of all kinds of the reference's group, which accept any spec and
// status.
func (c *cluster) define(t *testing.T) {
	kinds := append(slices.Clone(scenarioKinds), "ExternalArtifact")
	for _, kind := range kinds {
		plural := strings.ToLower(kind) + "s"
		if strings.HasSuffix(kind, "Repository") {
			plural = strings.ToLower(strings.TrimSuffix(kind, "y")) + "ies"
		}
		free := object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		status := object{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": object{"observedGeneration": -1}}
		c.apply(t, object{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": plural + "." + source.ReferenceGroup},
			"spec": object{
				"group": source.ReferenceGroup, "scope": "Namespaced",
				"names": object{"kind": kind, "plural": plural, "listKind": kind + "List", "singular": strings.ToLower(kind)},
				"versions": []any{object{
					"name": source.V1, "served": true, "storage": true, "subresources": object{"status": object{}},
					"schema": object{"openAPIV3Schema": object{"type": "object", "properties": object{"spec": free, "status": status}}},
				}},
			},
		})
	}
	for _, kind := range kinds {
		c.waitServed(t, source.ReferenceGroup, source.V1, kind)
	}
}

// waitServed waits until a kind is served, shortly after its definition is established.
func (c *cluster) waitServed(t *testing.T, group, version, kind string) {
	t.Helper()
	waitUntil(t, kind+" is served", func() bool {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind + "List"})
		return c.List(context.Background(), list, client.Limit(1)) == nil
	})
}

// waitPermission waits until a user has a permission, shortly after it was granted.
func (c *cluster) waitPermission(t *testing.T, user, namespace string, r permission) {
	t.Helper()
	resource, sub, _ := strings.Cut(r.resource, "/")
	waitUntil(t, fmt.Sprintf("%s may %s", user, r), func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub,
		}}}
		testenv.Must(t, c.Create(t.Context(), review))
		return review.Status.Allowed
	})
}

// roles applies the roles of the kustomization for the user of the controller: the Roles to a
// namespace, or for "" the ClusterRoles.
func (c *cluster) roles(t *testing.T, namespace string) {
	t.Helper()
	f, err := os.Open("../../deploy/rbac.yaml")
	testenv.Must(t, err)
	defer f.Close()
	for d := yaml.NewYAMLToJSONDecoder(f); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			one := permission{"update", "leases", "coordination.k8s.io"}
			if namespace == "" {
				one = permission{"watch", "secrets", ""}
			}
			c.waitPermission(t, "controller", namespace, one)
			return
		} else if err != nil {
			t.Fatal(err)
		}
		kind := o["kind"].(string)
		if strings.HasPrefix(kind, "Cluster") != (namespace == "") || kind == "ServiceAccount" {
			continue
		}
		if o["metadata"].(object)["namespace"] = namespace; o["subjects"] != nil {
			o["subjects"] = []any{object{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "controller"}}
		}
		c.apply(t, o)
	}
}

type object = map[string]any

// apply creates an object, or replaces the spec or data of an existing one.
func (c *cluster) apply(t *testing.T, o object) {
	t.Helper()
	text, err := json.Marshal(o) // converts all numbers to types that unstructured accepts
	testenv.Must(t, err)
	u := new(unstructured.Unstructured)
	testenv.Must(t, u.UnmarshalJSON(text))
	err = c.Create(t.Context(), u.DeepCopy())
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		testenv.Must(t, c.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, text)))
	}
}

// patch patches an object, or its status.
func (c *cluster) patch(t *testing.T, kind, namespace, name string, status bool, text string) {
	t.Helper()
	u, patch := emptyObject(kind, namespace, name), client.RawPatch(types.MergePatchType, []byte(text))
	if status {
		testenv.Must(t, c.Status().Patch(t.Context(), u, patch))
	} else {
		testenv.Must(t, c.Patch(t.Context(), u, patch))
	}
}

func emptyObject(kind, namespace, name string) *unstructured.Unstructured {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: source.ReferenceGroup, Version: source.V1, Kind: kind})
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// get returns an object of the cluster.
func (c *cluster) get(t *testing.T, kind, namespace, name string) source.Object {
	t.Helper()
	u := emptyObject(kind, namespace, name)
	testenv.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	text, err := u.MarshalJSON()
	testenv.Must(t, err)
	obj, _ := source.DecodeObject(text)
	return obj
}

// wait waits until is returns true for an object, and returns the object.
func (c *cluster) wait(t *testing.T, kind, namespace, name, what string, is func(source.Object) bool) (obj source.Object) {
	t.Helper()
	waitUntilOr(t, kind+" "+name+" "+what, func() bool { obj = c.get(t, kind, namespace, name); return is(obj) }, func() string {
		text, _ := source.EncodeJSON(obj)
		return string(text)
	})
	return obj
}

func isReady(obj source.Object) bool {
	s := obj.Common()
	return s.Condition("Ready").Status == "True" && s.ObservedGeneration == obj.Head().Metadata.Generation
}

func waitUntil(t *testing.T, what string, is func() bool) { t.Helper(); waitUntilOr(t, what, is, nil) }

// maxWait bounds how long tests wait. On an idle machine the events take less than a second, or as
// long as a lease.
const maxWait = 2 * time.Minute

// waitUntilOr waits until is returns true. On timeout it prints the result of last.
func waitUntilOr(t *testing.T, what string, is func() bool, last func() string) {
	t.Helper()
	waitWithin(t, maxWait, what, is, last)
}

func waitWithin(t *testing.T, most time.Duration, what string, is func() bool, last func() string) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < most; time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
	}
	text := ""
	if last != nil {
		text = ":\n" + last()
	}
	t.Fatalf("after %v it is not so: %s%s", most, what, text)
}

// namespace creates a namespace for a test.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(t.Name() + "-" + rand.Text()[:8]) // unique, for example with -count=2
	c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}})
	c.roles(t, name)
	return name
}

// A localController is a controller in this process.
type localController struct {
	t      *testing.T
	begin  func() // starts it; also called again if its port was taken
	health string
	log    *logText
	stop   context.CancelFunc
	ended  chan error
}

type logText struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}
func (l *logText) text() string { l.mu.Lock(); defer l.mu.Unlock(); return l.Buffer.String() }

// start starts the command for one namespace with its files in dir, and waits until it is ready.
func (c *cluster) start(t *testing.T, namespace, dir string, args ...string) *localController {
	t.Helper()
	r := c.begin(t, namespace, dir, args...)
	waitUntil(t, "the controller is ready", func() bool { return r.readyz() == http.StatusOK })
	return r
}

// begin starts the command without waiting.
func (c *cluster) begin(t *testing.T, namespace, dir string, args ...string) *localController {
	r := &localController{t: t, log: new(logText)}
	lookup := func(name string) (string, bool) {
		return map[string]string{"RUNTIME_NAMESPACE": namespace}[name], name == "RUNTIME_NAMESPACE"
	}
	r.begin = func() {
		r.health = "127.0.0.1:" + freePort(t)
		ctx, cancel := context.WithCancel(context.Background())
		r.stop, r.ended = cancel, make(chan error, 1)
		all, ended := append([]string{
			"--kubeconfig=" + c.kubeconfig, "--watch-all-namespaces=false", "--storage-path=" + dir, "--storage-addr=127.0.0.1:0",
			"--storage-adv-addr=source-controller.example", "--metrics-addr=0", "--health-addr=" + r.health, "--min-retry-delay=200ms",
		}, args...), r.ended
		go func() { ended <- run(ctx, all, lookup, r.log) }()
	}
	r.begin()
	t.Cleanup(func() {
		r.end()
		if t.Failed() {
			t.Logf("the controller said:\n%s", r.log.text())
		}
	})
	return r
}

// readyz returns the status code of /readyz, or 0 if there is no answer yet. If the port was taken,
// it restarts the controller.
func (r *localController) readyz() int {
	r.t.Helper()
	select {
	case err := <-r.ended:
		if err != nil && strings.Contains(err.Error(), "address already in use") {
			r.begin() // another program took the port
			return 0
		}
		r.ended <- nil
		r.t.Fatalf("the controller has ended: %v", err)
	default:
	}
	resp, err := http.Get("http://" + r.health + "/readyz")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// end stops the controller. It may be called repeatedly.
func (r *localController) end() {
	r.stop()
	err := <-r.ended
	r.ended <- nil
	if err != nil {
		r.t.Errorf("the controller ended: %v", err)
	}
}

// loggedValue returns the value of key in the first line of the log that contains a text.
func (r *localController) loggedValue(with, key string) string {
	return loggedValue(r.log.text(), with, key)
}

func loggedValue(log, with, key string) string {
	for line := range strings.Lines(log) {
		var values map[string]any
		if strings.Contains(line, with) && json.Unmarshal([]byte(line), &values) == nil {
			if text, ok := values[key].(string); ok {
				return text
			}
		}
	}
	return ""
}
