package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"time"
)

// All lists what is stored, ordered by path, without Revision and Metadata.
// What does not have the form of an artifact's path is passed over. An error
// concerns one directory; the listing goes on after it.
func (s *Store) All() iter.Seq2[Artifact, error] {
	return func(yield func(Artifact, error) bool) {
		for e, err := range s.files(".", 5) {
			var a Artifact
			if err == nil {
				a = s.describe(e.storePath, s.digest(e.storePath), e.info)
			} else {
				err = fmt.Errorf("list the store: %w", err)
			}
			if !yield(a, err) {
				return
			}
		}
	}
}

// An entry is something in the store and its path.
type storeEntry struct {
	path string
	fs.DirEntry
}

// walk yields what lies so many levels below the directory top and has a public
// name, in the order of the paths. An error concerns one directory.
func (s *Store) walk(top string, levels int) iter.Seq2[storeEntry, error] {
	if top != "." {
		levels += 1 + strings.Count(top, "/")
	}
	return func(yield func(storeEntry, error) bool) {
		fs.WalkDir(s.root.FS(), top, func(name string, d fs.DirEntry, err error) error {
			if err == nil && name == top && !d.IsDir() {
				err = &fs.PathError{Op: "readdir", Path: name, Err: errNotDir}
			}
			switch wanted := strings.Count(name, "/")+1 == levels; {
			case errors.Is(err, fs.ErrNotExist), err == nil && name == top:
				return nil
			case err != nil && !yield(storeEntry{}, err):
				return fs.SkipAll
			case err != nil:
				return nil
			case wanted && checkName(d.Name()) == nil && !yield(storeEntry{name, d}, nil):
				return fs.SkipAll
			case d.IsDir() && (wanted || checkName(d.Name()) != nil):
				return fs.SkipDir
			}
			return nil
		})
	}
}

// objects yields the directories KIND/NAMESPACE/NAME below top.
func (s *Store) objects(top string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range s.walk(top, 3) {
			if (err != nil || e.IsDir()) && !yield(strings.TrimPrefix(e.path, top+"/"), err) {
				return
			}
		}
	}
}

// stored is one file of an object.
type stored struct {
	storePath
	info fs.FileInfo
}

// files yields the artifacts that lie so many levels below top.
func (s *Store) files(top string, levels int) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		for e, err := range s.walk(top, levels) {
			var f stored
			if err == nil {
				var ok bool
				if f.storePath, ok = parsePath(e.path); !ok || !e.Type().IsRegular() {
					continue
				}
				if f.info, err = e.Info(); errors.Is(err, fs.ErrNotExist) {
					continue
				}
			}
			if !yield(f, err) {
				return
			}
		}
	}
}

// list lists the artifacts of an object, newest first.
func (s *Store) list(dir string) (list []stored, err error) {
	for f, err1 := range s.files(dir, 2) {
		if err = errors.Join(err, err1); err1 == nil {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b stored) int { return b.info.ModTime().Compare(a.info.ModTime()) })
	return list, err
}

// digest returns the digest that what lies at p must have. Its algorithm is the
// recorded one, or else follows from the length of the hexadecimal part.
func (s *Store) digest(p storePath) string {
	found, _ := s.readRecord(p)
	algorithm, sum, err := ParseDigest(found)
	if err != nil || len(sum) != len(p.hex) {
		algorithm = s.algorithm
		if h, err := algorithm.New(); err != nil || 2*h.Size() != len(p.hex) {
			algorithm = map[int]Algorithm{64: SHA256, 96: SHA384, 128: SHA512}[len(p.hex)]
		}
	}
	return string(algorithm) + ":" + p.hex
}

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

func (s *Store) removePointers(dir string) (err error) {
	for e, err1 := range s.walk(objectDir+"/"+dir, 1) {
		if err1 == nil && e.Type().IsRegular() {
			err1 = s.root.Remove(e.path)
		}
		err = errors.Join(err, err1)
	}
	return err
}

// A GCConfig says what [Store.GC] removes.
type GCConfig struct {
	// Keep, which must be given, reports whether something still refers to an
	// artifact. It is called while the lock of the object is held, so what
	// is recorded of the object does not change meanwhile.
	Keep func(Artifact) bool
	// DryRun lists what would be removed, and removes nothing.
	DryRun bool
}

// GC removes the artifacts that nothing refers to, of objects that are gone
// as well, and returns them. Those stored less than KeepFor ago (the default,
// when it is negative) stay: whoever refers to them may not have said so yet.
func (s *Store) GC(ctx context.Context, c GCConfig) ([]Artifact, error) {
	if c.Keep == nil {
		return nil, fmt.Errorf("collect garbage: %w: GCConfig.Keep says nothing of what to keep", fs.ErrInvalid)
	}
	var removed []Artifact
	for dir, err := range s.objects(".") {
		if err != nil {
			return removed, fmt.Errorf("collect garbage: %w", err)
		}
		gone, err := s.collect(ctx, dir, c)
		removed = append(removed, gone...)
		if err != nil {
			return removed, fmt.Errorf("collect garbage: %w", err)
		}
	}
	return removed, nil
}

func (s *Store) collect(ctx context.Context, dir string, c GCConfig) (removed []Artifact, err error) {
	unlock, err := s.Lock(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list, err := s.list(dir)
	for _, e := range list {
		a := s.describe(e.storePath, s.digest(e.storePath), e.info)
		if s.now().Sub(e.info.ModTime()) < s.grace() || c.Keep(a) {
			continue
		}
		if !c.DryRun {
			if err1 := s.drop(e.storePath); err1 != nil {
				err = errors.Join(err, err1)
				continue
			}
		}
		removed = append(removed, a)
	}
	return removed, err
}

// grace is how long a new artifact need not be referred to.
func (s *Store) grace() time.Duration {
	if s.keepFor < 0 {
		return defaultKeepFor
	}
	return s.keepFor
}

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
	for _, tree := range []string{".", objectDir} {
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

// tidy removes what is left of an object, unless its lock is held.
func (s *Store) tidy(dir string) error {
	lock, err := s.tryObject(dir)
	if lock == nil || err != nil {
		return err
	}
	defer lock.Close()
	for e, err1 := range s.walk(dir, 1) {
		if err1 == nil && e.IsDir() {
			err1 = s.tidyFolder(e.path)
		}
		err = errors.Join(err, err1)
	}
	s.removeEmpty(dir)
	if _, err1 := s.root.Lstat(dir); !errors.Is(err1, fs.ErrNotExist) {
		return errors.Join(err, err1)
	}
	// One by one: as soon as the lock file is removed, another process
	// may create a new one.
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
