package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A proxy is a reverse proxy between a controller and the API server.
type proxy struct {
	*cluster // reached through the proxy

	mu       sync.Mutex
	answered []string // METHOD PATH STATUS
}

// startProxy returns the cluster behind a proxy. It calls before with each request. If before returns
// a status, the proxy answers with it.
func (c *cluster) startProxy(t *testing.T, before func(*http.Request) (status int)) *proxy {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	testenv.Must(t, err)
	to, err := url.Parse(config.Host)
	testenv.Must(t, err)
	transport, err := rest.TransportFor(config)
	testenv.Must(t, err)
	p := new(proxy)
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ModifyResponse: func(r *http.Response) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.answered = append(p.answered, fmt.Sprintf("%s %s %d", r.Request.Method, r.Request.URL.Path, r.StatusCode))
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := before(r); status != 0 {
			w.WriteHeader(status)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.cluster = &cluster{Client: c.Client, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	testenv.Must(t, os.WriteFile(p.kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: t, clusters: [{name: t, cluster: {server: %q}}],
 users: [{name: a, user: {token: controllertoken}}], contexts: [{name: t, context: {cluster: t, user: a, namespace: default}}]}`, server.URL), 0o600))
	return p
}

// patches returns the response statuses of patches of an object's status.
func (p *proxy) patches(name string) (statuses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.answered {
		if rest, is := strings.CutPrefix(text, "PATCH "); is && strings.Contains(rest, "/"+name+"/status ") {
			statuses = append(statuses, rest[strings.LastIndexByte(rest, ' ')+1:])
		}
	}
	return statuses
}

// merge patches an object, or its status. It may be called from any goroutine.
func (c *cluster) merge(kind, namespace, name string, status bool, text string) error {
	u, patch := emptyObject(kind, namespace, name), client.RawPatch(types.MergePatchType, []byte(text))
	if status {
		return c.Status().Patch(context.Background(), u, patch)
	}
	return c.Patch(context.Background(), u, patch)
}

// A gatedRepo is a repository whose server does not answer while held is set.
type gatedRepo struct {
	*testenv.Repo
	url     string
	held    atomic.Bool
	closed  atomic.Bool
	arrived chan struct{} // one value per held request
	gaveUp  chan struct{} // one value per client that gave up
}

func newGatedRepo(t *testing.T) *gatedRepo {
	g := &gatedRepo{Repo: testenv.NewRepo(t), arrived: make(chan struct{}, 100), gaveUp: make(chan struct{}, 100)}
	g.Commit(testenv.Commit{Branch: "main", Message: "first", Files: fstest.MapFS{"a": {Data: []byte("first")}}})
	done := make(chan struct{})
	server := testenv.ServeGit(t, testenv.GitConfig{Allow: func(r *http.Request) bool {
		if g.held.Load() {
			g.arrived <- struct{}{}
			for g.held.Load() {
				select {
				case <-r.Context().Done():
					g.gaveUp <- struct{}{}
					return false
				case <-done:
					return false
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
		return !g.closed.Load()
	}}, g.Repo)
	t.Cleanup(func() { close(done) })
	g.url = server.Repo()
	return g
}

// receive waits for a value from a channel and returns it.
func receive[V any](t *testing.T, what string, from <-chan V) (v V) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(maxWait):
		t.Fatalf("after %v it is not so: %s", maxWait, what)
	}
	return v
}

// TestConflict edits an object just before its status is written. The status must be written to the
// edited object.
func TestConflict(t *testing.T) {
	c := startCluster(t)
	ns := c.namespace(t)
	repo := newGatedRepo(t)
	const kind, name = "GitRepository", "app"
	var once sync.Once
	var failed error
	p := c.startProxy(t, func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/app/status") {
			once.Do(func() {
				failed = errors.Join(
					c.merge(kind, ns, name, false, `{"metadata":{"labels":{"edited":"yes"}},"spec":{"timeout":"45s"}}`),
					c.merge(kind, ns, name, true, `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Human","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`))
			})
		}
		return 0
	})
	p.start(t, ns, t.TempDir(), "--min-retry-delay=5m") // no retries during the test
	c.apply(t, document(kind, ns, name, object{"url": repo.url, "interval": "1h", "ref": object{"branch": "main"}}))
	obj := c.wait(t, kind, ns, name, "is ready", func(obj source.Object) bool { return isReady(obj) && obj.Head().Metadata.Generation == 2 })
	testenv.Must(t, failed)
	waitUntil(t, "two patches are answered", func() bool { return len(p.patches(name)) > 1 }) // the proxy may see the responses late
	if got := p.patches(name); got[0] != "409" || got[1] != "200" {
		t.Errorf("patches of the status: %v", got)
	}
	testenv.Equal(t, obj.Head().Metadata.Labels["edited"], "yes")
	testenv.Equal(t, obj.Common().Condition("Approved").Reason, "Human")
	testenv.Equal(t, time.Duration(obj.(*source.GitRepository).Spec.Timeout), 45*time.Second)
}

// longLease are flags for a lease that a busy machine can renew.
var longLease = []string{"--enable-leader-election", "--leader-election-lease-duration=24s", "--leader-election-renew-deadline=16s", "--leader-election-retry-period=1s"}

// waitLeaseLost waits until the controller has ended because it lost its lease.
func (p *process) waitLeaseLost() {
	p.t.Helper()
	receive(p.t, "the controller has ended", p.ended)
	if p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.log.text(), "headgate-controller: leader election lost") {
		p.t.Errorf("it ended with %s", p.cmd.ProcessState)
	}
}

// TestLeaseTaken lets another process take the lease and write a status just before the controller
// writes one. The controller must not overwrite it, and must end.
func TestLeaseTaken(t *testing.T) {
	c := startCluster(t)
	t.Parallel()
	ns, repo := c.namespace(t), newGatedRepo(t)
	const kind, name, lock = "GitRepository", "app", "source-controller-leader-election"
	var once sync.Once
	var failed error
	var taken atomic.Bool
	seen := make(chan struct{}, 100)
	p := c.startProxy(t, func(r *http.Request) int {
		switch {
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/leases/"+lock) && taken.Load():
			select {
			case seen <- struct{}{}:
			default:
			}
		case r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/app/status"):
			once.Do(func() {
				l := new(coordinationv1.Lease)
				l.Namespace, l.Name = ns, lock
				text, err := json.Marshal(object{"spec": object{"holderIdentity": "other", "leaseDurationSeconds": 3600, "renewTime": metav1.NowMicro()}})
				failed = errors.Join(err, c.Patch(context.Background(), l, client.RawPatch(types.MergePatchType, text)),
					c.merge(kind, ns, name, true, `{"status":{"observedGeneration":7,"conditions":[{"type":"Ready","status":"True","reason":"ByTheOther","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`))
				taken.Store(true)
				for range 2 { // the second request comes after the response to the first was read
					select {
					case <-seen:
					case <-time.After(time.Minute):
						failed = errors.Join(failed, errors.New("the lease is not looked at"))
					}
				}
			})
		}
		return 0
	})
	c.apply(t, document(kind, ns, name, object{"url": repo.url, "interval": "1h", "ref": object{"branch": "main"}}))
	holder := p.spawn(t, ns, "holder", t.TempDir(), longLease...)
	holder.waitLeaseLost()
	testenv.Must(t, failed)
	testenv.Equal(t, strings.Join(p.patches(name), " "), "409")
	testenv.Equal(t, c.get(t, kind, ns, name).Common().Condition("Ready").Reason, "ByTheOther")
	if !strings.Contains(holder.log.text(), "the lease "+ns+"/"+lock+" is lost: other holds it") {
		t.Error("the log does not say that the lease is lost")
	}
}

// TestLeaseNotRenewed checks that a controller that cannot renew its lease ends during a fetch, and
// that another one takes over.
func TestLeaseNotRenewed(t *testing.T) {
	c := startCluster(t)
	t.Parallel()
	ns, repo := c.namespace(t), newGatedRepo(t)
	const kind, name = "GitRepository", "app"
	var cut atomic.Bool
	p := c.startProxy(t, func(r *http.Request) int {
		if cut.Load() && strings.Contains(r.URL.Path, "/leases/") {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	repo.held.Store(true)
	c.apply(t, document(kind, ns, name, object{"url": repo.url, "interval": "1h", "timeout": "10m", "ref": object{"branch": "main"}}))
	first := p.spawn(t, ns, "first", t.TempDir(), longLease...)
	receive(t, "the repository is fetched", repo.arrived)
	c.spawn(t, ns, "second", t.TempDir(), longLease...)
	cut.Store(true)
	first.waitLeaseLost()
	receive(t, "the fetch has ended", repo.gaveUp)
	repo.held.Store(false)
	c.wait(t, kind, ns, name, "is ready by the second", isReady)
	testenv.Equal(t, len(p.patches(name)), 0)
}

// TestDeletedDuringFetch deletes an object while its repository does not answer.
func TestDeletedDuringFetch(t *testing.T) {
	c := startCluster(t)
	ns, repo, dir := c.namespace(t), newGatedRepo(t), t.TempDir()
	c.start(t, ns, dir)
	const kind, name = "GitRepository", "app"
	doc := document(kind, ns, name, object{"url": repo.url, "interval": "1h", "timeout": "10m", "ref": object{"branch": "main"}})
	doc["metadata"].(object)["finalizers"] = []string{"finalizers.fluxcd.io"}
	repo.held.Store(true)
	c.apply(t, doc)
	receive(t, "the repository is fetched", repo.arrived)
	testenv.Must(t, c.Delete(t.Context(), emptyObject(kind, ns, name)))
	waitUntil(t, "the object is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, emptyObject(kind, ns, name)))
	})
	receive(t, "the fetch has ended", repo.gaveUp)
	repo.held.Store(false)
	c.apply(t, doc)
	c.wait(t, kind, ns, name, "is there again", isReady)
	testenv.Must(t, c.Delete(t.Context(), emptyObject(kind, ns, name)))
	waitUntil(t, "its files are gone", func() bool {
		_, err := os.Stat(filepath.Join(dir, "gitrepository", ns, name))
		return os.IsNotExist(err)
	})
}

// TestFinalizerRefused checks that the removal of the finalizer is retried with increasing delays
// while the API server refuses it.
func TestFinalizerRefused(t *testing.T) {
	c := startCluster(t)
	ns, repo := c.namespace(t), newGatedRepo(t)
	const kind, name = "GitRepository", "app"
	var r *localController
	waits := func() (all string) {
		for line := range strings.Lines(r.log.text()) {
			var entry struct{ Msg, Problem, Again string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "remove finalizer" && strings.Contains(entry.Problem, "grant it") {
				all += " " + entry.Again
			}
		}
		return all
	}
	p := c.startProxy(t, func(req *http.Request) int {
		if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/gitrepositories/app") && !strings.HasSuffix(waits(), " 1s 2s") {
			return http.StatusForbidden
		}
		return 0
	})
	r = p.start(t, ns, t.TempDir())
	doc := document(kind, ns, name, object{"url": repo.url, "interval": "1h", "ref": object{"branch": "main"}})
	doc["metadata"].(object)["finalizers"] = []string{"finalizers.fluxcd.io"}
	c.apply(t, doc)
	c.wait(t, kind, ns, name, "is ready", isReady)
	testenv.Must(t, c.Delete(t.Context(), emptyObject(kind, ns, name)))
	c.waitGone(t, ns, objectName{kind, name})
}

// TestEmptyVolume restarts a controller without its files. Statuses stay while the artifacts are
// made again in the order of dependencies. Until then the artifacts answer 404, and no events are
// sent. An object whose artifact cannot be made again becomes not ready.
func TestEmptyVolume(t *testing.T) {
	c := startCluster(t)
	ns, repo := c.namespace(t), newGatedRepo(t)
	const kind = "GitRepository"
	spec := object{"url": repo.url, "interval": "1h", "ref": object{"branch": "main"}}
	c.apply(t, document(kind, ns, "base", spec))
	c.apply(t, document(kind, ns, "app", withFields(spec, object{"include": []any{object{"repository": object{"name": "base"}, "toPath": "base"}}})))
	var events receiver
	receives := httptest.NewServer(&events)
	t.Cleanup(receives.Close)
	args := []string{"--events-addr=" + receives.URL, "--min-retry-delay=5m"}
	r := c.start(t, ns, t.TempDir(), args...)
	before := map[string]source.Object{}
	for _, name := range []string{"base", "app"} {
		before[name] = c.wait(t, kind, ns, name, "is ready", isReady)
	}
	waitUntil(t, "there are posts of two artifacts", func() bool { return events.count("NewArtifact") == 2 })
	r.end()
	for name := range before {
		before[name] = c.get(t, kind, ns, name)
	}

	get := func(r *localController, a artifact.Artifact) int {
		resp, err := http.Get("http://" + r.loggedValue("artifacts are served", "addr") + "/" + a.Path)
		testenv.Must(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	repo.held.Store(true)
	r = c.start(t, ns, t.TempDir(), args...) // ready although nothing is restored, so that clients find it
	receive(t, "the repository is fetched", repo.arrived)
	for name, obj := range before {
		now := c.get(t, kind, ns, name)
		testenv.Equal(t, now.Head().Metadata.ResourceVersion, obj.Head().Metadata.ResourceVersion, name)
		testenv.Equal(t, get(r, *now.Artifact()), http.StatusNotFound, name)
	}
	r.end()
	repo.held.Store(false)
	r = c.start(t, ns, t.TempDir(), args...)
	for name, obj := range before {
		waitUntil(t, name+" is served again", func() bool { return get(r, *obj.Artifact()) == http.StatusOK })
		now := c.wait(t, kind, ns, name, "is ready", isReady)
		testenv.Equal(t, now.Artifact().Digest, obj.Artifact().Digest, name)
		testenv.Equal(t, now.Common().Condition("Ready"), obj.Common().Condition("Ready"), name)
	}
	r.end()
	testenv.Equal(t, events.count("NewArtifact"), 2)
	testenv.Equal(t, events.count("ArtifactVerificationFailed"), 0)

	repo.closed.Store(true)
	c.start(t, ns, t.TempDir(), args...)
	obj := c.wait(t, kind, ns, "base", "is not ready", func(obj source.Object) bool { return obj.Common().Condition("Ready").Status == "False" })
	if obj.Artifact() != nil {
		t.Errorf("its artifact is %+v", obj.Artifact())
	}
}

// count returns the number of received events with a reason.
func (r *receiver) count(reason string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

// TestInvalidEdit adds a field that the library does not know to a valid object.
func TestInvalidEdit(t *testing.T) {
	c := startCluster(t)
	ns, repo := c.namespace(t), newGatedRepo(t)
	const kind, name = "GitRepository", "app"
	c.apply(t, document(kind, ns, name, object{"url": repo.url, "interval": "1h", "ref": object{"branch": "main"}}))
	c.start(t, ns, t.TempDir())
	c.wait(t, kind, ns, name, "is ready", isReady)
	c.patch(t, kind, ns, name, false, `{"spec":{"unknown":1}}`)
	obj := c.wait(t, kind, ns, name, "is stalled", func(obj source.Object) bool { return obj.Common().Condition("Stalled").Status == "True" })
	got := obj.Common().Condition("Stalled")
	if got.Reason != "InvalidSpec" || !strings.Contains(got.Message, "spec.unknown") || obj.Artifact() == nil || obj.Common().ObservedGeneration != 2 {
		t.Errorf("%+v", obj.Common())
	}
	c.patch(t, kind, ns, name, false, `{"spec":{"unknown":null}}`)
	obj = c.wait(t, kind, ns, name, "is ready again", isReady)
	if slices.ContainsFunc(obj.Common().Conditions, func(c source.Condition) bool { return c.Type == "Stalled" }) {
		t.Errorf("%+v", obj.Common())
	}
}

// TestLeaseGivenBack checks that a controller does not write after it released its lease.
func TestLeaseGivenBack(t *testing.T) {
	c := startCluster(t)
	ns := c.namespace(t)
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	testenv.Must(t, err)
	f, _, err := parse([]string{"--enable-leader-election"}, func(name string) (string, bool) { return ns, name == "RUNTIME_NAMESPACE" }, t.Output())
	testenv.Must(t, err)
	l, err := f.openLease(config)
	testenv.Must(t, err)
	record := resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity(), LeaseDurationSeconds: 35}
	testenv.Must(t, l.Create(t.Context(), record))
	testenv.Must(t, l.checkHeld())
	record.HolderIdentity = ""
	testenv.Must(t, l.Update(t.Context(), record))
	if err := l.checkHeld(); err == nil || !strings.Contains(err.Error(), "was given back") {
		t.Errorf("%v", err)
	}
}
