package e2e

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fluxcd/pkg/http/fetch"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A serveProcess is a running headgate serve.
type serveProcess struct {
	t       *testing.T
	url     string
	store   string
	sources string // directory of the documents
	secrets string // directory of the Secrets
	more    []string
	cmd     *exec.Cmd
	log     *log
}

// newServeProcess prepares a server with its own directories.
func newServeProcess(t *testing.T, more ...string) *serveProcess {
	t.Helper()
	s := &serveProcess{t: t, store: filepath.Join(t.TempDir(), "store"), sources: t.TempDir(), secrets: t.TempDir(), more: more}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.end(syscall.SIGTERM)
		}
		if t.Failed() {
			t.Logf("headgate serve said:\n%s", s.log)
		}
	})
	return s
}

// start starts the server. After a restart it has the same address.
func (s *serveProcess) start() {
	s.t.Helper()
	addr := "127.0.0.1:0"
	if _, at, found := strings.Cut(s.url, "://"); found {
		addr = at
	}
	s.cmd = headgate(context.Background(), s.t, append([]string{"serve", "-f", s.sources, "--secrets", s.secrets, "--store", s.store, "--addr", addr}, s.more...)...)
	out, err := s.cmd.StdoutPipe()
	must(s.t, err)
	s.log = new(log)
	s.cmd.Stderr = s.log
	must(s.t, s.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatalf("headgate serve: %v\n%s", err, s.log)
	}
	url, found := strings.CutPrefix(strings.TrimSpace(line), "serving sources at ")
	if !found {
		s.t.Fatalf("headgate serve printed %q", line)
	}
	s.url = url
	go io.Copy(io.Discard, out)
}

// end ends the server with a signal. After SIGTERM it must exit with code 0.
func (s *serveProcess) end(signal syscall.Signal) {
	s.t.Helper()
	must(s.t, s.cmd.Process.Signal(signal))
	err := s.cmd.Wait()
	if signal == syscall.SIGTERM && err != nil {
		s.t.Errorf("headgate serve: %v\n%s", err, s.log)
	}
	s.cmd = nil
}

// document atomically writes a file with documents.
func (s *serveProcess) document(name string, documents ...any) {
	s.t.Helper()
	text := read(s.t, writeDocuments(s.t, documents))
	s.file(filepath.Join(s.sources, name), text)
}

// secret writes a Secret.
func (s *serveProcess) secret(name string, data stringMap) {
	s.t.Helper()
	dir := filepath.Join(s.secrets, name)
	must(s.t, os.MkdirAll(dir, 0o700))
	for key, text := range data {
		s.file(filepath.Join(dir, key), text)
	}
}

func (s *serveProcess) file(path, text string) {
	s.t.Helper()
	temp := write(s.t, filepath.Join(filepath.Dir(path), "."+filepath.Base(path)), text)
	must(s.t, os.Rename(temp, path))
}

// command runs a command against the server and returns its output.
func (s *serveProcess) command(code int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := headgate(ctx, s.t, append(args, "--store", s.store)...)
	var out, said log
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != code {
		s.t.Fatalf("headgate %s: %v, want exit code %d\n%s%s", strings.Join(args, " "), err, code, &out, &said)
	}
	return out.String(), said.String()
}

// A servedItem is an object as get prints it.
type servedItem struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Generation      int64
	}
	Status status
}

// waitUntil watches an object until holds returns true, and returns the object.
func (s *serveProcess) waitUntil(what, ref string, holds func(servedItem) bool) (item servedItem) {
	s.t.Helper()
	s.watch(what, []string{"get", "-w", "-o", "json", ref}, func(line []byte) bool {
		item = servedItem{}
		must(s.t, json.Unmarshal(line, &item))
		return holds(item)
	})
	return item
}

// watch runs a command until is returns true for a line of its output.
func (s *serveProcess) watch(what string, args []string, is func([]byte) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := headgate(ctx, s.t, append(args, "--store", s.store)...)
	out, err := cmd.StdoutPipe()
	must(s.t, err)
	said := new(log)
	cmd.Stderr = said
	must(s.t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	last := ""
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("%s: not seen, but %s\n%s", what, last, said)
		}
		if last = line; is([]byte(line)) {
			return
		}
	}
}

func isReady(i servedItem) bool { return strings.HasPrefix(i.Status.condition("Ready"), "True") }

// hourlyRepository returns a GitRepository that is checked once an hour.
func hourlyRepository(name, url string) any {
	return object("GitRepository", name, map[string]any{"url": url, "interval": "1h"})
}

// withWebhook returns an object whose webhook uses a key in a Secret.
func withWebhook(object any, secret string) any {
	object.(map[string]any)["metadata"].(map[string]any)["annotations"] = stringMap{"hook.headgate.dev/secret": secret}
	return object
}

