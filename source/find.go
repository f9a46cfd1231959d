package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Find returns the objects that ref names: KIND/NAMESPACE/NAME, or KIND/NAME in
// any namespace. The kind may be written in any case, in the plural, in the
// reference's spelling or as a short name: gitrepo, hc, ocirepo. The error
// wraps [fs.ErrNotExist] when there is no such object.
func (s *Set) Find(ref string) ([]Object, error) {
	named, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	if named.Name == "" {
		return nil, fmt.Errorf("%s names no object: write KIND/NAME or KIND/NAMESPACE/NAME", quote(ref))
	}
	var found []Object
	for _, obj := range s.Objects {
		if named.Selects(ReferenceTo(obj)) {
			found = append(found, obj)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %w%s", quote(ref), errNoObject, s.alike(named.Kind))
	}
	return found, nil
}

// ParseReference reads how people call objects: KIND, KIND/NAME or
// KIND/NAMESPACE/NAME, the kind as in [Set.Find]. What the text does not say is
// empty in the reference.
func ParseReference(text string) (Reference, error) {
	parts := strings.Split(text, "/")
	if len(parts) > 3 || slices.Contains(parts, "") {
		return Reference{}, fmt.Errorf("%s names no object: write KIND/NAME or KIND/NAMESPACE/NAME", quote(text))
	}
	k := calledKind(parts[0])
	if k == nil {
		return Reference{}, fmt.Errorf("%s: unknown kind %s: use one of %s", quote(text), quote(parts[0]), kindNames())
	}
	r := Reference{Kind: k.name}
	if len(parts) > 1 {
		r.Name = parts[len(parts)-1]
	}
	if len(parts) == 3 {
		r.Namespace = parts[1]
	}
	return r, nil
}

// Selects reports whether what r says is true of other; an empty part of r says nothing.
func (r Reference) Selects(other Reference) bool {
	return (r.Kind == "" || r.Kind == other.Kind) && (r.Namespace == "" || r.Namespace == other.Namespace) && (r.Name == "" || r.Name == other.Name)
}

// alike names the objects of a kind, a few of them.
func (s *Set) alike(kind string) string {
	var names []string
	for _, obj := range s.Objects {
		if ReferenceTo(obj).Kind != kind {
			continue
		}
		if len(names) == 5 {
			names = append(names, "...")
			break
		}
		names = append(names, obj.Head().String())
	}
	if len(names) == 0 {
		return ", nor any other of its kind"
	}
	return " among " + strings.Join(names, ", ")
}

func kindNames() string {
	var names []string
	for i := range kinds {
		names = append(names, kinds[i].name)
	}
	return strings.Join(names, ", ")
}

// DecodeFS reads the documents of all files below root that end in .yaml,
// .yml or .json, in lexical order, as [Set.Decode] does. Directories whose
// names begin with a dot are passed over, links to directories as well. A
// root that is a file is read whatever its name.
func (s *Set) DecodeFS(fsys fs.FS, root string) error {
	var errs []error
	err := fs.WalkDir(fsys, root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			errs = append(errs, &DocumentError{File: name, Err: err})
			return nil
		case entry.IsDir() && name != root && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || name != root && !manifest(name):
			return nil
		}
		err = s.decodeFile(fsys, name)
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			errs = append(errs, all.Unwrap()...)
		} else {
			errs = append(errs, err)
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// manifest reports whether a file is named like one that holds documents.
func manifest(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func (s *Set) decodeFile(fsys fs.FS, name string) error {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return &DocumentError{File: name, Err: err}
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := fsys.Open(name)
	if err != nil {
		return &DocumentError{File: name, Err: err}
	}
	defer f.Close()
	return s.Decode(name, f)
}
