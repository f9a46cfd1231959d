package headgate_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// programs returns the programs that a document shows, built, in a directory of the test.
func programs(t *testing.T, file string) (built []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(text, -1) {
		if bytes.Count(block[1], []byte("\n")) > 40 {
			t.Errorf("program %d of %s has more than 40 lines", i, file)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.go"), block[1], 0o644); err != nil {
			t.Fatal(err)
		}
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "program.exe"), filepath.Join(dir, "main.go"))
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		built = append(built, filepath.Join(dir, "program.exe"))
	}
	return built
}

// The program in the README fetches, and finds nothing new the next time.
func TestReadme(t *testing.T) {
	built := programs(t, "README.md")
	if len(built) != 1 {
		t.Fatalf("the README has %d programs", len(built))
	}
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "master", Message: "first", Files: fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	document := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: %q, interval: 5m}\n", server.Repo())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sources.yaml"), []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"GitRepository/default/app stored there was no artifact\n",
		"GitRepository/default/app unchanged revision, spec and inputs are those of the artifact\n",
	} {
		run := exec.CommandContext(t.Context(), built[0])
		run.Dir = dir
		if out, err := run.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	}
}

// The programs in the document about embedding compile.
func TestEmbedding(t *testing.T) {
	if len(programs(t, "docs/embedding.md")) == 0 {
		t.Error("there is no program")
	}
}
