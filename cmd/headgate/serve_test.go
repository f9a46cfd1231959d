package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A process is a command that runs concurrently with a test, which reads its output.
type process struct {
	t              *testing.T
	args           []string
	stdout, stderr *bufio.Reader // standard output and error
	interrupt      context.CancelFunc
	ended          chan int
}

// startCommand starts a command. The caller must call end.
func startCommand(t *testing.T, args ...string) *process {
	ctx, cancel := context.WithCancel(context.Background())
	out, stdout := io.Pipe()
	errOut, stderr := io.Pipe()
	p := &process{t, args, bufio.NewReader(out), bufio.NewReader(errOut), cancel, make(chan int, 1)}
	go func() {
		p.ended <- run(ctx, args, strings.NewReader(""), stdout, stderr, emptyEnv)
		stdout.Close()
		stderr.Close()
	}()
	return p
}

func emptyEnv(string) (string, bool) { return "", false }

// line reads the next line of r and returns the text after word.
func (p *process) line(r *bufio.Reader, word string) string {
	p.t.Helper()
	line, err := r.ReadString('\n')
	_, rest, found := strings.Cut(strings.TrimSpace(line), word)
	if err != nil || !found {
		p.t.Fatalf("headgate %s: %q, %v, want %q", p.args[0], line, err, word)
	}
	return rest
}

// drain discards the rest of an output.
func (p *process) drain(output **bufio.Reader) {
	if r := *output; r != nil {
		*output = nil
		go io.Copy(io.Discard, r)
	}
}

// end interrupts the command and checks its exit code. It returns the rest of standard error.
func (p *process) end(code int) string {
	p.t.Helper()
	p.interrupt()
	p.drain(&p.stdout)
	var rest []byte
	if p.stderr != nil {
		rest, _ = io.ReadAll(p.stderr)
	}
	if got := <-p.ended; got != code {
		p.t.Errorf("headgate %s: exit code %d, want %d\n%s", strings.Join(p.args, " "), got, code, rest)
	}
	return string(rest)
}

// startServer runs a server until the test ends and returns its URL.
func startServer(t *testing.T, args ...string) string {
	t.Helper()
	p := startCommand(t, append(args, "--addr", "127.0.0.1:0")...)
	p.drain(&p.stderr)
	t.Cleanup(func() { p.end(exitReady) })
	return "http://" + p.line(p.stdout, " at http://")
}

// runCommand runs a command and checks its exit code.
func runCommand(t *testing.T, code int, args ...string) {
	t.Helper()
	var out strings.Builder
	if got := run(t.Context(), args, strings.NewReader(""), &out, &out, emptyEnv); got != code {
		t.Fatalf("headgate %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out.String())
	}
}

// sendRequest sends a request with an optional header NAME: VALUE. The header Host sets the host of the
// request.
func sendRequest(t *testing.T, method, url, header string) (*http.Response, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	if name, value, found := strings.Cut(header, ": "); name == "Host" {
		q.Host = value
	} else if found {
		q.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(q)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(body)
}

// TestServe fetches a source, serves the store and requests the artifact.
func TestServe(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("one")})
	store := filepath.Join(t.TempDir(), "store")
	runCommand(t, exitReady, "fetch", testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo(), "--name", "repo", "--store", store, "-q")
	set, err := (&source.Ledger{Dir: filepath.Join(store, ".status")}).List()
	if err != nil || len(set.Objects) != 1 {
		t.Fatalf("status: %v", err)
	}
	a := set.Objects[0].Artifact()
	text, err := os.ReadFile(filepath.Join(store, filepath.FromSlash(a.Path)))
	must(t, err)
	content, url := string(text), startServer(t, "artifact", "serve", "--store", store)
	got, _ := sendRequest(t, "GET", url+"/"+a.Path, "")
	if got.Header.Get("ETag") == "" {
		t.Error("no ETag")
	}
	const missing, none = http.StatusNotFound, "\x00"
	for _, c := range []struct {
		method, path, header string
		status               int
		body                 string
	}{
		{"GET", a.Path, "", http.StatusOK, content},
		{"HEAD", a.Path, "", http.StatusOK, ""},
		{"GET", a.Path, "Range: bytes=2-9", http.StatusPartialContent, content[2:10]},
		{"GET", a.Path, "Range: bytes=-4", http.StatusPartialContent, content[len(content)-4:]},
		{"GET", a.Path, "If-None-Match: " + got.Header.Get("ETag"), http.StatusNotModified, ""},
		{"GET", "", "", missing, none}, {"GET", "gitrepository/", "", missing, none}, {"GET", "gitrepository/default/repo/", "", missing, none},
		{"GET", ".status/gitrepository/default/repo.yaml", "", missing, none}, {"GET", ".store/", "", missing, none}, {"GET", "%2e%2e/x", "", missing, none},
		{"DELETE", a.Path, "", http.StatusMethodNotAllowed, none},
		{"GET", a.Path, "Host: rebound.example", http.StatusForbidden, none}, // as in a DNS rebinding attack
	} {
		if got, body := sendRequest(t, c.method, url+"/"+c.path, c.header); got.StatusCode != c.status || c.body != none && body != c.body {
			t.Errorf("%s %s %s: %s, %d bytes", c.method, c.path, c.header, got.Status, len(body))
		}
	}
	if _, err := (&artifact.Client{}).Open(t.Context(), artifact.Artifact{URL: url + "/" + a.Path, Digest: a.Digest}); err != nil {
		t.Error(err)
	}
}

