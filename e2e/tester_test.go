package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A testRunner is a process of headgate tester.
type testRunner struct {
	t     *testing.T
	url   string
	token string // sent by call
	cmd   *exec.Cmd
	log   *log
	state string
}

// startTester starts headgate tester. It has its own state directory unless the flags name one.
func startTester(t *testing.T, flags ...string) *testRunner {
	t.Helper()
	return startTesterBy(t, nil, flags...)
}

// startTesterBy starts headgate tester through another program, whose arguments come first.
func startTesterBy(t *testing.T, by []string, flags ...string) *testRunner {
	t.Helper()
	s := &testRunner{t: t}
	for i, flag := range flags {
		if flag == "--state" {
			s.state = flags[i+1]
		}
	}
	if s.state == "" {
		s.state = t.TempDir()
		flags = append(flags, "--state", s.state)
	}
	s.cmd = headgate(context.Background(), t, append([]string{"tester", "--addr", "127.0.0.1:0"}, flags...)...)
	if len(by) > 0 {
		s.cmd.Path, s.cmd.Args = tool(t, by[0]), append(by, s.cmd.Args...)
	}
	r, w, err := os.Pipe()
	must(t, err)
	s.cmd.Stdout = w
	s.log = start(t, s.cmd)
	must(t, w.Close())
	t.Cleanup(func() { r.Close() })
	line, err := bufio.NewReader(r).ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), "serving webhooks at ")
	if err != nil || !found {
		t.Fatalf("it printed %q: %v\n%s", line, err, s.log)
	}
	s.url = url
	return s
}

// programs returns a PATH whose first directory has links to tools under the names that test
// runners look for. Each name is NAME=TOOL or NAME.
func programs(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name, from, given := strings.Cut(name, "=")
		if !given {
			from = name
		}
		must(t, os.Symlink(tool(t, from), filepath.Join(dir, name)))
	}
	return dir + string(filepath.ListSeparator) + os.Getenv("PATH")
}

// stub adds a script to the first directory of path.
func stub(t *testing.T, path, name, script string) {
	t.Helper()
	file := write(t, filepath.Join(filepath.SplitList(path)[0], name), "#!/bin/sh\n"+script)
	must(t, os.Chmod(file, 0o755))
}

// canaryPayload returns the payload that a canary sends to a webhook.
func canaryPayload(namespace, name, phase, checksum string, metadata stringMap) map[string]any {
	return map[string]any{"namespace": namespace, "name": name, "phase": phase, "checksum": checksum, "metadata": metadata}
}

// encodedPayload returns the encoded payload of a canary in namespace shop.
func encodedPayload(name string, metadata stringMap) string {
	return toJSON(canaryPayload("shop", name, "Progressing", "5594979469", metadata))
}

// ask sends a request and returns the status and the body.
func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	status, text, err := send(t.Context(), method, url, body)
	must(t, err)
	return status, text
}

// send sends a request, with a bearer token if one is given.
func send(ctx context.Context, method, url, body string, token ...string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if len(token) > 0 && token[0] != "" {
		req.Header.Set("Authorization", "Bearer "+token[0])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// call sends a request with the token of the test runner, and returns the status and the body.
func (s *testRunner) call(method, path string, body any) (int, string) {
	s.t.Helper()
	status, text, err := send(s.t.Context(), method, s.url+path, toJSON(body), s.token)
	must(s.t, err)
	return status, text
}

// A runItem is a run as the API returns it.
type runItem struct {
	ID, State, Type, Name, Reason, Output string
}

// runs returns the runs, newest first.
func (s *testRunner) runs() []runItem {
	s.t.Helper()
	status, text := s.call("GET", "/api/v1/runs", nil)
	var got struct{ Runs []runItem }
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 {
		s.t.Fatalf("runs: %d %q, %v", status, text, err)
	}
	return got.Runs
}

// waitUntil waits until what returns true, for at most a minute.
func waitUntil(t *testing.T, subject string, what func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !what() {
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("after a minute still not: %s", subject)
		}
	}
}

// lines returns the number of lines of a file.
func lines(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// A flaggerCaller is a process that calls webhooks with Flagger's functions.
type flaggerCaller struct {
	t       *testing.T
	in      *json.Encoder
	answers *json.Decoder
}

// callerEnv is the variable with the path of that program. It may be set for tests in their own
// network namespace.
const callerEnv = "HEADGATE_E2E_CALLER"

// buildCaller builds the program, or returns the path in callerEnv if that is set.
func buildCaller(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(callerEnv); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "caller")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./caller").CombinedOutput()
	if err != nil {
		t.Fatalf("go build ./caller: %v\n%s", err, out)
	}
	return path
}

func startCaller(t *testing.T) *flaggerCaller {
	t.Helper()
	cmd := exec.Command(buildCaller(t))
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &flaggerCaller{t, json.NewEncoder(in), json.NewDecoder(out)}
}

// call calls a webhook about a revision of a canary. It returns the error text, or "" for a
// success. If event is not "", it uses CallEventWebhook.
func (c *flaggerCaller) call(canary, revision, event string, hook map[string]any) string {
	c.t.Helper()
	must(c.t, c.in.Encode(map[string]any{
		"Canary": map[string]any{"metadata": stringMap{"name": canary, "namespace": "shop"}, "status": stringMap{"lastAppliedSpec": revision}},
		"Phase":  "Progressing", "Webhook": hook, "Event": event, "Kind": "Normal",
	}))
	var got struct{ Error string }
	must(c.t, c.answers.Decode(&got))
	return got.Error
}

// wantStatus posts to a path and checks the status.
func (s *testRunner) wantStatus(path string, payload map[string]any, status int) {
	s.t.Helper()
	if got, text := s.call("POST", path, payload); got != status {
		s.t.Fatalf("POST %s: %d %s, want %d", path, got, text, status)
	}
}

// gate returns the state of a gate from the API.
func (s *testRunner) gate(path string) (g struct {
	Open                                   bool
	Mode, Checksum, Actor, Reason, Expires string
}) {
	s.t.Helper()
	status, text := s.call("GET", "/api/v1/gates/"+path, nil)
	if status != 200 {
		s.t.Fatalf("%s: %d %s", path, status, text)
	}
	must(s.t, json.Unmarshal([]byte(text), &g))
	return g
}
