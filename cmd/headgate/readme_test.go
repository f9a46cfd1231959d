package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
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

// The canary of the README is rolled out by the command that it shows, but for
// addresses and the time between steps.
func TestReadmeCanary(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	manifest := regexp.MustCompile("(?s)```yaml\n(apiVersion: rollout.*?)```").FindSubmatch(text)
	line := regexp.MustCompile(`(?m)^    headgate (rollout run .*)$`).FindSubmatch(text)
	if manifest == nil || line == nil {
		t.Fatal("there is no canary, or no command")
	}
	var asked sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked.Store(r.URL.Path, r.Method) }))
	defer server.Close()
	local := strings.NewReplacer("http://127.0.0.1:9001", server.URL, "http://127.0.0.1:9002", server.URL, "http://127.0.0.1:8000", server.URL,
		"127.0.0.1:8080", "127.0.0.1:0", "canary.yaml", filepath.Join(t.TempDir(), "canary.yaml"))
	args := append(strings.Fields(local.Replace(string(line[1]))), "--state", filepath.Join(t.TempDir(), "app.json"), "--interval", "1ms", "--timeout", "1m")
	// Nobody sends requests, so nothing is measured.
	yaml := strings.Replace(local.Replace(string(manifest[1])), "thresholdRange: {min: 99}", "thresholdRange: {min: 99}\n        noValues: pass", 1)
	if err := os.WriteFile(args[3], []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr, func(string) (string, bool) { return "", false })
	if code != exitPromoted || stdout.String() != "default/app promoted: revision v2\n" {
		t.Errorf("%d, %s%s", code, stdout.String(), stderr.String())
	}
	for _, path := range []string{"/healthz", "/gate/check"} {
		if method, _ := asked.Load(path); method != "POST" {
			t.Errorf("%s: %v", path, method)
		}
	}
}
