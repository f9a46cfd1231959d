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

// The program in the README compiles, fetches, and finds nothing new the next time.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 || bytes.Count(blocks[0][1], []byte("\n")) > 30 {
		t.Fatalf("the README has %d programs, want one of 30 lines at most", len(blocks))
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program.exe")
	if err := os.WriteFile(filepath.Join(dir, "main.go"), blocks[0][1], 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, filepath.Join(dir, "main.go"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "master", Message: "first", Files: fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	document := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: %q, interval: 5m}\n", server.Repo())
	if err := os.WriteFile(filepath.Join(dir, "sources.yaml"), []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
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
