package e2e

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A log collects what a process says.
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

// start runs a server until the test ends. It leads a process group, so that
// its children end with it.
func start(t *testing.T, cmd *exec.Cmd) *log {
	t.Helper()
	out := new(log)
	cmd.Stderr = out
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	check(t, cmd.Start())
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		cmd.Wait()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whoever of the group is left
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), out)
		}
	})
	return out
}

// listen returns a listener on loopback that a server is going to inherit: no
// client can come too early.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func file(t *testing.T, l interface{ File() (*os.File, error) }) *os.File {
	t.Helper()
	f, err := l.File()
	check(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// nextPort is where freeAddr goes on: below the ports that the system gives to
// outgoing connections and to listeners of port 0, so none of those takes a
// port before the server for which it was chosen opens it.
var nextPort atomic.Int32

// freeAddr returns an address for a server that can only open its port itself.
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

// await returns once something listens at addr.
func await(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("nothing listens at %s", addr)
		}
	}
}

// tool returns the path of a program, also of those for administrators and of
// those that .ci/servers builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	if path := built(t)[name]; path != "" {
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

// built returns the paths of the programs that .ci/servers builds, by name.
func built(t *testing.T) map[string]string {
	t.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		check(t, err)
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

// run runs a program to its end and returns what it printed.
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
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	return string(b)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
