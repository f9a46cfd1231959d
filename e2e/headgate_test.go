package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

// command is the path of headgate, built from this checkout.
var command string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if command = os.Getenv(namespaceEnv); command != "" {
			return m.Run()
		}
		defer stopChromium()
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

// stringMap are the data of a Secret.
type stringMap map[string]string

// A gitSource is a GitRepository and the Secrets it names.
type gitSource struct {
	url    string
	ref    stringMap // nil: branch main
	secret stringMap // nil: no secretRef
	proxy  stringMap // nil: no proxySecretRef
	trust  stringMap // the Secret of verify; nil: no verify
	mode   string
	lfs    bool
}

func (s gitSource) manifest(t *testing.T) string {
	t.Helper()
	spec := map[string]any{"url": s.url}
	if s.ref != nil {
		spec["ref"] = s.ref
	}
	if s.lfs {
		spec["lfs"] = true
	}
	if s.trust != nil {
		spec["verify"] = map[string]any{"mode": s.mode}
	}
	return manifest(t, "GitRepository", spec, map[string]stringMap{"secretRef": s.secret, "proxySecretRef": s.proxy, "verify.secretRef": s.trust})
}

// manifest writes a document of a source and its Secrets to a file and returns its path. The
// Secrets are keyed by the field that refers to them, for example verify.secretRef.
func manifest(t *testing.T, kind string, spec map[string]any, secrets map[string]stringMap) string {
	t.Helper()
	spec = maps.Clone(spec)
	docs := []any{}
	for field, data := range secrets {
		if data == nil {
			continue
		}
		name := strings.ReplaceAll(strings.ToLower(field), ".", "-")
		docs = append(docs, secret(name, data))
		in := spec
		if outer, inner, nested := strings.Cut(field, "."); nested {
			in, field = maps.Clone(spec[outer].(map[string]any)), inner
			spec[outer] = in
		}
		in[field] = stringMap{"name": name}
	}
	return writeDocuments(t, append(docs, object(kind, "app", spec)))
}

// writeDocuments writes documents to a file and returns its path.
func writeDocuments(t *testing.T, docs []any) string {
	t.Helper()
	var out bytes.Buffer
	for _, d := range docs {
		b, err := json.Marshal(d)
		must(t, err)
		fmt.Fprintf(&out, "---\n%s\n", b)
	}
	return write(t, filepath.Join(t.TempDir(), "manifest.yaml"), out.String())
}

func document(version, kind, name, field string, content any) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "namespace": "default"}, field: content}
}

// An outcome is the result of a command on one object.
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

