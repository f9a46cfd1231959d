package testenv

import (
	"errors"
	"os"
	"sync"
	"testing"
)

// Spools makes temporary files as [Spool] does, and knows which of them are open.
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
