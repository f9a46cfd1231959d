package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// answers are what a server was asked for.
type answers struct {
	requests, notModified int
	bytes                 int64 // of contents
}

func (a answers) String() string {
	return fmt.Sprintf("%d requests, %d of them answered with 304, %d bytes of content", a.requests, a.notModified, a.bytes)
}

// A counter is an answer that is counted.
type counter struct {
	http.ResponseWriter
	to *answers
}

func (c counter) WriteHeader(status int) {
	if status == http.StatusNotModified {
		c.to.notModified++
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.to.bytes += int64(n)
	return n, err
}

// unchangedIndex fetches the first index by headgate twice and returns what the
// second time asks for.
func (b *bench) unchangedIndex(ctx context.Context) (asked answers, err error) {
	var mu sync.Mutex
	content, err := os.ReadFile(b.indexes[0].path)
	if err != nil {
		return asked, err
	}
	info, err := os.Stat(b.indexes[0].path)
	if err != nil {
		return asked, err
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked.requests++
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(counter{w, &asked}, r, "index.yaml", info.ModTime(), bytes.NewReader(content))
	}))
	defer srv.Close()
	dir := filepath.Join(b.Temp, "unchanged")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return asked, err
	}
	manifest := filepath.Join(dir, "manifest.yaml")
	text := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: PkgRepository\nmetadata:\n  name: bench\nspec:\n  interval: 1m\n  url: %s\n", srv.URL)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		return asked, err
	}
	for range 2 {
		mu.Lock()
		asked = answers{}
		mu.Unlock()
		cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "headgate"), "fetch", "-f", manifest, "--store", filepath.Join(dir, "store"), "-q")
		cmd.Dir, cmd.Env = dir, b.Env
		if out, err := cmd.CombinedOutput(); err != nil {
			return asked, fmt.Errorf("headgate fetch: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return asked, nil
}
