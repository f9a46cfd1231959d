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

// All lists the stored artifacts, ordered by path, without Revision and Metadata. It skips files
// whose path is not that of an artifact. An error is yielded last and names the directories that
// cannot be read.
func (s *Store) All() iter.Seq2[Artifact, error] {
	return func(yield func(Artifact, error) bool) {
		dirs, err := s.objects(".")
		for _, dir := range dirs {
			list, failed := s.files(dir)
			err = errors.Join(err, failed)
			for _, f := range list {
				if !yield(s.describe(f, s.digest(f.storePath)), nil) {
					return
				}
			}
		}
		if err != nil {
			yield(Artifact{}, fmt.Errorf("list the store: %w", err))
		}
	}
}

// walk calls visit for each public name that is levels below the directory top, in the order of the
// paths. It continues after errors.
func (s *Store) walk(top string, levels int, visit func(name string, d fs.DirEntry) error) (failed error) {
	if top != "." {
		levels += 1 + strings.Count(top, "/")
	}
	fs.WalkDir(s.root.FS(), top, func(name string, d fs.DirEntry, err error) error {
		public := err != nil || name == top || checkName(d.Name()) == nil
		reached := strings.Count(name, "/")+1 == levels && name != top
		switch {
		case err != nil:
			err = ignoreErr(err, fs.ErrNotExist) // it is empty, or another process removed it
		case name == top && !d.IsDir():
			err = &fs.PathError{Op: "readdir", Path: name, Err: errNotDir}
		case reached && public:
			err = visit(name, d)
		}
		failed = errors.Join(failed, err)
		if d != nil && d.IsDir() && (reached || !public) {
			return fs.SkipDir
		}
		return nil
	})
	return failed
}

// objects lists the directories KIND/NAMESPACE/NAME below top.
func (s *Store) objects(top string) (list []string, err error) {
	err = s.walk(top, 3, func(name string, d fs.DirEntry) error {
		if d.IsDir() {
			list = append(list, strings.TrimPrefix(name, top+"/"))
		}
		return nil
	})
	return list, err
}

// stored is one file of an object.
type stored struct {
	storePath
	info fs.FileInfo
}

// files lists the artifacts of an object, ordered by path. It continues after errors.
func (s *Store) files(dir string) (list []stored, err error) {
	folders, err := readDir(s.root, dir)
	for _, folder := range folders {
		if !folder.IsDir() || !isHex(folder.Name()) {
			continue
		}
		files, failed := readDir(s.root, dir+"/"+folder.Name())
		err = errors.Join(err, failed)
		for _, file := range files {
			p, ok := parsePath(dir + "/" + folder.Name() + "/" + file.Name())
			if !ok || !file.Type().IsRegular() {
				continue
			}
			info, failed := file.Info()
			if failed == nil {
				list = append(list, stored{p, info})
			}
			err = errors.Join(err, ignoreErr(failed, fs.ErrNotExist))
		}
	}
	return list, err
}

// list lists the artifacts of an object, newest first.
func (s *Store) list(dir string) ([]stored, error) {
	list, err := s.files(dir)
	slices.SortStableFunc(list, func(a, b stored) int { return b.info.ModTime().Compare(a.info.ModTime()) })
	return list, err
}

// describe returns the artifact stored in f, with the digest.
func (s *Store) describe(f stored, digest string) Artifact {
	return Artifact{
		Path:           f.path(),
		URL:            s.URL(f.path()),
		Digest:         digest,
		LastUpdateTime: f.info.ModTime().UTC().Truncate(time.Second),
		Size:           f.info.Size(),
	}
}

// digest returns the expected digest of the file at p. Its algorithm is the recorded one, or else
// follows from the length of the hexadecimal part.
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

// Prune removes superseded artifacts of the object dir: first those whose successor was stored more
// than KeepFor ago, then the oldest ones until no more than Keep remain. The artifacts in keep are
// current, and are not removed.
//
// The caller must hold [Store.Lock].
func (s *Store) Prune(dir string, keep ...Artifact) (err error) {
	defer wrap(&err, "prune %s", dir)
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
			err = errors.Join(err, s.removeArtifact(e.storePath))
		default:
			kept++
		}
	}
	return err
}

// expired reports whether the successor of list[i] was stored more than KeepFor ago.
func (s *Store) expired(now time.Time, list []stored, i int) bool {
	return s.keepFor >= 0 && i > 0 && now.Sub(list[i-1].info.ModTime()) > s.keepFor
}

// removeArtifact removes one artifact, its record, and its directory if it is then empty.
func (s *Store) removeArtifact(p storePath) error {
	err := ignoreErr(s.root.Remove(p.path()), fs.ErrNotExist)
	if err == nil {
		s.root.Remove(p.record()) // on errors, GC removes it later
		s.root.Remove(p.folder())
	}
	return err
}

// Withdraw removes one artifact, for a caller that stored it but does not publish it. The caller
// must hold [Store.Lock].
func (s *Store) Withdraw(a Artifact) (err error) {
	defer wrap(&err, "withdraw artifact %q", a.Path)
	p, _, err := locate(a)
	if err != nil {
		return err
	}
	err = s.removeArtifact(p)
	s.removeEmpty(p.dir)
	return err
}