// condition returns "STATUS REASON: MESSAGE" of a condition, or "" if it is absent.
func (s status) condition(kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Status + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// headgate returns a command that runs headgate with a minimal environment and its own directories.
func headgate(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
	return cmd
}

// A testSource is a source with the Secrets that it needs.
type testSource interface {
	// manifest returns the path of the documents.
	manifest(t *testing.T) string
}

// fetchSource runs headgate fetch on a source.
func fetchSource(t *testing.T, store string, s testSource, more ...string) outcome {
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

// archives returns the paths of the archives in a store.
func archives(t *testing.T, store string) (paths []string) {
	t.Helper()
	for _, path := range storedFiles(t, store) {
		if strings.HasSuffix(path, ".tar.gz") {
			paths = append(paths, filepath.Join(store, path))
		}
	}
	return paths
}

// storedFiles returns all files of a store except hidden files and those in hidden directories.
func storedFiles(t *testing.T, store string) (paths []string) {
	t.Helper()
	must(t, fs.WalkDir(os.DirFS(store), ".", func(path string, d fs.DirEntry, err error) error {
		switch hidden := path != "." && strings.HasPrefix(d.Name(), "."); {
		case errors.Is(err, fs.ErrNotExist): // an empty store, or a file that was just removed
			return nil
		case err != nil:
			return err
		case hidden && d.IsDir():
			return fs.SkipDir
		case !hidden && d.Type().IsRegular():
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}

// An attempt is a fetch of a source and its expected result.
type attempt struct {
	name   string
	source testSource
	failed string // regular expression of FetchFailed; "" if the fetch succeeds
}

// run fetches the source. If it must succeed, the artifact must have the tests' files.
func (a attempt) run(t *testing.T) outcome {
	t.Helper()
	got, store := a.fetch(t)
	if a.failed == "" {
		wantFiles(t, tree(t, store), files)
	}
	return got
}

// fetch fetches the source, checks that the output contains no credentials, and checks the result.
func (a attempt) fetch(t *testing.T) (got outcome, store string) {
	t.Helper()
	store = t.TempDir()
	got = fetchSource(t, store, a.source)
	if text := got.output(); strings.Contains(text, "canary") {
		t.Errorf("a credential is shown: %s", text)
	}
	if a.failed == "" {
		if got.code != 0 || got.status.Artifact == nil {
			t.Fatalf("exit code %d, %+v\n%s", got.code, got.status, got.stderr)
		}
		return got, store
	}
	failed := got.status.condition("FetchFailed")
	if ready := got.status.condition("Ready"); strings.TrimPrefix(ready, "False") != strings.TrimPrefix(failed, "True") {
		t.Errorf("Ready is %q, FetchFailed %q", ready, failed)
	}
	if got.code != 1 || !regexp.MustCompile(a.failed).MatchString(failed) {
		t.Errorf("exit code %d, FetchFailed %q, want %q", got.code, failed, a.failed)
	}
	if found := archives(t, store); len(found) > 0 {
		t.Errorf("stored %v", found)
	}
	return got, store
}

// output returns the error output and the status.
func (o outcome) output() string { return fmt.Sprintf("%s %+v", o.stderr, o.status) }

// A log collects the output of a process. It is safe for concurrent use.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// start starts a server, which runs until the test ends. It leads a process group, so that its
// children are stopped too.
func start(t *testing.T, cmd *exec.Cmd) *log {
	t.Helper()
	out := new(log)
	cmd.Stderr = out
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	must(t, cmd.Start())
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		cmd.Wait()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the rest of the group
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), out)
		}
	})
	return out
}

// listen returns a listener on loopback for a server to inherit. Clients can connect before the
// server has started.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func file(t *testing.T, l interface{ File() (*os.File, error) }) *os.File {
	t.Helper()
	f, err := l.File()
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// nextPort is the counter of freeAddr. Its range is below the ephemeral ports of the system, so no
// outgoing connection and no listener on port 0 takes a chosen port before its server opens it.
var nextPort atomic.Int32

// freeAddr returns an address for a server that must open its port itself.
func freeAddr(t *testing.T) (addr, port string) {
	t.Helper()
	for range 10000 {
		n := 20000 + (int32(os.Getpid())*100+nextPort.Add(1))%10000
		port = strconv.Itoa(int(n))
		addr = net.JoinHostPort("127.0.0.1", port)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr, port
		}
	}
	t.Fatal("no port from 20000 to 29999 is free")
	return "", ""
}

// await waits until a server listens at addr.
func await(t *testing.T, addr string) {
	t.Helper()
	waitUntil(t, "a server at "+addr, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// tool returns the path of a program. It also searches the directories of administrator programs
// and of the programs that .ci/servers builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	if path := serverTools(t)[name]; path != "" {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: run make e2e", err)
		}
		return path
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	t.Fatalf("%s is not installed: run make e2e", name)
	return ""
}

// serverTools returns the paths of the programs that .ci/servers builds, by name.
func serverTools(t *testing.T) map[string]string {
	t.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		must(t, err)
		cache = filepath.Join(home, ".cache")
	}
	paths := map[string]string{}
	for line := range strings.Lines(read(t, filepath.Join("..", ".ci", "versions"))) {
		name, module, ok := strings.Cut(strings.ToLower(strings.TrimSpace(line)), "=")
		name = strings.ReplaceAll(name, "_", "-")
		path, version, pinned := strings.Cut(module, "@")
		switch {
		case !ok || !pinned:
		case path == name: // an npm package
			paths[name] = filepath.Join(cache, "headgate", "e2e", module, "node_modules", ".bin", name+"-blob")
		default:
			paths[name] = filepath.Join(cache, "headgate", "e2e", "bin", name+"@"+version)
		}
	}
	return paths
}

// run runs a program, which must succeed, and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), tool(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

var must = testenv.Must

// namespaceEnv is the variable with the path of the command. It is set for tests that run in their own
// network namespace.
const namespaceEnv = "HEADGATE_E2E_COMMAND"

// inNamespace reports whether the test runs in its own network namespace, where servers that listen on
// all interfaces are unreachable for others. If not, it runs the test again in such a namespace and
// fails if that run fails.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		return true
	}
	args := []string{"-n", "sh", "-c", `"$0" link set lo up && exec "$@"`, tool(t, "ip"), os.Args[0], "-test.run=^" + t.Name() + "$", "-test.v", "-test.count=1"}
	cmd := exec.CommandContext(t.Context(), tool(t, "unshare"), args...)
	cmd.Env = append(os.Environ(), namespaceEnv+"="+command)
	out, err := cmd.CombinedOutput()
	t.Logf("in a network of its own:\n%s", out)
	must(t, err)
	return false
}
