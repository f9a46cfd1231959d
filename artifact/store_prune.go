package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Prune removes superseded artifacts of the object dir: first those whose
// successor was stored longer than KeepFor ago, then the oldest until no more
// than Keep remain. An artifact in keep is current, and stays.
//
// The caller holds [Store.Lock].
func (s *Store) Prune(dir string, keep ...Artifact) error {
	if err := s.prune(dir, keep); err != nil {
		return fmt.Errorf("prune %s: %w", dir, err)
	}
	return nil
}

func (s *Store) prune(dir string, keep []Artifact) error {
	if err := checkDir(dir); err != nil {
		return err
	}
	current := make(map[string]bool, len(keep))
	for _, a := range keep {
		current[a.Path] = true
	}
	list, err := s.list(dir)
	if err != nil {
		return err
	}
	now, kept := s.now(), 0
	for i, e := range list {
		switch {
		case current[e.path()]:
		case s.expired(now, list, i), s.keep >= 0 && kept >= s.keep:
			err = errors.Join(err, s.drop(e.storePath))
		default:
			kept++
		}
	}
	return err
}

// expired reports whether the successor of list[i] was stored too long ago.
func (s *Store) expired(now time.Time, list []stored, i int) bool {
	return s.keepFor >= 0 && i > 0 && now.Sub(list[i-1].info.ModTime()) > s.keepFor
}

// drop removes one artifact, its record, and its directory unless another
// file is in it.
func (s *Store) drop(p storePath) error {
	err := ignore(s.root.Remove(p.path()), fs.ErrNotExist)
	if err == nil {
		s.root.Remove(p.record()) // sweep finds what stays behind
		s.root.Remove(p.folder())
	}
	return err
}

// Remove removes everything of the object dir. The caller holds [Store.Lock].
func (s *Store) Remove(dir string) error {
	err := checkDir(dir)
	if err == nil {
		err = errors.Join(s.removePointers(dir), s.root.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

func (s *Store) removePointers(dir string) error {
	list, err := s.names(objectDir+"/"+dir, fs.FileMode.IsRegular)
	for _, name := range list {
		err = errors.Join(err, s.root.Remove(objectDir+"/"+dir+"/"+name))
	}
	return err
}
