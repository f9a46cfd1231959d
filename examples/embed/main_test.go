package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestRun checks that the program applies the first revision, and the next one
// when the files change.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error)
	go func() {
		err := run(ctx, w)
		w.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(r)
	wants := func(prefix string) {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), prefix) {
			t.Fatalf("it printed %q, want %q", lines.Text(), prefix)
		}
	}
	wants("applying GitRepository/default/app local@sha256:")
	wants("replicas: 1")
	if err := errors.Join(os.WriteFile("new", []byte("replicas: 3\n"), 0o644), os.Rename("new", "app/deploy.yaml")); err != nil {
		t.Fatal(err)
	}
	wants("applying GitRepository/default/app local@sha256:")
	wants("replicas: 3")
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
