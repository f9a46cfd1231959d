package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

// serveLoadTester starts Flagger's load tester, which listens on all interfaces, and returns its
// URL.
func serveLoadTester(t *testing.T) string {
	t.Helper()
	addr, port := freeAddr(t)
	start(t, exec.Command(tool(t, "loadtester"), "-port", port))
	await(t, addr)
	return "http://" + addr
}

// A rolloutSetup has two application servers, a proxy in front of them, and the command that runs a
// rollout between them.
type rolloutSetup struct {
	t               *testing.T
	tester          string
	primary, canary *httptest.Server
	canaryRequests  atomic.Int64
	proxy           string
	manifest        string
	dir             string
	begun           chan struct{} // the primary has received a slow request
}

func newRolloutSetup(t *testing.T, tester string) *rolloutSetup {
	t.Helper()
	s := &rolloutSetup{t: t, tester: tester, dir: t.TempDir(), begun: make(chan struct{}, 1)}
	s.primary = httptest.NewServer(s.answer("primary", nil))
	s.canary = httptest.NewServer(s.answer("canary", &s.canaryRequests))
	t.Cleanup(s.primary.Close)
	t.Cleanup(s.canary.Close)
	s.proxy, _ = freeAddr(t)
	return s
}

// declare writes a canary with webhooks.
func (s *rolloutSetup) declare(name string, webhooks ...map[string]any) {
	s.t.Helper()
	analysis := map[string]any{
		"interval": "1m", "threshold": 2, "stepWeight": 20, "maxWeight": 60, "webhooks": webhooks,
		"metrics": []any{map[string]any{"name": "request-success-rate", "interval": "1m", "thresholdRange": map[string]any{"min": 99}}},
	}
	canary := document("rollout.headgate.dev/v1beta1", "Canary", name, "spec", map[string]any{
		"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
		"service":   map[string]any{"port": 80}, "analysis": analysis,
	})
	s.manifest = writeDocuments(s.t, []any{canary})
}

// answer returns a handler that answers with name after a delay: 500 ms for /slow, else 20 ms.
func (s *rolloutSetup) answer(name string, count *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if count != nil {
			count.Add(1)
		}
		io.Copy(io.Discard, r.Body)
		delay := 20 * time.Millisecond
		if r.URL.Path == "/slow" {
			delay = 500 * time.Millisecond
			select {
			case s.begun <- struct{}{}:
			default:
			}
		}
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		fmt.Fprint(w, name)
	}
}

// post opens or closes a gate or switch of the load tester.
func (s *rolloutSetup) post(path, name string) {
	s.t.Helper()
	must(s.t, s.tryPost(path, name))
}

func (s *rolloutSetup) tryPost(path, name string) error {
	resp, err := http.Post(s.tester+path, "application/json", strings.NewReader(fmt.Sprintf(`{"name": %q, "namespace": "default"}`, name)))
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return nil
}

// gate returns the URL of a gate of the load tester. The gate is open, and is closed before check
// number last.
func (s *rolloutSetup) gate(name string, last int64) string {
	s.t.Helper()
	checks := atomic.Int64{}
	front := startReverseProxy(s.t, s.tester, func(tester *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if checks.Add(1) == last {
				if err := s.tryPost("/gate/close", name); err != nil {
					s.t.Error(err)
				}
			}
			tester.ServeHTTP(w, r)
		})
	})
	s.post("/gate/open", name)
	return front.URL + "/gate/check"
}

// A rolloutProcess is a running headgate rollout.
type rolloutProcess struct {
	t        *testing.T
	cmd      *exec.Cmd
	events   chan event // closed at the end of the output
	stderr   *log
	received []event
}

// An event is a line of the command's output: an event or the final result.
type event struct {
	Code, Message, Outcome, Phase, Hook, Revision string
	Weight                                        int
	Status                                        *struct {
		Phase        string
		CanaryWeight int
	}
}

// run starts the command and waits until its proxy listens.
func (s *rolloutSetup) run(args ...string) *rolloutProcess {
	s.t.Helper()
	args = append([]string{"rollout", "run", "-f", s.manifest, "--revision", "v2", "--interval", "300ms", "-o", "json",
		"--proxy", s.proxy, "--primary", s.primary.URL, "--canary", s.canary.URL, "--proxy-keep"}, args...)
	r := &rolloutProcess{t: s.t, cmd: headgate(context.Background(), s.t, args...), events: make(chan event, 1000), stderr: new(log)}
	r.cmd.Dir, r.cmd.Stderr = s.dir, r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := r.cmd.StdoutPipe()
	must(s.t, err)
	must(s.t, r.cmd.Start())
	go func() {
		defer close(r.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err == nil {
				r.events <- e
			}
		}
	}()
	s.t.Cleanup(func() {
		r.cmd.Process.Kill()
		if s.t.Failed() {
			s.t.Logf("headgate said:\n%s", r.stderr)
		}
	})
	await(s.t, s.proxy)
	return r
}

