package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/internal/testenv"
)

// These are the numbers of objects in TestRealSideBySide and TestRealMany, their interval, and the
// time of observation without changes.
const (
	benchRepositories, benchObjects, benchMany = 100, 1000, 10_000
	benchInterval, benchWatched                = time.Minute, 2 * time.Minute
)

// TestRealSideBySide measures headgate-controller and source-controller one after the other, with
// the same API server and upstreams.
func TestRealSideBySide(t *testing.T) {
	b := newBench(t)
	theirs := b.measure("theirs", "reference", (*cluster).startReference) // source-controller cannot have a lease outside a cluster
	ours := b.measure("ours", "controller", (*cluster).startHeadgate, benchElection...)
	fmt.Fprintf(b, "%d GitRepositories of %d repositories, interval %v; nothing new for %v\n", benchObjects, benchRepositories, benchInterval, benchWatched)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tsource-controller\theadgate-controller\t\t")
	row := func(what string, a, b float64) { fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f×\t\n", what, a, b, b/a) }
	row("from nothing to all Ready, s", theirs.ready.Seconds(), ours.ready.Seconds())
	row("CPU when nothing is new, s", theirs.cpu, ours.cpu)
	row("memory then, MB", theirs.memory, ours.memory)
	row("peak, MB", theirs.peak, ours.peak)
	w.Flush()
	fmt.Fprintf(b, "writes when nothing is new: source-controller %v, headgate-controller %v\n", theirs.writes, ours.writes)
	fmt.Fprintf(b, "after a restart: source-controller %v and %d fetches, headgate-controller %v and %d fetches\n", theirs.writesAgain, theirs.fetches, ours.writesAgain, ours.fetches)
	b.checkLimit("from nothing to all Ready", ours.ready.Seconds()/theirs.ready.Seconds(), 0.3, "×")
	b.checkLimit("CPU when nothing is new", ours.cpu/theirs.cpu, 0.4, "×")
	b.checkLimit("memory then", ours.memory/theirs.memory, 0.7, "×")
	b.checkLimit("writes but the lease", float64(ours.writes.countOthers("leases")), 0, "")
	b.checkLimit("writes after a restart", float64(ours.writesAgain.countOthers("leases")), 0, "")
	b.checkLimit("fetches after a restart", float64(ours.fetches), 0, "")
}

// TestRealMany measures headgate-controller with more objects, and its restart.
func TestRealMany(t *testing.T) {
	b := newBench(t)
	r := b.measureMany("many")
	fmt.Fprintf(b, "%d GitRepositories on one replica: all Ready after %.1f s, peak then %.0f MB\n", benchMany, r.ready.Seconds(), r.peak)
	b.checkLimit("peak after a restart", r.peakAgain, 320, "MB")
	b.checkLimit("ready after the lease", r.afterLease.Seconds(), 8, "s")
	fmt.Fprintf(b, "writes until then: %v\n", r.writesAgain)
	b.checkLimit("writes until then but the lease", float64(r.writesAgain.countOthers("leases")), 0, "")
}

// A result holds the measurements of a controller.
type result struct {
	ready               time.Duration // from its start until all objects are Ready
	cpu, memory         float64       // seconds and MB while nothing changed
	peak, peakAgain     float64       // MB
	writes, writesAgain writes        // while nothing changed, and after a restart
	fetches             int64         // after a restart
	afterLease          time.Duration // from the lease until it was ready
}

// A bench measures controllers. The test prints the text that is written to it.
type bench struct {
	strings.Builder
	t     *testing.T
	c     *cluster
	u     *benchUpstream
	audit string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	needFull(t)
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	b := &bench{t: t, u: newBenchUpstream(t), audit: filepath.Join(dir, "audit.log")}
	testenv.Must(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: None, verbs: [get, list, watch]}, {level: Metadata}]\n"), 0o600))
	b.c = realCluster(t, "default", "--audit-policy-file="+policy, "--audit-log-path="+b.audit)
	t.Cleanup(func() { t.Logf("\n%s", b.String()) })
	return b
}

// checkLimit checks a number against its limit.
func (b *bench) checkLimit(what string, number, limit float64, unit string) {
	verdict := "reached"
	if !(number <= limit) {
		verdict = "MISSED"
		b.t.Errorf("%s: %.2f %s, want %.2f at most", what, number, unit, limit)
	}
	fmt.Fprintf(b, "%s  %s: %.2f %s, at most %.2f\n", verdict, what, number, unit, limit)
}

