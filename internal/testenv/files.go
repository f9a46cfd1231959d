package testenv

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"sync"
	"testing"
	"testing/fstest"
)

// URL parses text, which must be a valid URL.
func URL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	Must(t, err)
	return u
}

// Files makes a tree from path and content pairs.
func Files(pairs ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		tree[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1]), Mode: 0o644}
	}
	return tree
}

// Contents returns the contents of the files of a tree by name.
func Contents(t testing.TB, tree fs.FS) map[string]string {
	t.Helper()
	found := map[string]string{}
	Must(t, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() != int64(len(content)) {
			t.Errorf("%s: size %d, has %d bytes", name, info.Size(), len(content))
		}
		found[name] = string(content)
		return err
	}))
	return found
}

// TempFiles creates temporary files and tracks whether they are closed.
type TempFiles struct {
	t     testing.TB
	dir   string
	mu    sync.Mutex
	files []*os.File
}

// NewTempFiles returns a [TempFiles] that creates files in a temporary directory of the
// test. All of them must be closed when the test ends.
func NewTempFiles(t testing.TB) *TempFiles {
	s := &TempFiles{t: t, dir: t.TempDir()}
	t.Cleanup(s.RequireClosed)
	return s
}

// Create creates a temporary file. The caller must close it.
func (s *TempFiles) Create() (*os.File, error) {
	f, err := os.CreateTemp(s.dir, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.files = append(s.files, f)
	}
	return f, err
}

// Created returns how many files were created.
func (s *TempFiles) Created() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files)
}

// RequireClosed fails the test for every file that is open.
func (s *TempFiles) RequireClosed() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			s.t.Errorf("a spool is open: %v", err)
		}
	}
}

// Main runs the tests of a package with temporary files in memory, see [InMemory].
// TestMain calls it.
func Main(m *testing.M) {
	defer InMemory()()
	m.Run()
}

// InMemory sets TMPDIR to a directory in memory until end is called: on a disk,
// synchronizing small files takes a third of the time of a test. It does nothing if TMPDIR
// is set, or unless a file system in memory has 2 GiB free and allows executing programs.
func InMemory() (end func()) {
	if os.Getenv("TMPDIR") != "" || !roomInMemory() {
		return func() {}
	}
	dir, err := os.MkdirTemp(memoryDir, "headgate-test")
	if err != nil {
		return func() {}
	}
	os.Chmod(dir, 0o711) // other users may enter, as with /tmp: tests set the permissions of their files
	os.Setenv("TMPDIR", dir)
	return func() {
		os.Unsetenv("TMPDIR")
		os.RemoveAll(dir)
	}
}

// memoryDir is the directory of the in-memory file system of Linux.
const memoryDir = "/dev/shm"
