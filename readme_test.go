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

// programs returns the files of the programs in a document.
func programs(t *testing.T, file string) (files []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	for i, block := range regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(text, -1) {
		if bytes.Count(block[1], []byte("\n")) > 40 {
			t.Errorf("program %d of %s has more than 40 lines", i, file)
		}
		files = append(files, filepath.Join(t.TempDir(), "main.go"))
		must(t, os.WriteFile(files[len(files)-1], block[1], 0o644))
	}
	return files
}

func goCommand(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// The program in the README fetches, and finds nothing new the second time.
func TestReadme(t *testing.T) {
	files := programs(t, "README.md")
	if len(files) != 1 {
		t.Fatalf("the README has %d programs", len(files))
	}
	program := filepath.Join(t.TempDir(), "program.exe")
	goCommand(t, "build", "-ldflags=-w", "-o", program, files[0])
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "master", Message: "first", Files: fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	document := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: %q, interval: 5m}\n", server.Repo())
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "sources.yaml"), []byte(document), 0o644))
	for _, want := range []string{
		"GitRepository/default/app stored there was no artifact\n",
		"GitRepository/default/app unchanged revision, spec and inputs are those of the artifact\n",
	} {
		run := exec.CommandContext(t.Context(), program)
		run.Dir = dir
		if out, err := run.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	}
}

// The programs in the document about embedding compile.
func TestEmbedding(t *testing.T) {
	files := programs(t, "docs/embedding.md")
	if len(files) == 0 {
		t.Error("there is no program")
	}
	for _, file := range files {
		goCommand(t, "vet", file) // compiles without linking
	}
}