// TestConnectionsAreLogged checks that errors of net/http are logged by the command, at its level.
func TestConnectionsAreLogged(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1)) // headgate tester sets it
	dir, ca := t.TempDir(), testenv.NewCA(t)
	cert, key := ca.Server("127.0.0.1")
	for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key, "docs.yaml": nil} {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	for _, args := range [][]string{
		{"serve", "-f", filepath.Join(dir, "docs.yaml"), "--store", filepath.Join(dir, "store")},
		{"tester", "--state", filepath.Join(dir, "tester")},
	} {
		for level, want := range map[string]string{"warn": `level=WARN msg=connection problem="TLS handshake error from `, "error": ""} {
			p := startCommand(t, append(args, "--addr", "127.0.0.1:0", "--tls-cert", filepath.Join(dir, "tls.crt"), "--tls-key", filepath.Join(dir, "tls.key"), "--log-level", level)...)
			conn, err := net.Dial("tcp", p.line(p.stdout, " at https://"))
			must(t, err)
			if tls.Client(conn, &tls.Config{MaxVersion: tls.VersionTLS10, InsecureSkipVerify: true}).Handshake() == nil {
				t.Error("TLS 1.0 is spoken")
			}
			conn.Close()
			if want != "" {
				p.line(p.stderr, want)
			}
			testenv.Equal(t, p.end(exitReady), "", "%s --log-level %s", args[0], level)
		}
	}
}

// TestLost checks that get -w and events -w report when the server is lost, and when it is back.
func TestLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	docs, store := filepath.Join(dir, "docs.yaml"), filepath.Join(dir, "store")
	const failing = "apiVersion: source.headgate.dev/v1\nkind: Bucket\nmetadata: {name: assets}\nspec: {interval: 1h, bucketName: assets, endpoint: \"127.0.0.1:1\", insecure: true}\n"
	must(t, os.WriteFile(docs, []byte(failing), 0o600))
	for _, command := range []string{"get", "events"} {
		var p *process
		t.Run(command, func(t *testing.T) {
			startServer(t, "serve", "-f", docs, "--store", store)
			p = startCommand(t, command, "-w", "git/nope", "bucket/assets", "--store", store)
			p.line(p.stdout, "") // the stream has started
			p.drain(&p.stdout)
		})
		p.t = t
		p.line(p.stderr, "the stream ended: unexpected EOF: trying again until it is back")
		t.Run(command+" again", func(t *testing.T) {
			startServer(t, "serve", "-f", docs, "--store", store)
			p.line(p.stderr, "headgate: the server is back")
		})
		p.end(exitReady)
	}
}
