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

// URL parses a URL that has no mistake.
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

// Contents returns the files of a tree by name.
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

// Spools makes temporary files, and knows which of them are open.
type Spools struct {
	t     testing.TB
	dir   string
	mu    sync.Mutex
	files []*os.File
}

// NewSpools returns a maker of spools in a directory of the test, at whose end
// all of them must be closed.
func NewSpools(t testing.TB) *Spools {
	s := &Spools{t: t, dir: t.TempDir()}
	t.Cleanup(s.Closed)
	return s
}

// Create makes a spool.
func (s *Spools) Create() (*os.File, error) {
	f, err := os.CreateTemp(s.dir, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.files = append(s.files, f)
	}
	return f, err
}

// Made returns how many spools were made.
func (s *Spools) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files)
}

// Closed demands that all spools are closed.
func (s *Spools) Closed() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			s.t.Errorf("a spool is open: %v", err)
		}
	}
}
