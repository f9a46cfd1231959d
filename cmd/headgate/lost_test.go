package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLost says when the server that a command follows is lost, and when it is back.
func TestLost(t *testing.T) {
	dir := t.TempDir()
	docs, store := filepath.Join(dir, "docs.yaml"), filepath.Join(dir, "store")
	const failing = "apiVersion: source.headgate.dev/v1\nkind: Bucket\nmetadata: {name: assets}\nspec: {interval: 1h, bucketName: assets, endpoint: \"127.0.0.1:1\", insecure: true}\n"
	if err := os.WriteFile(docs, []byte(failing), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "-f", docs, "--store", store, "--addr", "127.0.0.1:0"}
	for _, args := range [][]string{{"get", "-w", "git/nope", "bucket/assets"}, {"events", "-w", "git/nope", "bucket/assets"}} {
		said, stop := "", func() {}
		var lines *bufio.Reader
		hear := func(t *testing.T, want string) {
			t.Helper()
			line, err := lines.ReadString('\n')
			if err != nil || !strings.Contains(line, want) {
				t.Fatalf("%s: %q, %v, want %q", args[0], said+line, err, want)
			}
			said += line
		}
		t.Run(args[0], func(t *testing.T) {
			served(t, serve)
			lines, stop = follow(t, append(args, "--store", store))
		})
		hear(t, "the stream ended: unexpected EOF: trying again until it is back")
		t.Run(args[0]+" again", func(t *testing.T) {
			served(t, serve)
			hear(t, "headgate: the server is back")
		})
		stop()
	}
}

// follow runs a command that follows a server, and returns what it writes to
// standard error, and what interrupts it. It returns when there is a stream.
func follow(t *testing.T, args []string) (*bufio.Reader, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	out, printed := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, args, strings.NewReader(""), printed, w, func(string) (string, bool) { return "", false })
		printed.Close()
		w.Close()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	go io.Copy(io.Discard, out)
	return bufio.NewReader(r), func() {
		cancel()
		go io.Copy(io.Discard, r)
		if code := <-ended; code != exitReady {
			t.Errorf("headgate %s: exit code %d", strings.Join(args, " "), code)
		}
	}
}
