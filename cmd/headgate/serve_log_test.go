package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// What net/http says of connections goes through the log of the command, at its level.
func TestConnectionsAreLogged(t *testing.T) {
	dir, ca := t.TempDir(), testenv.NewCA(t)
	cert, key := ca.Server("127.0.0.1")
	at := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	tlsFlags := []string{"--addr", "127.0.0.1:0", "--tls-cert", at("tls.crt", cert), "--tls-key", at("tls.key", key)}
	docs := at("docs.yaml", nil)
	for name, args := range map[string][]string{
		"serve":  {"serve", "-f", docs, "--store", filepath.Join(dir, "store")},
		"tester": {"tester", "--state", filepath.Join(dir, "tester")},
	} {
		for level, want := range map[string]int{"warn": 1, "error": 0} {
			lines := logOf(t, append(append(args, tlsFlags...), "--log-level", level), want)
			if len(lines) != want || want == 1 && !strings.Contains(lines[0], `level=WARN msg=connection problem="TLS handshake error from `) {
				t.Errorf("%s --log-level %s: %q", name, level, lines)
			}
		}
	}
}

// logOf runs a server, has a client that speaks no TLS 1.2 ask it, waits for some
// lines of its log, ends it, and returns all lines.
func logOf(t *testing.T, args []string, wait int) (lines []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	logged, log := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, args, strings.NewReader(""), w, log, func(string) (string, bool) { return "", false })
		w.Close()
		log.Close()
	}()
	line := make([]byte, 1000)
	n, err := r.Read(line)
	_, addr, found := strings.Cut(strings.TrimSpace(string(line[:n])), "https://")
	if err != nil || !found {
		t.Fatalf("%q, %v", line[:n], err)
	}
	go io.Copy(io.Discard, r)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if tls.Client(conn, &tls.Config{MaxVersion: tls.VersionTLS10, InsecureSkipVerify: true}).Handshake() == nil {
		t.Error("TLS 1.0 is spoken")
	}
	conn.Close()
	in := bufio.NewScanner(logged)
	for len(lines) < wait && in.Scan() {
		lines = append(lines, in.Text())
	}
	cancel()
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	if code := <-ended; code != exitReady {
		t.Errorf("exit code %d", code)
	}
	return lines
}
