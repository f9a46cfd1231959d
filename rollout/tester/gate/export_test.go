package gate

import (
	"errors"

	"go.etcd.io/bbolt"
)

// SetDiskFull simulates a full disk for the file of s, or one with room again.
func (s *Store) SetDiskFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file.DB.MaxSize, s.file.DB.AllocSize = 0, 1; full {
		s.file.DB.MaxSize = 1
	}
}

// FailAfterCommit makes the next n writes return an error although they are in the file, as when the
// disk does not confirm the end of a write.
func (s *Store) FailAfterCommit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file.Commit = func(do func(*bbolt.Tx) error) error {
		err := s.file.DB.Update(do)
		if n--; err == nil && n >= 0 {
			err = errors.New("input/output error")
		}
		return err
	}
}
