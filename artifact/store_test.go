package artifact_test

import (
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

var must = testenv.Must

const object = "gitrepository/default/app"

// A clock is a time that tests advance manually.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func openStore(t *testing.T, c artifact.StoreConfig) (*artifact.Store, string) {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := artifact.OpenStore(c)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s, c.Dir
}

func text(content string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}
}

func put(t *testing.T, s *artifact.Store, dir, file, content string) artifact.Artifact {
	t.Helper()
	a, err := s.Put(t.Context(), dir, file, text(content))
	must(t, err)
	return a
}

// files lists the files in the directory of a store, without records, locks and empty directories.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			list = append(list, name)
		}
		return err
	})
	must(t, err)
	return list
}

func TestStoreRefusesNames(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	names := map[string]string{
		"empty": "", "dot": ".", "dots": "..", "hidden": ".tmp", "slash": "a/b", "backslash": `a\b`, "colon": "a:b", "stream": "a::$DATA",
		"control": "a\nb", "nul": "a\x00b", "escape": "a\x1b[31m", "not utf-8": "a\xff", "device": "con", "device with extension": "NUL.tar.gz",
		"numbered device": "Com1.x", "trailing dot": "a.", "trailing space": "a ", "wildcard": "a*", "long": strings.Repeat("a", 255), "bidi": "a\u202eb",
	}
	for defect, name := range names {
		t.Run(defect, func(t *testing.T) {
			for _, dir := range []string{name + "/ns/name", "kind/" + name + "/name", "kind/ns/" + name} {
				if _, err := s.Put(t.Context(), dir, "f", text("x")); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("Put in %q: %v", dir, err)
				}
				if _, err := s.Lock(t.Context(), dir); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("Lock of %q: %v", dir, err)
				}
				if err := errors.Join(s.Prune(dir), nil); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("Prune of %q: %v", dir, err)
				}
				if err := s.Remove(dir); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("Remove of %q: %v", dir, err)
				}
			}
			if _, err := s.Put(t.Context(), object, name, text("x")); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("Put of file %q: %v", name, err)
			}
			if _, err := s.Point(object, name, artifact.Artifact{}); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("Point of %q: %v", name, err)
			}
		})
	}
	for _, dir := range []string{"", "kind", "kind/ns", "kind/ns/name/more", "/kind/ns/name", "../../x"} {
		if _, err := s.Put(t.Context(), dir, "f", text("x")); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("Put in %q: %v", dir, err)
		}
	}
	testenv.Equal(t, files(t, dir), nil, "the store holds")
}

// Artifacts that the store cannot contain, such as those of another implementation, do not exist in
// it.
func TestForeignArtifactsDoNotExist(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	if err := os.Symlink(filepath.Base(a.Path), filepath.Join(dir, filepath.Dir(a.Path), "link")); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	sum := strings.TrimPrefix(a.Digest, "sha256:")
	foreign := map[string]artifact.Artifact{
		"zero":              {},
		"no digest":         {Path: a.Path},
		"other digest":      {Path: a.Path, Digest: "sha256:" + strings.Repeat("0", 64)},
		"reference's path":  {Path: "gitrepository/default/app/0123456789abcdef0123456789abcdef01234567.tar.gz", Digest: a.Digest},
		"colon":             {Path: "ocirepository/default/app/sha256:" + sum + ".tar.gz", Digest: a.Digest},
		"traversal":         {Path: "a/../" + a.Path, Digest: a.Digest},
		"record":            {Path: object + "/" + sum + "/.a.tar.gz", Digest: a.Digest},
		"link":              {Path: object + "/" + sum + "/link", Digest: a.Digest},
		"absolute":          {Path: "/" + a.Path, Digest: a.Digest},
		"private":           {Path: ".store/object/" + sum + "/x", Digest: a.Digest},
		"upper-case digest": {Path: strings.ToUpper(a.Path), Digest: strings.ToUpper(a.Digest)},
	}
	for name, a := range foreign {
		t.Run(name, func(t *testing.T) {
			if err := s.Check(a); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Check: %v", err)
			}
			if _, err := s.Open(a); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Open: %v", err)
			}
		})
	}
	a.Digest = sum // the legacy form of sha256
	if err := s.Check(a); err != nil {
		t.Error(err)
	}
}

func TestBaseURL(t *testing.T) {
	dir := t.TempDir()
	good := map[string]string{
		"example.org":             "http://example.org/p",
		"example.org:9090":        "http://example.org:9090/p",
		"http://example.org/":     "http://example.org/p",
		"https://example.org/a/b": "https://example.org/a/b/p",
	}
	for base, want := range good {
		s, _ := openStore(t, artifact.StoreConfig{Dir: dir, BaseURL: base})
		testenv.Equal(t, s.URL("p"), want, "%s: URL", base)
	}
	for _, base := range []string{"ftp://example.org", "http://", "http://u:secret@example.org", "http://example.org/?token=secret", "http://ex ample", "file:///tmp"} {
		_, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir, BaseURL: base})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", base, err)
		}
	}
	s, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	u, err := url.Parse(s.URL("a b/c%d"))
	if err != nil || u.Scheme != "file" || u.Host != "" || filepath.Clean(filepath.FromSlash(strings.TrimPrefix(u.Path, volumeSlash))) != filepath.Join(dir, "a b", "c%d") {
		t.Errorf("file URL %v, %v", u, err)
	}
}

var volumeSlash = map[string]string{"windows": "/"}[runtime.GOOS]

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{"", file} {
		if second(artifact.OpenStore(artifact.StoreConfig{Dir: dir})) == nil || second(artifact.OpenCache(artifact.CacheConfig{Dir: dir})) == nil {
			t.Errorf("%q was opened", dir)
		}
	}
}
