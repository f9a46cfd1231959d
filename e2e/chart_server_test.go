package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// serveFiles lets nginx serve a directory: below /public to all, compressed
// when asked, below /basic to alice with s3cret.
func serveFiles(t *testing.T, dir string) *gitServer {
	t.Helper()
	return serveNginx(t, dir, `
location /public/ { alias @ROOT@/; gzip on; gzip_types *; gzip_min_length 1; }
location /basic/  { auth_basic charts; auth_basic_user_file @DIR@/htpasswd; alias @ROOT@/; }
`)
}

// A museum is a chartmuseum, which keeps charts and writes their index.
type museum struct{ url, user, password string }

func serveMuseum(t *testing.T, user, password string, more ...string) museum {
	t.Helper()
	addr, port := freeAddr(t)
	cmd := exec.Command(tool(t, "chartmuseum"), append([]string{"--listen-host", "127.0.0.1", "--port", port,
		"--storage", "local", "--storage-local-rootdir", t.TempDir(), "--basic-auth-user", user, "--basic-auth-pass", password}, more...)...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	start(t, cmd)
	await(t, addr)
	return museum{"http://" + addr, user, password}
}

// put uploads the archive of a chart.
func (m museum) put(t *testing.T, archive string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+"/api/charts", bytes.NewReader([]byte(read(t, archive))))
	check(t, err)
	req.SetBasicAuth(m.user, m.password)
	res, err := http.DefaultClient.Do(req)
	check(t, err)
	defer res.Body.Close()
	if said, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusCreated {
		t.Fatalf("chartmuseum: %s: %s", res.Status, said)
	}
}

// packaged packages versions of charts, by the releases in turn, writes the
// index of them and returns the directory.
func packaged(t *testing.T, h helm, all ...keys) string {
	t.Helper()
	dir := t.TempDir()
	for i, chart := range all {
		archive := h.pack(t, packagers[i%len(packagers)], written(t, chart))
		check(t, os.Rename(archive, filepath.Join(dir, filepath.Base(archive))))
	}
	h.run(t, "helm3", "repo", "index", dir)
	if text := read(t, filepath.Join(dir, "index.yaml")); strings.Count(text, "digest:") != len(all) {
		t.Fatalf("helm repo index wrote\n%s", text)
	}
	return dir
}
