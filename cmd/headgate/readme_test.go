package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/source"
)

// The objects in the README are valid, and its commands have the flags that it shows.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	objects, canaries := 0, 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		var set source.Set
		if err := set.Decode("README.md", bytes.NewReader(block[1])); err != nil || len(set.Warnings) > 0 {
			t.Errorf("%v, warnings %v", err, set.Warnings)
		}
		objects += len(set.Objects)
		rollouts, warnings, err := rollout.Decode("README.md", bytes.NewReader(block[1]))
		if err != nil || len(warnings) > 0 {
			t.Errorf("%v, warnings %v", err, warnings)
		}
		canaries += len(rollouts)
	}
	commands := regexp.MustCompile(`(?m)^    headgate (.*?)(?: +#.*)?$`).FindAllSubmatch(text, -1)
	for _, line := range commands {
		args := append(strings.Fields(strings.ReplaceAll(string(line[1]), `"`, "")), "--help")
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr, func(string) (string, bool) { return "", false }); code != 0 || !strings.Contains(stdout.String(), "headgate "+args[0]) {
			t.Errorf("headgate %s: %d, %s", line[1], code, stderr.String())
		}
	}
	if objects < 2 || canaries < 1 || len(commands) < 12 {
		t.Errorf("%d objects, %d canaries and %d commands were found", objects, canaries, len(commands))
	}
}

// The canary, the proxy and the test runner of the README run together: the
// addresses that they have there are told apart, and only replaced by free ones.
// The canary waits for the approval that the README gives.
func TestReadmeCanary(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	manifest := regexp.MustCompile("(?s)```yaml\n(apiVersion: rollout.*?)```").FindSubmatch(text)
	line := regexp.MustCompile(`(?m)^    headgate (rollout run .*)$`).FindSubmatch(text)
	_, section, _ := strings.Cut(string(text), "\n## Serve the webhooks of a rollout\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands := regexp.MustCompile(`(?m)^    headgate (.*?)(?: +#.*)?$`).FindAllStringSubmatch(section, -1)
	if manifest == nil || line == nil || len(commands) < 4 || !strings.HasPrefix(commands[0][1], "tester ") {
		t.Fatalf("there is no canary, no command or no test runner: %q", commands)
	}
	testerAddr := strings.TrimPrefix(defaultServer, "http://")
	proxy := regexp.MustCompile(`--proxy (\S+)`).FindSubmatch(line[1])
	gate := regexp.MustCompile(`url: http://(\S+)/gate/check`).FindSubmatch(manifest[1])
	if proxy == nil || gate == nil || string(gate[1]) != testerAddr || string(proxy[1]) == testerAddr {
		t.Fatalf("the proxy is at %s, the gate at %s, and the test runner listens at %s", proxy, gate, testerAddr)
	}
	dir := t.TempDir()
	runner := servedBy(t, "serving webhooks at ", append(strings.Fields(strings.ReplaceAll(commands[0][1], "./tester", filepath.Join(dir, "tester"))), "--addr", "127.0.0.1:0"))
	var smoked atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/healthz" {
			smoked.Store(true)
		}
	}))
	defer server.Close()
	local := strings.NewReplacer("http://127.0.0.1:9001", server.URL, "http://127.0.0.1:9002", server.URL, "http://"+testerAddr, runner,
		string(proxy[1]), "127.0.0.1:0", "canary.yaml", filepath.Join(dir, "canary.yaml"))
	args := append(strings.Fields(local.Replace(string(line[1]))), "--state", filepath.Join(dir, "app.json"), "--interval", "1ms", "--timeout", "5m")
	// Nothing sends requests, so nothing is measured.
	yaml := strings.Replace(local.Replace(string(manifest[1])), "thresholdRange: {min: 99}", "thresholdRange: {min: 99}\n        noValues: pass", 1)
	if err := os.WriteFile(args[3], []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	said, stderr := io.Pipe()
	var stdout bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), args, strings.NewReader(""), &stdout, stderr, func(string) (string, bool) { return "", false })
		stderr.Close()
	}()
	var log strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		fmt.Fprintln(&log, lines.Text())
		if !strings.Contains(lines.Text(), "waits for the approval of the promotion by approve") {
			continue
		}
		for _, c := range commands[1:] {
			var out bytes.Buffer
			args := strings.Fields(strings.ReplaceAll(c[1], `"looks good"`, "good"))
			code := run(t.Context(), args, strings.NewReader(""), &out, &out, func(name string) (string, bool) { return runner, name == "HEADGATE_TESTER" })
			if code != 0 {
				t.Errorf("headgate %s: %d, %s", c[1], code, &out)
			}
		}
	}
	if code := <-ended; code != exitPromoted || stdout.String() != "default/app promoted: revision v2\n" || !smoked.Load() {
		t.Errorf("%d, %s%s", code, &stdout, &log)
	}
}

// The simulation of docs/rollout.md is of the canary that it shows.
func TestRolloutDocsSimulate(t *testing.T) {
	text, err := os.ReadFile("../../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	manifest := regexp.MustCompile(`(?m)^    apiVersion: rollout(.*\n)(    .*\n)*`).Find(text)
	line := regexp.MustCompile(`(?m)^    headgate (rollout simulate .*)$`).FindSubmatch(text)
	if manifest == nil || line == nil {
		t.Fatal("there is no canary, or no command")
	}
	file := filepath.Join(t.TempDir(), "canary.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll("\n"+string(manifest), "\n    ", "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, 0, strings.Fields(strings.Replace(string(line[1]), "canary.yaml", file, 1))...)
}
