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

func newSpool(temp func() (*os.File, error)) (*spool, error) {
	if temp == nil {
		temp = tempFile
	}
	f, err := temp()
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	return &spool{File: f}, nil
}

// reserve sets n bytes aside and returns where they begin.
func (s *spool) reserve(n int64) int64 { return s.end.Add(n) - n }

func (s *spool) Close() error { return closeTemp(s.File) }