var benchElection = []string{"--enable-leader-election", "--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s", "--leader-election-retry-period=2s"}

// measure lets a controller make objects ready, keep them up to date, and do so again after a
// restart. First it fetches each repository once, so that the upstream has its answers cached.
func (b *bench) measure(ns, user string, start func(*cluster, *testing.T, string, *service, string, ...string) *program, flags ...string) (r result) {
	first := ns + "-first"
	b.fill(first, benchRepositories)
	p := start(b.c, b.t, first, newService(b.t), b.t.TempDir(), flags...)
	b.allReady(first, benchRepositories)
	p.end(b.t)
	b.fill(ns, benchObjects)
	s, dir := newService(b.t), b.t.TempDir()
	begun := time.Now()
	p = start(b.c, b.t, ns, s, dir, flags...)
	b.allReady(ns, benchObjects)
	r.ready = time.Since(begun)
	time.Sleep(benchInterval / 2) // lets the work after the first fetches finish
	cpu, before := p.cpu(b.t), b.writesOf(user)
	time.Sleep(benchWatched)
	r.cpu, r.writes, r.memory, r.peak = p.cpu(b.t)-cpu, b.writesOf(user).since(before), p.memory(b.t, "VmRSS"), p.memory(b.t, "VmHWM")
	p.end(b.t)
	before, fetches := b.writesOf(user), b.u.fetches.Load()
	p = start(b.c, b.t, ns, s, dir, flags...)
	time.Sleep(benchInterval + benchInterval/6)
	r.writesAgain, r.fetches = b.writesOf(user).since(before), b.u.fetches.Load()-fetches
	p.end(b.t)
	return r
}

// measureMany runs headgate-controller with many objects and measures a restart.
func (b *bench) measureMany(ns string) (r result) {
	b.fill(ns, benchMany)
	s, dir := newService(b.t), b.t.TempDir()
	begun := time.Now()
	p := b.c.startHeadgate(b.t, ns, s, dir, benchElection...)
	b.allReady(ns, benchMany)
	r.ready = time.Since(begun)
	r.peak = p.memory(b.t, "VmHWM")
	p.end(b.t)
	before := b.writesOf("controller")
	p = b.c.startHeadgate(b.t, ns, s, dir, benchElection...)
	waitWithin(b.t, 2*time.Minute, "the controller is ready", func() bool { return p.statusCode("/readyz") == http.StatusOK }, p.logTail)
	r.afterLease = time.Since(p.leaseTime(b.t))
	r.writesAgain, r.peakAgain = b.writesOf("controller").since(before), p.memory(b.t, "VmHWM")
	p.end(b.t)
	return r
}

// leaseTime returns the time when the controller acquired the lease, from its log.
func (p *program) leaseTime(t *testing.T) time.Time {
	t.Helper()
	for line := range strings.Lines(p.text()) {
		var entry struct {
			Time time.Time
			Msg  string
		}
		if json.Unmarshal([]byte(line), &entry) == nil && strings.Contains(strings.ToLower(entry.Msg), "successfully acquired lease") {
			return entry.Time
		}
	}
	t.Fatalf("the log does not say when it got the lease:\n%s", p.logTail())
	return time.Time{}
}

// cpu returns the CPU seconds of the process.
func (p *program) cpu(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	testenv.Must(t, err)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):]))
	user, err := strconv.ParseFloat(fields[12], 64)
	testenv.Must(t, err)
	system, err := strconv.ParseFloat(fields[13], 64)
	testenv.Must(t, err)
	return (user + system) / 100
}

// memory returns a field of the process status in MB.
func (p *program) memory(t *testing.T, name string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	testenv.Must(t, err)
	_, rest, _ := strings.Cut(string(text), name+":")
	kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	testenv.Must(t, err)
	return kb * 1024 / 1e6
}

// writes counts write requests by resource and verb.
type writes map[string]int

func (w writes) since(before writes) writes {
	out := writes{}
	for key, n := range w {
		if n -= before[key]; n > 0 {
			out[key] = n
		}
	}
	return out
}

// countOthers returns the number of writes to other resources.
func (w writes) countOthers(resource string) (n int) {
	for key, one := range w {
		if !strings.HasPrefix(key, resource+" ") {
			n += one
		}
	}
	return n
}

