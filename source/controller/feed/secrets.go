package feed

import (
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/headgate-io/headgate/internal/durable"
)

// secrets watch a directory of Secrets.
type secrets struct {
	root    string
	dirs    listings
	files   map[string]*content
	defects []error
}

// Limits of a directory of Secrets.
const (
	maxSecretFiles = 100_000
	maxSecret      = 1 << 20 // bytes of a key; what is larger is refused when it is used
	maxSecretDepth = 2       // directories below the root: NAMESPACE/NAME
)

func newSecrets(root string) *secrets {
	s := &secrets{root: root, dirs: listings{want: key}, files: make(map[string]*content)}
	s.look()
	return s
}

// look reports whether any of the Secrets may be another than at the last look.
func (s *secrets) look() (changed bool) {
	s.dirs.begin()
	before, defects := s.files, s.defects
	s.files, s.defects = make(map[string]*content, len(before)), nil
	s.walk(s.root, 0, before)
	s.dirs.forget()
	for name, c := range s.files {
		if before[name] != c { // new, or read again and found to be another
			changed = true
		}
	}
	return changed || len(before) != len(s.files) ||
		!slices.EqualFunc(defects, s.defects, func(a, b error) bool { return a.Error() == b.Error() })
}

// walk looks at what is in dir. Links are followed, as those of mounts have to be.
func (s *secrets) walk(dir string, depth int, before map[string]*content) {
	info, err := os.Stat(dir)
	var entries []entry
	if err == nil {
		entries, err = s.dirs.list(dir, info)
	}
	if err != nil {
		if depth == 0 {
			s.defects = append(s.defects, defect(dir, err))
		}
		return
	}
	for _, e := range entries {
		info, err := os.Stat(e.path)
		switch {
		case err != nil:
		case info.IsDir():
			if depth < maxSecretDepth {
				s.walk(e.path, depth+1, before)
			}
		case len(s.files) == maxSecretFiles:
			s.defects = []error{defect(s.root, fmt.Errorf("holds more than %d files: changes of the rest are not noticed", maxSecretFiles))}
			return
		case info.Mode().IsRegular():
			s.file(e.path, info, before[e.path])
		}
	}
}

// file looks at a key. A changed one becomes another content.
func (s *secrets) file(name string, info fs.FileInfo, known *content) {
	if known != nil && known.same(info) {
		s.files[name] = known
		return
	}
	c := &content{name: name}
	if known != nil {
		*c = *known
	}
	changed := known == nil
	if err := c.update(maxSecret, func([]byte) { changed = true }); err != nil {
		c.stamp = durable.StampOf(info)
		changed = changed || known.read || known.stamp != c.stamp
	}
	if !changed {
		*known = *c
		c = known
	}
	s.files[name] = c
}
