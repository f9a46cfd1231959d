package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/kubernetes/controller"
	"github.com/headgate-io/headgate/source"
)

// controllerEnv is the variable that makes the test binary run as a controller.
const controllerEnv = "HEADGATE_TEST_CONTROLLER"

// A process is a controller in its own process.
type process struct {
	*localController
	cmd   *exec.Cmd
	ended chan struct{}
}

// spawn starts a controller for one namespace with a pod name.
func (c *cluster) spawn(t *testing.T, namespace, pod, dir string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	testenv.Must(t, err)
	p := &process{&localController{t: t, log: new(logText)}, exec.Command(self, append([]string{
		"--kubeconfig=" + c.kubeconfig, "--watch-all-namespaces=false", "--storage-path=" + dir, "--storage-addr=127.0.0.1:0",
		"--metrics-addr=0", "--health-addr=0", "--min-retry-delay=200ms", "--max-retry-delay=1s",
	}, args...)...), make(chan struct{})}
	p.cmd.Env = append(os.Environ(), controllerEnv+"=1", "POD_NAME="+pod, "RUNTIME_NAMESPACE="+namespace)
	out := struct{ io.Writer }{p.log} // hides the methods of bytes.Buffer, which do not lock
	p.cmd.Stdout, p.cmd.Stderr = out, out
	testenv.Must(t, p.cmd.Start())
	go func() { p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the controller %s said:\n%s", pod, p.log.text())
		}
	})
	return p
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// A podProxy forwards artifact requests to controllers by pod name.
type podProxy struct {
	*httptest.Server
	mu   sync.Mutex
	pods map[string]*process
}