// callHook posts an event as GitHub does, signed with key unless that is "". It returns the status
// code.
func callHook(t *testing.T, url, key, event, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Event", event)
	req.Header.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	if key != "" {
		mac := hmac.New(sha256.New, []byte(key))
		io.WriteString(mac, body)
		req.Header.Set("X-Hub-Signature-256", fmt.Sprintf("sha256=%x", mac.Sum(nil)))
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

const pushBody = `{"ref": "refs/heads/main", "repository": {"full_name": "team/app", "clone_url": "https://example.org/team/app.git"}}`

// TestServePush checks that a push and a webhook call lead to a new artifact although the interval
// is one hour, and that the client library of Flux's controllers can fetch it.
func TestServePush(t *testing.T) {
	t.Parallel()
	repo, _ := newSampleRepo(t)
	repo.Git("config", "http.receivepack", "true")
	web := serveGit(t, repo).plain
	clone := filepath.Join(t.TempDir(), "clone")
	git := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(run(t, "git", append([]string{"-c", "user.name=alice", "-c", "user.email=alice@example.org", "-C", clone}, args...)...))
	}
	run(t, "git", "clone", "-q", strings.Replace(web, "//", "//alice:s3cret@", 1)+"/basic/repo.git", clone)
	s := newServeProcess(t)
	s.secret("app-hook", stringMap{"token": "hook-key"})
	s.document("app.yaml", withWebhook(hourlyRepository("app", web+"/public/repo.git"), "app-hook"))
	s.start()
	first := s.waitUntil("the first artifact", "gitrepository/app", isReady)
	dir := t.TempDir()
	client := fetch.New(fetch.WithUntar())
	must(t, client.Fetch(s.url+"/"+first.Status.Artifact.Path, first.Status.Artifact.Digest, dir))
	for name, want := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"README.md": {"# sample\n", 0}, "deploy/app.yaml": {strings.Repeat("replicas: 3\n", 5000), 0}, "deploy/run": {"#!/bin/sh\n", 0o100}, "docs/naïve name": {"ü\n", 0},
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if text := read(t, filepath.Join(dir, name)); text != want.text || info.Mode().Perm()&0o100 != want.mode {
			t.Errorf("%s: %d bytes, mode %v", name, len(text), info.Mode())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "docs", "x.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("docs/x.tmp: %v", err)
	}
	if err := client.Fetch(s.url+"/"+first.Status.Artifact.Path, "sha256:"+strings.Repeat("0", 64), t.TempDir()); err == nil || !strings.Contains(err.Error(), "computed digest doesn't match") {
		t.Errorf("with another digest: %v", err)
	}
	if err := client.Fetch(s.url+"/gitrepository/default/app/other.tar.gz", first.Status.Artifact.Digest, t.TempDir()); !errors.Is(err, fetch.ErrFileNotFound) {
		t.Errorf("another file: %v", err)
	}

	write(t, filepath.Join(clone, "README.md"), "# pushed\n")
	git("commit", "-q", "-a", "-m", "change README.md")
	git("push", "-q", "origin", "HEAD:main")
	revision := "main@sha1:" + git("rev-parse", "HEAD")
	for key, want := range map[string]int{"": http.StatusUnauthorized, "another": http.StatusUnauthorized} {
		if got := callHook(t, s.url+"/hook/GitRepository/app", key, "push", pushBody); got != want {
			t.Errorf("key %q: status %d, want %d", key, got, want)
		}
	}
	if got := callHook(t, s.url+"/hook/GitRepository/app", "hook-key", "push", pushBody); got/100 != 2 {
		t.Fatalf("the webhook answers %d", got)
	}
	pushed := s.waitUntil("the artifact of the push", "gitrepository/app", func(i servedItem) bool { return i.Status.Artifact.Revision == revision })
	a := pushed.Status.Artifact
	dir = t.TempDir()
	must(t, client.Fetch(s.url+"/"+a.Path, a.Digest, dir))
	if read(t, filepath.Join(dir, "README.md")) != "# pushed\n" {
		t.Error("README.md is not that of the push")
	}
	s.watch("the event", []string{"events", "-w", "gitrepository/app"}, func(line []byte) bool {
		return strings.Contains(string(line), "NewArtifact") && strings.Contains(string(line), "stored artifact")
	})
	if status, _ := ask(t, "GET", s.url+"/"+first.Status.Artifact.Path, ""); status != http.StatusOK {
		t.Errorf("the artifact of before, a moment later: %d", status)
	}
}

// TestServeAccess checks that commands and consumers can use a server with TLS and tokens, and that
// an unknown token is refused.
func TestServeAccess(t *testing.T) {
	t.Parallel()
	repo, _ := newSampleRepo(t)
	dir, ca := t.TempDir(), testenv.NewCA(t)
	cert, key := ca.Server()
	file := func(name, text string) string { return write(t, filepath.Join(dir, name), text) }
	s := newServeProcess(t, "--tls-cert", file("tls.crt", string(cert)), "--tls-key", file("tls.key", string(key)), "--from", "https://git.example.org/app="+repo.Dir,
		"--tokens", file("tokens.yaml", "tokens: [{name: ops, token: operator-token-0123456789}]\n"))
	s.document("app.yaml", hourlyRepository("app", "https://git.example.org/app"))
	s.start()
	a := s.waitUntil("the first artifact", "gitrepository/app", isReady).Status.Artifact // through the socket
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}}
	flags := []string{"--server", s.url, "--ca-file", file("ca.crt", string(ca.PEM())), "--token-file"}
	for token, want := range map[string]int{"nobody's-token-0123456789": http.StatusUnauthorized, "operator-token-0123456789": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/"+a.Path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		must(t, err)
		resp.Body.Close()
		testenv.Equal(t, resp.StatusCode, want, "token %q: %s", token, resp.Status)
		code := map[int]int{http.StatusUnauthorized: 1}[want]
		if out, said := s.command(code, append([]string{"reconcile", "gitrepository/default/app"}, append(flags, file("token", token))...)...); strings.Contains(out+said, token) {
			t.Errorf("the token shows: %s%s", out, said)
		}
	}
}

