package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// mountVolume mounts a tmpfs of size bytes and returns its directory.
func mountVolume(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)))
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	return dir
}

// serveManyBranches serves a repository and returns its URL. Its branches b0, b1, …
// have different content of size bytes each.
func serveManyBranches(t *testing.T, n, size int) string {
	t.Helper()
	repo := testenv.NewRepo(t)
	noise := rand.NewChaCha8([32]byte{1})
	for i := range n {
		data := make([]byte, size)
		noise.Read(data)
		repo.Commit(testenv.Commit{Branch: fmt.Sprintf("b%d", i), Parents: []string{}, Files: fstest.MapFS{"noise": {Data: data}}})
	}
	return testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo()
}

// branchSource returns the document of a GitRepository for branch i.
func branchSource(url string, i int) map[string]any {
	return document("source.headgate.dev/v1", "GitRepository", fmt.Sprintf("b%d", i), "spec",
		map[string]any{"interval": "1h", "url": url, "ref": stringMap{"branch": fmt.Sprintf("b%d", i)}})
}

// TestFetchOnSmallVolume checks that the cache frees space for artifacts on a
// full volume.
func TestFetchOnSmallVolume(t *testing.T) {
	t.Parallel()
	const branches, size = 20, 600 << 10
	url := serveManyBranches(t, branches+1, size)
	store := filepath.Join(mountVolume(t, 16<<20), "store")
	for i := range branches { // the artifacts take 12 MB, with the offered cache entries 36 MB
		code, stderr, items := fetchItems(t, store, writeDocuments(t, []any{branchSource(url, i)}), "--cache-size", "1Gi")
		if code != 0 || items[0].Status.Artifact == nil {
			t.Fatalf("fetch %d of %d: exit code %d\n%s", i+1, branches, code, stderr)
		}
	}
	cached := func() (size int64) {
		filepath.WalkDir(filepath.Join(store, ".cache", "entry"), func(_ string, d os.DirEntry, err error) error {
			if info, err1 := d.Info(); err == nil && err1 == nil && !d.IsDir() {
				size += info.Size()
			}
			return nil
		})
		return size
	}
	if cached() == 0 {
		t.Error("nothing is left of the cache, though there is room for some of it")
	}
	out := runGC(t, store, "--dry-run")
	if before := cached(); !strings.Contains(out, "would empty the cache "+store+"/.cache: ") || before == 0 {
		t.Errorf("%s\n%d bytes are left", out, before)
	}
	out = runGC(t, store)
	if !strings.Contains(out, "emptied the cache "+store+"/.cache: ") || cached() != 0 || len(archives(t, store)) != branches {
		t.Errorf("%s\n%d bytes and %d artifacts are left", out, cached(), len(archives(t, store)))
	}

	// A file outside the store takes the remaining space.
	stuffed := fillVolume(t, filepath.Dir(store))
	code, stderr, _ := fetchItems(t, store, writeDocuments(t, []any{branchSource(url, branches)}))
	if code != 1 || !strings.Contains(stderr, "no space left on device") ||
		!strings.Contains(stderr, "the volume is full: the store "+store+" has 11.8 MiB of artifacts, its cache "+store+"/.cache 0.0 MiB: make room on it") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	must(t, os.Remove(stuffed))
	if code, stderr, items := fetchItems(t, store, writeDocuments(t, []any{branchSource(url, branches)})); code != 0 || items[0].Status.Artifact == nil {
		t.Errorf("with room: exit code %d\n%s", code, stderr)
	}
	// The default size of the cache is a tenth of the volume.
	if n := cached(); n == 0 || n > 16<<20/10 {
		t.Errorf("the cache has %d bytes", n)
	}
}

// runGC runs headgate artifact gc --cache and returns its output.
func runGC(t *testing.T, store string, more ...string) string {
	t.Helper()
	out, err := headgate(t.Context(), t, append([]string{"artifact", "gc", "--cache", "--store", store}, more...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// fillVolume fills the volume of dir with a file and returns its path.
func fillVolume(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "stuffing"))
	must(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	return f.Name()
}

// TestServeOnSmallVolume checks that the server keeps running on a volume that is
// too small for its cache, reports that it cannot store artifacts, and stores
// them when there is space again.
func TestServeOnSmallVolume(t *testing.T) {
	t.Parallel()
	const branches, size = 20, 600 << 10
	url := serveManyBranches(t, branches+1, size)
	s := newServeProcess(t, "--cache-size", "1Gi", "--max-retry-delay", "1s")
	s.store = filepath.Join(mountVolume(t, 16<<20), "store")
	t.Cleanup(func() { // before the volume is unmounted
		if s.cmd != nil {
			s.end(syscall.SIGTERM)
		}
	})
	for i := range branches {
		must(t, os.Rename(writeDocuments(t, []any{branchSource(url, i)}), filepath.Join(s.sources, fmt.Sprintf("b%d.yaml", i))))
	}
	s.start()
	waitUntil(t, "all are stored", func() bool { return len(archives(t, s.store)) == branches })
	if code, text := readiness(t, s.url); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	runGC(t, s.store)
	stuffed := fillVolume(t, filepath.Dir(s.store))
	code, text := readiness(t, s.url)
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "store: ") || !strings.Contains(text, "the volume is full: the store "+s.store+" has 11.8 MiB") {
		t.Errorf("%d %s", code, text)
	}
	must(t, os.Rename(writeDocuments(t, []any{branchSource(url, branches)}), filepath.Join(s.sources, "more.yaml")))
	waitUntil(t, "the source without room fails", func() bool { return strings.Contains(s.log.String(), "GitRepository/default/b20") })
	must(t, os.Remove(stuffed))
	waitUntil(t, "it is stored once there is room", func() bool { return len(archives(t, s.store)) == branches+1 })
	if code, text := readiness(t, s.url); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
}

// readiness returns the response of a server's readiness endpoint.
func readiness(t *testing.T, url string) (code int, text string) {
	t.Helper()
	resp, err := http.Get(url + "/readyz")
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b)
}
