package artifact

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
)

// Point makes the pointer name of the object dir lead to a, an artifact of the
// same object, and returns its URL, for status.url: [Store.Handler] serves a
// there. The change is atomic and durable.
//
// A pointer is no file that others can read. A store without a base URL serves
// nothing, so the URL is that of a itself.
func (s *Store) Point(dir, name string, a Artifact) (string, error) {
	if err := s.point(dir, name, a); err != nil {
		return "", fmt.Errorf("point %q of %s to artifact: %w", name, dir, err)
	}
	if strings.HasPrefix(s.base, "file:") {
		return s.URL(a.Path), nil
	}
	return s.URL(dir + "/" + name), nil
}

func (s *Store) point(dir, name string, a Artifact) error {
	if err := cmp.Or(checkDir(dir), checkName(name)); err != nil {
		return err
	}
	p, _, err := locate(a)
	if err != nil {
		return err
	}
	if p.dir != dir {
		return fmt.Errorf("%w target: artifact %q is another object's", fs.ErrInvalid, a.Path)
	}
	if _, err := s.root.Lstat(p.path()); err != nil {
		return err
	}
	pointer := objectDir + "/" + dir + "/" + name
	if old, _, err := s.target(dir, name); err == nil && old == p {
		return nil
	}
	t, err := s.temp.create()
	if err != nil {
		return err
	}
	defer t.discard()
	if _, err := io.WriteString(t, p.path()); err != nil {
		return err
	}
	if err := t.Sync(); err != nil {
		return err
	}
	if err := s.moveIn(t, pointer); err != nil {
		return err
	}
	return s.syncUp(path.Dir(pointer))
}

// target reads a pointer, and when it was moved.
func (s *Store) target(dir, name string) (p storePath, moved time.Time, err error) {
	pointer := objectDir + "/" + dir + "/" + name
	f, info, err := s.openRegular(pointer)
	if err != nil {
		return storePath{}, time.Time{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return storePath{}, time.Time{}, err
	}
	p, ok := parsePath(string(text))
	if !ok || p.dir != dir {
		return storePath{}, time.Time{}, &fs.PathError{Op: "read pointer", Path: pointer, Err: fs.ErrInvalid}
	}
	return p, info.ModTime(), nil
}
