package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// command is the path of headgate, built from this checkout.
var command string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if command = os.Getenv(insideEnv); command != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "headgate-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		command = filepath.Join(dir, "headgate")
		build := exec.Command("go", "build", "-C", "..", "-o", command, "./cmd/headgate")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build headgate:", err)
			return 1
		}
		return m.Run()
	}())
}

// keys are the content of a Secret.
type keys map[string]string

// A gitSource is a GitRepository and the Secrets it names.
type gitSource struct {
	url    string
	ref    keys
	secret keys // nil: no secretRef
	absent bool // the Secrets do not exist
	proxy  keys // nil: no proxySecretRef
	trust  keys // the Secret of verify; nil: no verify
	mode   string
	lfs    bool
}

// manifest returns the documents of a source.
func (s gitSource) manifest(t *testing.T) string {
	t.Helper()
	spec := map[string]any{"interval": "1m", "timeout": "20s", "url": s.url, "ref": s.ref}
	if s.ref == nil {
		spec["ref"] = keys{"branch": "main"}
	}
	if s.lfs {
		spec["lfs"] = true
	}
	docs := []any{}
	if s.trust != nil {
		spec["verify"] = map[string]any{"mode": s.mode, "secretRef": keys{"name": "trust"}}
		docs = append(docs, document("v1", "Secret", "trust", "stringData", s.trust))
	}
	for field, data := range map[string]keys{"secretRef": s.secret, "proxySecretRef": s.proxy} {
		if data != nil {
			name := strings.ToLower(field)
			spec[field] = keys{"name": name}
			if !s.absent {
				docs = append(docs, document("v1", "Secret", name, "stringData", data))
			}
		}
	}
	if s.absent && s.proxy == nil {
		spec["secretRef"] = keys{"name": "secretref"}
	}
	return writeDocuments(t, append(docs, document("source.headgate.dev/v1", "GitRepository", "app", "spec", spec)))
}

// writeDocuments writes a file of documents and returns its path.
func writeDocuments(t *testing.T, docs []any) string {
	t.Helper()
	var out bytes.Buffer
	for _, d := range docs {
		b, err := json.Marshal(d)
		check(t, err)
		fmt.Fprintf(&out, "---\n%s\n", b)
	}
	return write(t, filepath.Join(t.TempDir(), "manifest.yaml"), out.String())
}

func document(version, kind, name, field string, content any) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": keys{"name": name, "namespace": "default"}, field: content}
}

// An outcome is how a run of the command ended.
type outcome struct {
	code   int
	stderr string
	status status
}

type status struct {
	Conditions []struct{ Type, Status, Reason, Message string }
	Artifact   *struct {
		Path, Digest, Revision string
		Size                   int64
	}
}

// condition returns "STATUS REASON: MESSAGE" of a condition, "" when there is none.
func (s status) condition(kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Status + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// headgate prepares a run of the command, in an environment that holds nothing of the machine's.
func headgate(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
	return cmd
}

// fetchGit runs headgate fetch on a source.
func fetchGit(t *testing.T, store string, s gitSource, more ...string) outcome {
	t.Helper()
	return fetchFile(t, store, s.manifest(t), more...)
}

// fetchFile runs headgate fetch on a file that declares one source.
func fetchFile(t *testing.T, store, manifest string, more ...string) outcome {
	t.Helper()
	code, stderr, items := fetchItems(t, store, manifest, more...)
	if len(items) != 1 {
		t.Fatalf("headgate printed %d objects\n%s", len(items), stderr)
	}
	return outcome{code, stderr, items[0].Status}
}

// An item is an object as fetch prints it.
type item struct {
	Kind     string
	Metadata struct{ Name string }
	Status   status
}

// fetchItems runs headgate fetch on a file.
func fetchItems(t *testing.T, store, manifest string, more ...string) (code int, stderr string, items []item) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := headgate(ctx, t, append([]string{"fetch", "-f", manifest, "--store", store, "-o", "json"}, more...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("headgate: %v\n%s", err, errs.Bytes())
	}
	var list struct{ Items []item }
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatalf("headgate printed %q, %v\n%s", out.Bytes(), err, errs.Bytes())
	}
	return cmd.ProcessState.ExitCode(), errs.String(), list.Items
}

// archives returns the paths of the archives in a store; what the store notes beside them is, or is below, what begins with a dot.
func archives(t *testing.T, store string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".tar.gz") && !strings.HasPrefix(d.Name(), ".") {
			paths = append(paths, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	check(t, err)
	return paths
}
