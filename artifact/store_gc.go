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
// What does not have the form of an artifact's path is passed over. An error,
// the last that is yielded, names the directories that cannot be read.
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

// walk calls visit for what lies so many levels below the directory top and has
// a public name, in the order of the paths. It goes on after errors.
func (s *Store) walk(top string, levels int, visit func(name string, d fs.DirEntry) error) (failed error) {
	if top != "." {
		levels += 1 + strings.Count(top, "/")
	}
	fs.WalkDir(s.root.FS(), top, func(name string, d fs.DirEntry, err error) error {
		public := err != nil || name == top || checkName(d.Name()) == nil
		reached := strings.Count(name, "/")+1 == levels && name != top
		switch {
		case err != nil:
			err = ignore(err, fs.ErrNotExist) // there is nothing yet, or another process was faster
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

// files lists the artifacts of an object, in the order of their paths. It goes on after errors.
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
			err = errors.Join(err, ignore(failed, fs.ErrNotExist))
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

// describe returns the artifact that is stored in f and has a digest.
func (s *Store) describe(f stored, digest string) Artifact {
	return Artifact{
		Path:           f.path(),
		URL:            s.URL(f.path()),
		Digest:         digest,
		LastUpdateTime: f.info.ModTime().UTC().Truncate(time.Second),
		Size:           f.info.Size(),
	}
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
		s.root.Remove(p.record()) // GC finds what stays behind
		s.root.Remove(p.folder())
	}
	return err
}

// Withdraw removes one artifact, for a caller that stored it and does not publish
// it. The caller holds [Store.Lock].
func (s *Store) Withdraw(a Artifact) (err error) {
	defer wrap(&err, "withdraw artifact %q", a.Path)
	p, _, err := locate(a)
	if err != nil {
		return err
	}
	err = s.drop(p)
	s.removeEmpty(p.dir)
	return err
}

// Remove removes everything of the object dir. The caller holds [Store.Lock].
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
// when it is negative) stay: a status that refers to them may not be saved yet.
// At last it does what [Store.Tidy] does, for every object.
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
		var gone []Artifact
		gone, err = s.collect(ctx, dir, c)
		removed = append(removed, gone...)
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
			failed = s.drop(f.storePath)
		}
		if failed == nil {
			removed = append(removed, a)
		}
		err = errors.Join(err, failed)
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

// Sweep removes the temporary files that killed processes left behind. Those of
// live ones stay. It does not look at the objects of the store.
func (s *Store) Sweep(ctx context.Context) (swept Swept, err error) {
	defer wrap(&err, "sweep the store")
	return s.temp.sweep(ctx)
}

// Tidy removes of one object what killed processes left behind: records of files
// that are gone, empty directories and, if it has no artifacts, pointers and its
// lock. It does nothing while the lock of the object is held.
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
	// One by one: as soon as the lock file is removed, another process
	// may create a new one.
	err = errors.Join(err, s.removePointers(dir), s.root.Remove(lockPath(dir)))
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
