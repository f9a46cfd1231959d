package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// The quick start of the README does what it says: its server, its commands and its
// webhook, with another address, other directories and a repository of the test.
func TestReadmeServe(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Keep sources up to date\n")
	if section, _, _ = strings.Cut(section, "\n## "); !found {
		t.Fatal("there is no quick start")
	}
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("one")})
	dir := t.TempDir()
	sources, store := filepath.Join(dir, "sources.yaml"), filepath.Join(dir, "store")
	document := "apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: \"" +
		testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo() + "\", interval: 1h, ref: {branch: main}}\n"
	if err := os.WriteFile(sources, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	local := strings.NewReplacer("sources.yaml", sources, "./store", store, ` --reason "release freeze"`, " --reason freeze", " -w", "")
	commands := regexp.MustCompile(`(?m)^    headgate (.*?)(?: +#.*)?$`).FindAllStringSubmatch(section, -1)
	if len(commands) < 6 || !strings.HasPrefix(commands[0][1], "serve ") {
		t.Fatalf("commands %q", commands)
	}
	url := served(t, append(strings.Fields(local.Replace(commands[0][1])), "--addr", "127.0.0.1:0"))
	command(t, exitReady, "reconcile", "gitrepository/app", "--store", store)
	for _, c := range commands[1:] {
		command(t, exitReady, strings.Fields(local.Replace(c[1]))...)
	}
	hook := regexp.MustCompile(`(?m)^    curl -X POST http://127\.0\.0\.1:9090(/hook/\S+)$`).FindStringSubmatch(section)
	if hook == nil {
		t.Fatal("there is no webhook")
	}
	if got, body := ask(t, http.MethodPost, url+hook[1], ""); got.StatusCode/100 != 2 {
		t.Errorf("webhook: %s, %s", got.Status, body)
	}
	set, err := ledgerOf(store).List()
	if err != nil || len(set.Objects) != 1 || set.Objects[0].Artifact() == nil {
		t.Fatalf("%v, %v", set, err)
	}
	if got, _ := ask(t, http.MethodGet, set.Objects[0].Artifact().URL, ""); got.StatusCode != http.StatusOK || !strings.HasPrefix(set.Objects[0].Artifact().URL, url) {
		t.Errorf("artifact: %s at %s", got.Status, set.Objects[0].Artifact().URL)
	}
}

// served runs headgate serve until the test ends, and returns its URL.
func served(t *testing.T, args []string) string {
	t.Helper()
	return servedBy(t, "serving sources at ", args)
}

// servedBy runs a server until the test ends, and returns the URL that it says
// it serves at.
func servedBy(t *testing.T, says string, args []string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, args, strings.NewReader(""), w, io.Discard, func(string) (string, bool) { return "", false })
		w.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitReady {
			t.Errorf("headgate %s: exit code %d", args[0], code)
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(line), says)
	if err != nil || !found {
		t.Fatalf("headgate %s printed %q: %v", args[0], line, err)
	}
	return url
}