// Remove removes all files of the object dir. The caller must hold [Store.Lock].
func (s *Store) Remove(dir string) (err error) {
	defer wrap(&err, "remove %s", dir)
	if err := checkDir(dir); err != nil {
		return err
	}
	return errors.Join(s.removePointers(dir), s.root.RemoveAll(dir))
}

func (s *Store) removePointers(dir string) error {
	return s.walk(objectDir+"/"+dir, 1, func(name string, d fs.DirEntry) error {
		if !d.Type().IsRegular() {
			return nil
		}
		return s.root.Remove(name)
	})
}

// A GCConfig configures [Store.GC].
type GCConfig struct {
	// Keep is required. It reports whether something still refers to an artifact. GC calls it while
	// it holds the lock of the object, so that the recorded state of the object does not change
	// meanwhile.
	Keep func(Artifact) bool
	// DryRun makes GC return what it would remove, and remove nothing.
	DryRun bool
}

// GC removes the artifacts that nothing refers to, including those of deleted objects, and returns
// them. It keeps artifacts stored less than KeepFor ago (the default of KeepFor, if it is
// negative), because a status that refers to them may not be saved yet. Finally it calls
// [Store.Tidy] for every object.
func (s *Store) GC(ctx context.Context, c GCConfig) (removed []Artifact, err error) {
	defer wrap(&err, "collect garbage")
	if c.Keep == nil {
		return nil, fmt.Errorf("%w: GCConfig.Keep says nothing of what to keep", fs.ErrInvalid)
	}
	dirs, err := s.objects(".")
	for _, dir := range dirs {
		if err != nil {
			break
		}
		var collected []Artifact
		collected, err = s.collect(ctx, dir, c)
		removed = append(removed, collected...)
	}
	if err != nil || c.DryRun {
		return removed, err
	}
	known, err := s.objects(objectDir) // some have no artifacts
	for _, dir := range append(dirs, known...) {
		if ctx.Err() != nil {
			return removed, ctx.Err()
		}
		err = errors.Join(err, s.Tidy(dir))
	}
	return removed, err
}

func (s *Store) collect(ctx context.Context, dir string, c GCConfig) (removed []Artifact, err error) {
	unlock, err := s.Lock(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list, err := s.list(dir)
	for _, f := range list {
		a := s.describe(f, s.digest(f.storePath))
		if s.now().Sub(f.info.ModTime()) < s.grace() || c.Keep(a) {
			continue
		}
		var failed error
		if !c.DryRun {
			failed = s.removeArtifact(f.storePath)
		}
		if failed == nil {
			removed = append(removed, a)
		}
		err = errors.Join(err, failed)
	}
	return removed, err
}

// grace returns how long a new artifact is kept without a reference.
func (s *Store) grace() time.Duration {
	if s.keepFor < 0 {
		return defaultKeepFor
	}
	return s.keepFor
}

// Swept is the result of [Store.Sweep].
type Swept struct {
	Files int   // number of temporary files of processes that have ended
	Bytes int64 // their size
}

// Sweep removes the temporary files of killed processes. It keeps those of live processes and does
// not look at the objects of the store.
func (s *Store) Sweep(ctx context.Context) (swept Swept, err error) {
	defer wrap(&err, "sweep the store")
	return s.temp.sweep(ctx)
}

// Tidy removes what killed processes left in one object: records of missing files, empty
// directories and, if the object has no artifacts, pointers and the lock. It does nothing while the
// lock of the object is held.
func (s *Store) Tidy(dir string) error {
	if err := checkDir(dir); err != nil {
		return err
	}
	lock, err := createLocked(s.root, lockPath(dir), 0)
	if lock == nil || err != nil {
		return err
	}
	defer lock.Close()
	err = s.walk(dir, 1, func(name string, d fs.DirEntry) error {
		if !d.IsDir() {
			return nil
		}
		return s.tidyFolder(name)
	})
	s.removeEmpty(dir)
	if _, err1 := s.root.Lstat(dir); !errors.Is(err1, fs.ErrNotExist) {
		return errors.Join(err, err1)
	}
	// Remove the lock file last: as soon as it is removed, another process may create a new one.
	err = errors.Join(err, s.removePointers(dir), s.root.Remove(lockPath(dir)))
	s.removeEmpty(objectDir + "/" + dir)
	return err
}

// tidyFolder removes records without a file.
func (s *Store) tidyFolder(dir string) error {
	list, err := readDir(s.root, dir)
	for _, e := range list {
		file, record := strings.CutPrefix(e.Name(), ".")
		if !record {
			continue
		}
		if _, err1 := s.root.Lstat(dir + "/" + file); errors.Is(err1, fs.ErrNotExist) {
			err = errors.Join(err, ignoreErr(s.root.Remove(dir+"/"+e.Name()), fs.ErrNotExist))
		}
	}
	s.removeEmpty(dir)
	return err
}

// removeEmpty removes dir and its parents up to the first that is not empty. A writer that was
// about to use one of them creates it again.
func (s *Store) removeEmpty(dir string) {
	for dir != "." && dir != objectDir && s.root.Remove(dir) == nil {
		dir = path.Dir(dir)
	}
}