func newPodProxy(t *testing.T) *podProxy {
	f := &podProxy{pods: map[string]*process{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP answers requests for /POD/PATH.
func (f *podProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pod, _, _ := strings.Cut(r.URL.Path[1:], "/")
	f.mu.Lock()
	p := f.pods[pod]
	f.mu.Unlock()
	addr := ""
	if p != nil {
		addr = p.loggedValue("artifacts are served", "addr")
	}
	if addr == "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	to := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: addr}) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	http.StripPrefix("/"+pod, to).ServeHTTP(w, r)
}

// spawn starts a controller whose artifacts are served through f.
func (f *podProxy) spawn(t *testing.T, c *cluster, namespace, pod, dir string, args ...string) *process {
	t.Helper()
	p := c.spawn(t, namespace, pod, dir, append([]string{"--storage-adv-addr=" + f.base(pod)}, args...)...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[pod] = p
	return p
}

func (f *podProxy) base(pod string) string { return strings.TrimPrefix(f.URL, "http://") + "/" + pod }

// runCounts returns the objects that the controller ran, with the number of artifacts that it stored for
// each.
func (p *localController) runCounts() map[string]int {
	ran := map[string]int{}
	for line := range strings.Lines(p.log.text()) {
		var run struct{ Msg, Object, Outcome string }
		if json.Unmarshal([]byte(line), &run) == nil && (run.Msg == "run" || run.Msg == "recovered") {
			if ran[run.Object] += 0; run.Outcome == "stored" {
				ran[run.Object]++
			}
		}
	}
	return ran
}

// TestShards runs three controllers that share objects with dependencies between them.
func TestShards(t *testing.T) {
	c := startCluster(t)
	t.Parallel()
	ns := c.namespace(t)
	repo := testenv.NewRepo(t)
	commit := func(text string) string {
		return repo.Commit(testenv.Commit{Branch: "main", Message: text, Files: fstest.MapFS{
			"a.yaml": {Data: []byte(text)}, "chart/Chart.yaml": {Data: []byte("apiVersion: v2\nname: local\nversion: 0.1.0\n")},
		}})
	}
	commit("first")
	git := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	charts := testenv.StartCharts(t, testenv.ChartsConfig{})
	charts.Put(testenv.ChartVersion{Name: "podinfo", Version: "6.0.0"})
	const shards = 3
	owner := func(kind, name string) int {
		for i := range shards {
			if (controller.Scope{Shards: shards, Shard: i}).Has(source.Reference{Kind: source.Spellings(kind)[0], Namespace: ns, Name: name}) {
				return i
			}
		}
		t.Fatalf("%s %s has no owner", kind, name)
		return -1
	}
	owned := func(kind string, shard int) string {
		for i := 0; ; i++ {
			if name := fmt.Sprintf("%s-%d", strings.ToLower(kind), i); owner(kind, name) == shard {
				return name
			}
		}
	}
	type ref struct{ kind, name string }
	var all []ref
	add := func(kind, name string, spec object) ref {
		c.apply(t, document(kind, ns, name, withFields(spec, object{"interval": "1h"})))
		all = append(all, ref{kind, name})
		return ref{kind, name}
	}
	spec := object{"url": git.Repo(), "ref": object{"branch": "main"}}
	base := add("GitRepository", owned("GitRepository", 1), spec)
	app := add("GitRepository", owned("GitRepository", 0), withFields(spec, object{"include": []any{object{"repository": object{"name": base.name}, "toPath": "base"}}}))
	chart := add("HelmChart", owned("HelmChart", 2), object{"chart": "chart", "reconcileStrategy": "Revision", "sourceRef": object{"kind": "GitRepository", "name": base.name}})
	helm := add("HelmRepository", owned("HelmRepository", 1), object{"url": charts.URL()})
	add("HelmChart", owned("HelmChart", 0), object{"chart": "podinfo", "version": "6.x", "sourceRef": object{"kind": "HelmRepository", "name": helm.name}})
	for i := range 12 {
		add("GitRepository", fmt.Sprintf("plain-%d", i), spec)
	}

	f, dirs := newPodProxy(t), make([]string, shards)
	args := append([]string{"--shards=3"}, longLease...)
	pods := make([]*process, shards)
	begin := func(i int) { pods[i] = f.spawn(t, c, ns, fmt.Sprintf("headgate-%d", i), dirs[i], args...) }
	for i := range shards {
		dirs[i] = t.TempDir()
		begin(i)
	}
	for _, r := range all {
		obj := c.wait(t, r.kind, ns, r.name, "is ready", isReady)
		want := f.URL + fmt.Sprintf("/headgate-%d/", owner(r.kind, r.name))
		if !strings.HasPrefix(obj.Artifact().URL, want) {
			t.Errorf("the artifact of %v is at %s, want %s", r, obj.Artifact().URL, want)
		}
		resp, err := http.Get(obj.Artifact().URL)
		testenv.Must(t, err)
		resp.Body.Close()
		testenv.Equal(t, resp.StatusCode, http.StatusOK, obj.Artifact().URL)
	}
	stored := map[string]int{}
	waitUntil(t, "all are logged", func() bool { // a run is logged after its status is written
		clear(stored)
		for i, p := range pods {
			for object, n := range p.runCounts() {
				kind, rest, _ := strings.Cut(object, "/")
				if owner(kind, strings.TrimPrefix(rest, ns+"/")) != i {
					t.Errorf("shard %d ran %s", i, object)
				}
				stored[object] += n
			}
		}
		return !slices.ContainsFunc(all, func(r ref) bool { return stored[r.kind+"/"+ns+"/"+r.name] == 0 })
	})
	for _, r := range all {
		testenv.Equal(t, stored[r.kind+"/"+ns+"/"+r.name], 1, "artifacts stored of %v", r)
	}

	// A controller with another --shards does not start.
	for _, wrong := range [][]string{{"--shards=2"}, {"--enable-leader-election"}} {
		p := c.spawn(t, ns, "headgate-0", t.TempDir(), append(wrong, "--storage-adv-addr="+f.base("headgate-0"))...)
		receive(t, "the controller has ended", p.ended)
		if log := p.log.text(); p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(log, "the lease "+ns+"/source-controller-leader-election-") ||
			!strings.Contains(log, "-of-3 of one of 3 is held by ") || !strings.Contains(log, "scale to 0 before the number changes") {
			t.Errorf("%v: exit %d: %s", wrong, p.cmd.ProcessState.ExitCode(), log)
		}
	}

	// A change of an object reaches its dependents in other shards.
	request := func(r ref, value string) {
		c.patch(t, r.kind, ns, r.name, false, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, value))
	}
	handled := func(value string) func(source.Object) bool {
		return func(obj source.Object) bool { return isReady(obj) && obj.Common().LastHandledReconcileAt == value }
	}
	second := commit("second")
	request(base, "1")
	c.wait(t, app.kind, ns, app.name, "includes the second commit", func(obj source.Object) bool {
		in := obj.(*source.GitRepository).Status.IncludedArtifacts
		return isReady(obj) && len(in) == 1 && in[0].Revision == "main@sha1:"+second
	})
	c.wait(t, chart.kind, ns, chart.name, "is of the second commit", func(obj source.Object) bool {
		return isReady(obj) && strings.Contains(obj.Artifact().Revision, second[:12])
	})

	// Only the objects of a stopped shard wait for it.
	pods[1].kill()
	for _, r := range []ref{base, app, chart} {
		request(r, "2")
	}
	c.wait(t, app.kind, ns, app.name, "ran without shard 1", handled("2"))
	c.wait(t, chart.kind, ns, chart.name, "ran without shard 1", handled("2"))
	testenv.Equal(t, c.get(t, base.kind, ns, base.name).Common().LastHandledReconcileAt, "1")
	dirs[1] = t.TempDir() // its volume is lost
	begin(1)
	obj := c.wait(t, base.kind, ns, base.name, "ran by the new shard 1", handled("2"))
	resp, err := http.Get(obj.Artifact().URL)
	testenv.Must(t, err)
	resp.Body.Close()
	testenv.Equal(t, resp.StatusCode, http.StatusOK)
	testenv.Equal(t, obj.Artifact().Revision, "main@sha1:"+second)
}

// TestSelector runs a controller for labelled objects that depend on objects of another controller.
func TestSelector(t *testing.T) {
	c := startCluster(t)
	t.Parallel()
	ns, repo, f := c.namespace(t), newGatedRepo(t), newPodProxy(t)
	const kind = "GitRepository"
	label := func(name, value string) {
		c.patch(t, kind, ns, name, false, fmt.Sprintf(`{"metadata":{"labels":{"shard":%q}}}`, value))
	}
	spec := object{"url": repo.url, "interval": "1h", "ref": object{"branch": "main"}}
	c.apply(t, document(kind, ns, "base", spec))
	c.apply(t, document(kind, ns, "app", withFields(spec, object{"include": []any{object{"repository": object{"name": "base"}, "toPath": "base"}}})))
	label("app", "a")
	rest := t.TempDir()
	f.spawn(t, c, ns, "rest", rest, "--watch-label-selector=!shard", "--source-addrs="+f.base("a"))
	dir := t.TempDir()
	a := f.spawn(t, c, ns, "a", dir, "--watch-label-selector=shard=a")
	c.wait(t, kind, ns, "base", "is ready", isReady)
	c.wait(t, kind, ns, "app", "may not fetch what it includes", func(obj source.Object) bool {
		return strings.Contains(obj.Common().Condition("Ready").Message, "--source-addrs")
	})
	a.kill()
	f.spawn(t, c, ns, "a", dir, "--watch-label-selector=shard=a", "--source-addrs="+f.base("rest"))
	c.wait(t, kind, ns, "app", "is ready", isReady)
	stored := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "gitrepository", ns, "base"))
		return err == nil
	}
	if stored(dir) || !stored(rest) {
		t.Error("the included artifact is not stored where it belongs")
	}

	// A relabelled object moves to the other controller, with its artifact.
	label("base", "a")
	at := func(pod string) func(source.Object) bool {
		return func(obj source.Object) bool {
			return isReady(obj) && obj.Artifact() != nil && strings.HasPrefix(obj.Artifact().URL, f.URL+"/"+pod+"/")
		}
	}
	c.wait(t, kind, ns, "base", "is at the new controller", at("a"))
	waitUntil(t, "the old one has no files of it", func() bool { return !stored(rest) })
	c.patch(t, kind, ns, "app", false, `{"metadata":{"labels":{"shard":null}}}`)
	c.wait(t, kind, ns, "app", "is at the other controller", at("rest"))
}

