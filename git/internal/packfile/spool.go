package packfile

import (
	"fmt"
	"os"
	"sync/atomic"
)

// A spool is a temporary file that holds inflated objects and deltas. ReadAt,
// WriteAt and reserve are safe for concurrent use.
type spool struct {
	*os.File
	end atomic.Int64 // bytes in use
}

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "headgate-pack-*")
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	if err := unlink(f); err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, fmt.Errorf("create spool: %w", err)
	}
	return &spool{File: f}, nil
}

// reserve sets n bytes aside and returns where they begin.
func (s *spool) reserve(n int64) int64 { return s.end.Add(n) - n }

func (s *spool) Close() error { return closeUnlinked(s.File) }
