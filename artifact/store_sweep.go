package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Swept says what [Store.Sweep] removed.
type Swept struct {
	Files int   // temporary files of processes that are gone
	Bytes int64 // their size
}

// Sweep removes what killed processes left behind: their temporary files,
// records of files that are gone, empty directories, and pointers and locks of
// objects that are gone. What a live process is working on stays.
func (s *Store) Sweep(ctx context.Context) (Swept, error) {
	swept, err := s.temp.sweep(ctx)
	for _, tree := range []string{"", objectDir} {
		for dir, err1 := range s.objects(tree) {
			if ctx.Err() != nil {
				return swept, fmt.Errorf("sweep the store: %w", ctx.Err())
			}
			if err1 == nil {
				err1 = s.tidy(dir)
			}
			err = errors.Join(err, err1)
		}
	}
	if err != nil {
		return swept, fmt.Errorf("sweep the store: %w", err)
	}
	return swept, nil
}

// tidy removes what is left of an object, unless somebody is working on it.
func (s *Store) tidy(dir string) error {
	lock, err := s.tryObject(dir)
	if lock == nil || err != nil {
		return err
	}
	defer lock.Close()
	sums, err := s.folders(dir)
	for _, sum := range sums {
		err = errors.Join(err, s.tidyFolder(dir+"/"+sum))
	}
	s.removeEmpty(dir)
	if _, err1 := s.root.Lstat(dir); !errors.Is(err1, fs.ErrNotExist) {
		return errors.Join(err, err1)
	}
	// One by one: as soon as the lock's name is gone, somebody else may have
	// made a new one.
	err = errors.Join(err, s.removePointers(dir), s.root.Remove(objectDir+"/"+dir+"/"+lockName))
	s.removeEmpty(objectDir + "/" + dir)
	return err
}

// tidyFolder removes records without their file.
func (s *Store) tidyFolder(dir string) error {
	list, err := readDir(s.root, dir)
	for _, e := range list {
		file, record := strings.CutPrefix(e.Name(), ".")
		if !record {
			continue
		}
		if _, err1 := s.root.Lstat(dir + "/" + file); errors.Is(err1, fs.ErrNotExist) {
			err = errors.Join(err, ignore(s.root.Remove(dir+"/"+e.Name()), fs.ErrNotExist))
		}
	}
	s.removeEmpty(dir)
	return err
}

// removeEmpty removes dir and its parents as far as they are empty. A writer
// that was about to use one of them makes it again.
func (s *Store) removeEmpty(dir string) {
	for dir != "." && dir != objectDir && s.root.Remove(dir) == nil {
		dir = path.Dir(dir)
	}
}

// Tidy does for one object what [Store.Sweep] does for all: of one that has no
// artifacts nothing stays. The caller does not hold its lock.
func (s *Store) Tidy(dir string) error {
	err := checkDir(dir)
	if err == nil {
		err = s.tidy(dir)
	}
	if err != nil {
		return fmt.Errorf("tidy %s: %w", dir, err)
	}
	return nil
}
