package gate

import (
	"errors"

	"go.etcd.io/bbolt"
)

// Fill makes the disk full for the file of s, which cannot grow, or gives it room.
func (s *Store) Fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file.DB.MaxSize, s.file.DB.AllocSize = 0, 1; full {
		s.file.DB.MaxSize = 1
	}
}

// Doubt has the file take the next n writes and say that it did not, as when
// the disk does not confirm the last of it.
func (s *Store) Doubt(n int) {
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
