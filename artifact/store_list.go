package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
)

// All lists what is stored, ordered by path, without Revision and Metadata.
// What does not have the form of an artifact's path is passed over. An error
// concerns one directory; the listing goes on after it.
func (s *Store) All() iter.Seq2[Artifact, error] {
	return func(yield func(Artifact, error) bool) {
		for dir, err := range s.objects("") {
			var list []stored
			if err == nil {
				list, err = s.list(dir)
			}
			if err != nil && !yield(Artifact{}, fmt.Errorf("list the store: %w", err)) {
				return
			}
			slices.SortFunc(list, func(a, b stored) int { return cmp.Compare(a.path(), b.path()) })
			for _, e := range list {
				if !yield(s.describe(e.storePath, s.digest(e.storePath), e.info), nil) {
					return
				}
			}
		}
	}
}

// objects lists the directories KIND/NAMESPACE/NAME below prefix.
func (s *Store) objects(prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var walk func(dir string, depth int) bool
		walk = func(dir string, depth int) bool {
			if depth == 0 {
				return yield(dir, nil)
			}
			list, err := s.folders(join(prefix, dir))
			if err != nil && !yield(dir, err) {
				return false
			}
			for _, name := range list {
				if !walk(join(dir, name), depth-1) {
					return false
				}
			}
			return true
		}
		walk("", 3)
	}
}

// join joins slash-separated paths, of which the first may be empty.
func join(dir, name string) string { return strings.Trim(dir+"/"+name, "/") }

// folders lists the directories in dir that may be part of an artifact's path.
func (s *Store) folders(dir string) ([]string, error) { return s.names(dir, fs.FileMode.IsDir) }

// names lists what is public in dir and of the type asked for.
func (s *Store) names(dir string, is func(fs.FileMode) bool) ([]string, error) {
	list, err := readDir(s.root, cmp.Or(dir, "."))
	var names []string
	for _, e := range list {
		if is(e.Type()) && checkName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// stored is one file of an object.
type stored struct {
	storePath
	info fs.FileInfo
}

// list lists the artifacts of an object, newest first.
func (s *Store) list(dir string) ([]stored, error) {
	sums, err := s.folders(dir)
	var list []stored
	for _, sum := range sums {
		files, err1 := readDir(s.root, dir+"/"+sum)
		err = errors.Join(err, err1)
		for _, e := range files {
			p, ok := parsePath(dir + "/" + sum + "/" + e.Name())
			if !ok || !e.Type().IsRegular() {
				continue
			}
			info, err1 := e.Info()
			if err1 == nil {
				list = append(list, stored{p, info})
			}
			err = errors.Join(err, ignore(err1, fs.ErrNotExist))
		}
	}
	slices.SortStableFunc(list, func(a, b stored) int { return b.info.ModTime().Compare(a.info.ModTime()) })
	return list, err
}

// digest returns the digest that what lies at p must have. Its algorithm is the
// recorded one, or else follows from the length of the hexadecimal part.
func (s *Store) digest(p storePath) string {
	found, _, _, _ := s.readRecord(p)
	algorithm, sum, err := ParseDigest(found)
	if err != nil || len(sum) != len(p.hex) {
		algorithm = s.algorithm
		if h, err := algorithm.New(); err != nil || 2*h.Size() != len(p.hex) {
			algorithm = map[int]Algorithm{64: SHA256, 96: SHA384, 128: SHA512}[len(p.hex)]
		}
	}
	return string(algorithm) + ":" + p.hex
}
