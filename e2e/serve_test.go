package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A servedStore is a running headgate serve.
type servedStore struct {
	t       *testing.T
	url     string
	store   string
	sources string // directory of its documents
	secrets string // directory of its Secrets
	more    []string
	cmd     *exec.Cmd
	log     *log
}

// newServedStore prepares a server, with directories of its own.
func newServedStore(t *testing.T, more ...string) *servedStore {
	t.Helper()
	s := &servedStore{t: t, store: filepath.Join(t.TempDir(), "store"), sources: t.TempDir(), secrets: t.TempDir(), more: more}
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

// start starts it, at the address that it had if it was started before.
func (s *servedStore) start() {
	s.t.Helper()
	addr := "127.0.0.1:0"
	if _, at, found := strings.Cut(s.url, "://"); found {
		addr = at
	}
	s.cmd = headgate(context.Background(), s.t, append([]string{"serve", "-f", s.sources, "--secrets", s.secrets, "--store", s.store, "--addr", addr}, s.more...)...)
	out, err := s.cmd.StdoutPipe()
	check(s.t, err)
	s.log = new(log)
	s.cmd.Stderr = s.log
	check(s.t, s.cmd.Start())
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

// end ends it with a signal; SIGTERM has to end it well.
func (s *servedStore) end(signal syscall.Signal) {
	s.t.Helper()
	check(s.t, s.cmd.Process.Signal(signal))
	err := s.cmd.Wait()
	if signal == syscall.SIGTERM && err != nil {
		s.t.Errorf("headgate serve: %v\n%s", err, s.log)
	}
	s.cmd = nil
}

// document writes a file of documents, in one step.
func (s *servedStore) document(name string, documents ...any) {
	s.t.Helper()
	text := read(s.t, writeDocuments(s.t, documents))
	s.file(filepath.Join(s.sources, name), text)
}

// secret writes a Secret.
func (s *servedStore) secret(name string, data keys) {
	s.t.Helper()
	dir := filepath.Join(s.secrets, name)
	check(s.t, os.MkdirAll(dir, 0o700))
	for key, text := range data {
		s.file(filepath.Join(dir, key), text)
	}
}

func (s *servedStore) file(path, text string) {
	s.t.Helper()
	temp := write(s.t, filepath.Join(filepath.Dir(path), "."+filepath.Base(path)), text)
	check(s.t, os.Rename(temp, path))
}

// command runs a command that asks the server, and returns what it prints.
func (s *servedStore) command(code int, args ...string) (stdout, stderr string) {
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

// A keptItem is an object as get prints it.
type keptItem struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Generation      int64
	}
	Status status
}

// until watches an object until a condition holds, and returns it then.
func (s *servedStore) until(what, ref string, holds func(keptItem) bool) (item keptItem) {
	s.t.Helper()
	s.watch(what, []string{"get", "-w", "-o", "json", ref}, func(line []byte) bool {
		item = keptItem{}
		check(s.t, json.Unmarshal(line, &item))
		return holds(item)
	})
	return item
}

// event watches events until one has a reason, and returns its message.
func (s *servedStore) event(ref, reason string) (message string) {
	s.t.Helper()
	s.watch("event "+reason, []string{"events", "-w", "-o", "json", ref}, func(line []byte) bool {
		var e struct{ Reason, Message string }
		check(s.t, json.Unmarshal(line, &e))
		message = e.Message
		return e.Reason == reason
	})
	return message
}

// watch reads the lines that a command prints until one is it.
func (s *servedStore) watch(what string, args []string, is func([]byte) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := headgate(ctx, s.t, append(args, "--store", s.store)...)
	out, err := cmd.StdoutPipe()
	check(s.t, err)
	said := new(log)
	cmd.Stderr = said
	check(s.t, cmd.Start())
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

func ready(i keptItem) bool { return strings.HasPrefix(i.Status.condition("Ready"), "True") }

// hourly returns a GitRepository that is checked once an hour.
func hourly(name, url string, more map[string]any) map[string]any {
	spec := map[string]any{"url": url, "interval": "1h", "timeout": "20s", "ref": keys{"branch": "main"}}
	annotations := keys{}
	for key, value := range more {
		if text, is := value.(string); is && strings.Contains(key, "/") {
			annotations[key] = text
			continue
		}
		spec[key] = value
	}
	d := document("source.headgate.dev/v1", "GitRepository", name, "spec", spec)
	d["metadata"] = map[string]any{"name": name, "namespace": "default", "annotations": annotations}
	return d
}