// TestSpread checks that shards have about the same size.
func TestSpread(t *testing.T) {
	for _, shards := range []int{1, 2, 3, 7, 16} {
		sizes := make([]int, shards)
		for i := range 10000 {
			owners := 0
			for shard := range shards {
				if (controller.Scope{Shards: shards, Shard: shard}).Has(source.Reference{Kind: "GitRepository", Namespace: fmt.Sprintf("team-%d", i%40), Name: fmt.Sprintf("app-%d", i)}) {
					sizes[shard]++
					owners++
				}
			}
			testenv.Equal(t, owners, 1)
		}
		for shard, n := range sizes {
			if even := 10000 / shards; shards < 7 && (n < even*9/10 || n > even*11/10) || n < even*8/10 || n > even*12/10 {
				t.Errorf("shard %d of %d has %d objects", shard, shards, n)
			}
		}
	}
}

// TestShardFlags checks the parsing of ordinals, and the addresses from which artifacts may be
// fetched.
func TestShardFlags(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	pod := func(name string) func(string) (string, bool) {
		return func(variable string) (string, bool) { return map[string]string{"POD_NAME": name}[variable], true }
	}
	for _, c := range []struct {
		pod, says string
		args      []string
	}{
		{"headgate-3", "scale the StatefulSet to 3", []string{"--shards=3"}},
		{"headgate", "does not end in an ordinal", []string{"--shards=3"}},
		{"3", "does not end in an ordinal", []string{"--shards=4"}},
		{"headgate-x", "does not end in an ordinal", []string{"--shards=3"}},
		{"headgate-0", "--shards: want 1 or more", []string{"--shards=0"}},
	} {
		if _, _, err := parse(c.args, pod(c.pod), t.Output()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c, err, c.says)
		}
	}
	f, _, err := parse([]string{"--shards=12", "--source-addrs=watcher.example:80,https://files.example/store/"}, pod("headgate-10"), t.Output())
	testenv.Must(t, err)
	testenv.Equal(t, f.shard, 10)
	testenv.Equal(t, f.leaseName(), "source-controller-leader-election-10-of-12")
	allow, err := f.newURLCheck("headgate-10.headgate.headgate-10.svc.cluster.local.")
	testenv.Must(t, err)
	for address, want := range map[string]bool{
		"http://headgate-10.headgate.headgate-10.svc.cluster.local./a": true, "http://headgate-2.headgate.headgate-10.svc.cluster.local./a": true,
		"http://HEADGATE-2.headgate.headgate-10.svc.cluster.local.:80/a": true, "http://headgate-12.headgate.headgate-10.svc.cluster.local./a": false,
		"https://headgate-2.headgate.headgate-10.svc.cluster.local./a": false, "http://headgate-2.headgate.headgate-10.svc.cluster.local.:81/a": false,
		"http://watcher.example/a": true, "http://watcher.example.evil.example/a": false, "https://files.example/store/a": true,
		"https://files.example/stores/a": false, "https://files.example/store/../a": false, "https://files.example/store/%2e%2e/a": false, "http://169.254.169.254/": false,
	} {
		u, err := url.Parse(address)
		testenv.Must(t, err)
		if err := allow(u); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	if f.sourceAddrs = nil; true {
		if _, err := f.newURLCheck("source-controller.flux-system.svc.cluster.local."); err == nil || !strings.Contains(err.Error(), "$(POD_NAME)") {
			t.Errorf("one address for all shards: %v", err)
		}
	}
	for _, addr := range []string{"http://", "http://%"} {
		if _, err := (&flags{shards: 1, sourceAddrs: []string{addr}}).newURLCheck("a"); err == nil {
			t.Errorf("%s is allowed", addr)
		}
	}
	if f, _, err := parse(nil, none, t.Output()); err != nil || f.elect || f.shardsOf("source-controller-leader-election") != 1 || f.shardsOf("source-controller-leader-election-1-of-3") != 3 || f.shardsOf("source-controller-leader-election-73fdc1be") != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}