// TestServeRegistry checks that a push notification of a registry leads to a new artifact
// immediately, and that a removed object disappears after the retention.
func TestServeRegistry(t *testing.T) {
	t.Parallel()
	s := newServeProcess(t, "--retention", "1s")
	s.secret("push", stringMap{"token": "Bearer registry-token"})
	s.start()
	addr := distribution{root: t.TempDir(), notify: s.url + "/hook/OCIRepository/app", token: "Bearer registry-token"}.serve(t)
	push(t, nil, writeFiles(t, publishedFiles), "oci://"+addr+"/team/app:latest", "--revision", "main@sha1:1")
	s.document("app.yaml", withWebhook(object("OCIRepository", "app", map[string]any{"url": "oci://" + addr + "/team/app", "interval": "1h", "insecure": true}), "push"))
	first := s.waitUntil("the first artifact", "ocirepository/app", isReady)
	pushed := push(t, nil, writeFiles(t, stringMap{"app.yaml": "replicas: 4\n"}), "oci://"+addr+"/team/app:latest", "--revision", "main@sha1:2")
	second := s.waitUntil("the artifact of the push", "ocirepository/app", func(i servedItem) bool { return strings.HasSuffix(i.Status.Artifact.Revision, pushed.Digest) })
	if second.Status.Artifact.Digest == first.Status.Artifact.Digest {
		t.Error("the artifact is that of before")
	}
	removed := false
	s.watch("the removal", []string{"get", "-w"}, func(line []byte) bool {
		if cells := strings.Fields(string(line)); removed && cells[0] == "OCIRepository/default/app" {
			return cells[1] == "-" // it is removed
		}
		if !removed {
			must(t, os.Remove(filepath.Join(s.sources, "app.yaml")))
			removed = true
		}
		return false
	})
}

// TestServeUnit verifies the systemd unit with systemd-analyze. Only the path of the command is
// replaced.
func TestServeUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd here")
	}
	text := strings.ReplaceAll(read(t, "../docs/deploy/headgate-serve.service"), "/usr/local/bin/headgate", command)
	out := run(t, "systemd-analyze", "verify", "--man=no", write(t, filepath.Join(t.TempDir(), "headgate-serve.service"), text))
	if strings.Contains(out, "headgate-serve.service:") {
		t.Error(out)
	}
}

// TestServePackage checks that the sysusers and tmpfiles configurations of the packages create the
// user, and directories that only it can read.
func TestServePackage(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	for _, kind := range []string{"sysusers", "tmpfiles"} {
		if _, err := exec.LookPath("systemd-" + kind); err != nil {
			t.Skip("there is no systemd here")
		}
		dir := filepath.Join(root, "usr/lib", kind+".d")
		must(t, os.MkdirAll(dir, 0o755))
		write(t, filepath.Join(dir, "headgate.conf"), read(t, "../docs/deploy/package/"+kind+".conf"))
	}
	run(t, "systemd-sysusers", "--root="+root, "headgate.conf")
	run(t, "systemd-tmpfiles", "--root="+root, "--create", "headgate.conf")
	if users := read(t, filepath.Join(root, "etc/passwd")); !strings.HasPrefix(users, "headgate:") {
		t.Errorf("users are\n%s", users)
	}
	for _, dir := range []string{"sources", "secrets"} {
		info, err := os.Stat(filepath.Join(root, "etc/headgate", dir))
		must(t, err)
		if info.Mode().Perm() != 0o750 || info.Sys().(*syscall.Stat_t).Gid == 0 {
			t.Errorf("%s: %v, of group %d", dir, info.Mode(), info.Sys().(*syscall.Stat_t).Gid)
		}
	}
}