// writesOf returns the write requests of a user to the API server so far.
func (b *bench) writesOf(user string) writes {
	b.t.Helper()
	f, err := os.Open(b.audit)
	testenv.Must(b.t, err)
	defer f.Close()
	out := writes{}
	for d := json.NewDecoder(f); ; {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource, Name string }
		}
		if err := d.Decode(&e); err != nil { // io.EOF, or an incomplete line
			return out
		}
		if strings.HasPrefix(e.ObjectRef.Name, "source-controller-leader-election") { // an Event about the lease
			e.ObjectRef.Resource = "leases"
		}
		if e.User.Username == user {
			out[strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")+" "+e.Verb]++
		}
	}
}

// allReady waits until all n objects of a namespace are ready.
func (b *bench) allReady(ns string, n int) {
	b.t.Helper()
	kind := emptyObject("GitRepository", "", "").GroupVersionKind()
	for begun := time.Now(); time.Since(begun) < 5*time.Minute; time.Sleep(time.Duration(n) * time.Millisecond / 4) {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(kind)
		testenv.Must(b.t, b.c.List(b.t.Context(), list, client.InNamespace(ns)))
		ready := 0
		for _, u := range list.Items {
			conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
			for _, one := range conditions {
				if one := one.(object); one["type"] == "Ready" && one["status"] == "True" {
					ready++
				}
			}
		}
		if ready == n {
			return
		}
	}
	b.t.Fatalf("not all %d objects of %s are ready after 5 minutes", n, ns)
}

// fill creates n objects in a namespace.
func (b *bench) fill(ns string, n int) {
	b.t.Helper()
	b.c.apply(b.t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": ns}})
	b.c.roles(b.t, ns)
	var wait sync.WaitGroup
	next, failed := atomic.Int64{}, atomic.Value{}
	for range 16 {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				u := emptyObject("GitRepository", ns, fmt.Sprintf("app-%05d", i))
				u.Object["spec"] = object{"interval": benchInterval.String(), "url": fmt.Sprintf("%s/%d.git", b.u.url, i%benchRepositories), "ref": object{"branch": "main"}}
				if err := b.c.Create(b.t.Context(), u); err != nil {
					failed.Store(err)
				}
			}
		})
	}
	wait.Wait()
	if err, _ := failed.Load().(error); err != nil {
		b.t.Fatal(err)
	}
}

// A benchUpstream is a server of repositories that caches its answers by request, so that the
// benchmark measures controllers and not git.
type benchUpstream struct {
	url     string
	fetches atomic.Int64
}

func newBenchUpstream(t *testing.T) *benchUpstream {
	t.Helper()
	repos := map[string]*testenv.Repo{}
	for i := range benchRepositories {
		repo := testenv.NewRepo(t)
		files := fstest.MapFS{}
		for f := range 8 {
			files[fmt.Sprintf("file-%d.yaml", f)] = &fstest.MapFile{Data: bytes.Repeat(fmt.Appendf(nil, "kind: ConfigMap # %d %d\n", i, f), 40)}
		}
		repo.Commit(testenv.Commit{Branch: "main", Files: files})
		repos[fmt.Sprintf("%d.git", i)] = repo
	}
	git, u := testenv.ServeRepos(t, testenv.GitConfig{}, repos), new(benchUpstream)
	type answer struct {
		status int
		header http.Header
		body   []byte
	}
	var answers sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") && bytes.Contains(body, []byte("want ")) {
			u.fetches.Add(1)
		}
		key := strings.Join([]string{r.Method, r.URL.RequestURI(), r.Header.Get("Git-Protocol"), r.Header.Get("Content-Encoding"), string(body)}, "\n")
		a, known := answers.Load(key)
		if !known {
			req, err := http.NewRequestWithContext(r.Context(), r.Method, git.URL+r.URL.RequestURI(), bytes.NewReader(body))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			req.Header = r.Header
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			content, err := io.ReadAll(resp.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			a, _ = answers.LoadOrStore(key, answer{resp.StatusCode, resp.Header, content})
		}
		for name, values := range a.(answer).header {
			w.Header()[name] = values
		}
		w.WriteHeader(a.(answer).status)
		w.Write(a.(answer).body)
	}))
	t.Cleanup(server.Close)
	u.url = server.URL
	return u
}