// waitUntil returns the first event for which wanted returns true.
func (r *rolloutProcess) waitUntil(what string, wanted func(event) bool) event {
	r.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		select {
		case e, open := <-r.events:
			if !open {
				r.t.Fatalf("the command ended before %s; it told %+v", what, r.received)
			}
			r.received = append(r.received, e)
			if wanted(e) {
				return e
			}
		case <-limit.C:
			r.t.Fatalf("no %s; it told %+v", what, r.received)
		}
	}
}

func hasCode(code string) func(event) bool { return func(e event) bool { return e.Code == code } }

func isResult(e event) bool { return e.Outcome != "" }

// end terminates the command and checks its exit code.
func (r *rolloutProcess) end(want int) {
	r.t.Helper()
	r.cmd.Process.Signal(syscall.SIGTERM)
	for range r.events {
	}
	r.cmd.Wait()
	if got := r.cmd.ProcessState.ExitCode(); got != want {
		r.t.Errorf("exit code %d, want %d", got, want)
	}
}

// served sends 100 requests to the proxy and counts the answers by server.
func (s *rolloutSetup) served() map[string]int {
	s.t.Helper()
	got := map[string]int{}
	for range 100 {
		resp, err := http.Get("http://" + s.proxy)
		must(s.t, err)
		body, err := io.ReadAll(resp.Body)
		must(s.t, err)
		resp.Body.Close()
		got[string(body)]++
	}
	return got
}

func hook(name, kind, url string, metadata ...string) map[string]any {
	h := map[string]any{"name": name, "type": kind, "url": url, "timeout": "20s"}
	if len(metadata) > 0 {
		m := stringMap{}
		for i := 0; i < len(metadata); i += 2 {
			m[metadata[i]] = metadata[i+1]
		}
		h["metadata"] = m
	}
	return h
}

// heyWebhook returns a webhook with which the load tester runs hey against the proxy, and the path of
// the report.
func heyWebhook(t *testing.T, tester, proxy, dir string) (map[string]any, string) {
	t.Helper()
	report := filepath.Join(dir, "hey.txt")
	command := fmt.Sprintf("%s -z 2s -c 4 http://%s/ >>%s", tool(t, "hey"), proxy, report)
	return hook("load", "rollout", tester+"/", "type", "cmd", "cmd", command), report
}

// checkReport checks that hey lost no requests.
func checkReport(t *testing.T, report string) {
	t.Helper()
	waitUntil(t, "the report of hey", func() bool { // hey may still be running
		text, _ := os.ReadFile(report)
		if bytes.Contains(text, []byte("Error distribution")) {
			t.Fatalf("hey lost requests:\n%s", text)
		}
		statuses := regexp.MustCompile(`\[(\d+)\]\s+\d+ responses`).FindAllSubmatch(text, -1)
		for _, status := range statuses {
			testenv.Equal(t, string(status[1]), "200", "hey got status")
		}
		return len(statuses) > 0
	})
}

// A loadGenerator sends requests continuously until it is ended.
type loadGenerator struct {
	t       *testing.T
	client  *http.Client
	stop    chan struct{}
	members sync.WaitGroup
	sent    atomic.Int64
	mu      sync.Mutex
	faults  []string
}

// startLoad starts a load of GET and POST requests, slow and fast, on a proxy.
func startLoad(t *testing.T, proxy string) *loadGenerator {
	t.Helper()
	c := &loadGenerator{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, stop: make(chan struct{})}
	for i := range 12 {
		method, path := http.MethodGet, "/"
		if i%2 == 1 {
			method = http.MethodPost
		}
		if i < 4 {
			path = "/slow"
		}
		c.members.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
					c.ask(method, "http://"+proxy+path)
				}
			}
		})
	}
	t.Cleanup(c.end)
	return c
}

func (c *loadGenerator) ask(method, url string) {
	fault := ""
	req, err := http.NewRequest(method, url, bytes.NewReader(make([]byte, 4<<10)))
	if err == nil {
		var resp *http.Response
		if resp, err = c.client.Do(req); err == nil {
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || string(body) != "primary" && string(body) != "canary" {
				fault = fmt.Sprintf("%s %s: %s, %q, %v", method, url, resp.Status, body, err)
			}
		}
	}
	if err != nil {
		fault = err.Error()
	}
	c.sent.Add(1)
	if fault != "" {
		c.mu.Lock()
		c.faults = append(c.faults, fault)
		c.mu.Unlock()
	}
}

// end ends the load and checks that no request was lost.
func (c *loadGenerator) end() {
	c.t.Helper()
	select {
	case <-c.stop:
		return
	default:
		close(c.stop)
	}
	c.members.Wait()
	c.client.CloseIdleConnections()
	c.t.Logf("%d requests, %d lost", c.sent.Load(), len(c.faults))
	if len(c.faults) > 0 || c.sent.Load() < 50 {
		c.t.Errorf("%d of %d requests were lost: %q", len(c.faults), c.sent.Load(), c.faults[:min(len(c.faults), 5)])
	}
}
