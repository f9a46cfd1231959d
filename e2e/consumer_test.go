package e2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fluxcd/pkg/http/fetch"
)

// serveArtifacts runs headgate artifact serve and returns its URL.
func serveArtifacts(t *testing.T, store string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := headgate(ctx, t, "artifact", "serve", "--store", store, "--addr", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.StdoutPipe()
	check(t, err)
	stderr := new(log)
	cmd.Stderr = stderr
	check(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() > 0 {
			t.Errorf("headgate artifact serve: %v\n%s", err, stderr)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("headgate artifact serve: %v\n%s", err, stderr)
	}
	_, url, ok := strings.Cut(strings.TrimSpace(line), " at ")
	if !ok || !strings.HasPrefix(line, "serving "+store+" at http://127.0.0.1:") {
		t.Fatalf("headgate artifact serve printed %q", line)
	}
	return url
}

// TestFluxConsumer lets what Flux's controllers fetch artifacts with fetch ours.
func TestFluxConsumer(t *testing.T) {
	repo, _ := sample(t)
	store := t.TempDir()
	first := fetchGit(t, store, gitSource{url: serveGit(t, repo).plain + "/public/repo.git"})
	got := first.status.Artifact
	if got == nil {
		t.Fatalf("no artifact\n%s", first.stderr)
	}
	url := serveArtifacts(t, store)
	dir := t.TempDir()
	client := fetch.New(fetch.WithUntar())
	check(t, client.Fetch(url+"/"+got.Path, got.Digest, dir))
	for name, want := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"README.md":       {"# sample\n", 0o644},
		"deploy/app.yaml": {strings.Repeat("replicas: 3\n", 5000), 0o644},
		"deploy/run":      {"#!/bin/sh\n", 0o755},
		"docs/naïve name": {"ü\n", 0o644},
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		check(t, err)
		if text := read(t, filepath.Join(dir, name)); text != want.text || info.Mode().Perm()&0o100 != want.mode&0o100 {
			t.Errorf("%s: %d bytes, mode %v", name, len(text), info.Mode())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "docs", "x.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("docs/x.tmp: %v", err)
	}
	if err := client.Fetch(url+"/"+got.Path, "sha256:"+strings.Repeat("0", 64), t.TempDir()); err == nil || !strings.Contains(err.Error(), "computed digest doesn't match") {
		t.Errorf("with another digest: %v", err)
	}
	if err := client.Fetch(url+"/"+filepath.Dir(got.Path)+"/other.tar.gz", got.Digest, t.TempDir()); !errors.Is(err, fetch.ErrFileNotFound) {
		t.Errorf("another file: %v", err)
	}
}
