package local

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A Ref is a name that a repository gives to an object.
type Ref struct {
	Name   string
	ID     object.ID
	Peeled object.ID // the object that an annotated tag leads to; zero for other refs
	Symref string    // the ref that a symbolic ref points to; "" for other refs
}

// Bounds of what is followed from one ref to the next, or from tag to tag.
const (
	maxSymrefs = 5
	maxPeel    = 10
	maxTag     = 1 << 20  // bytes
	maxPacked  = 64 << 10 // bytes in a line of packed-refs
)

// Refs returns the refs with the given full names (HEAD, refs/heads/main), or
// when exact is false those whose names begin with one of them, sorted by name.
// A name without a ref is no error; so is a symbolic ref that leads nowhere,
// such as the HEAD of an empty repository: both are left out.
func (r *Repo) Refs(exact bool, names ...string) ([]Ref, error) {
	var prefixes []string
	if !exact {
		prefixes, names = names, nil
	}
	// Refs move from files into packed-refs at any time, so that is read last.
	wanted, err := r.looseNames(prefixes)
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	packed, err := r.packedRefs()
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	for name := range packed {
		if hasPrefix(name, prefixes) {
			wanted[name] = true
		}
	}
	for _, name := range names {
		wanted[name] = true
	}
	var refs []Ref
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		ref, err := r.peeled(packed, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ref %.200q: %w", name, err)
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// looseNames returns the names that begin with one of the prefixes, of HEAD and
// of the refs in files of their own.
func (r *Repo) looseNames(prefixes []string) (map[string]bool, error) {
	found := make(map[string]bool)
	if len(prefixes) == 0 {
		return found, nil
	}
	if hasPrefix("HEAD", prefixes) {
		found["HEAD"] = true
	}
	err := filepath.WalkDir(filepath.Join(r.common, "refs"), func(file string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was moved meanwhile, or there are none
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.common, file)
		if name = filepath.ToSlash(name); err == nil && !e.IsDir() && !strings.HasSuffix(name, ".lock") && hasPrefix(name, prefixes) {
			found[name] = true
		}
		return err
	})
	return found, err
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// peeled returns the ref with the given name and what it leads to.
func (r *Repo) peeled(packed map[string]Ref, name string) (Ref, error) {
	ref, err := r.ref(packed, name, 0)
	if errors.Is(err, fs.ErrNotExist) { // or was moved since packed was read
		if packed, err = r.packedRefs(); err == nil {
			ref, err = r.ref(packed, name, 0)
		}
	}
	if err == nil && ref.Peeled.IsZero() {
		ref.Peeled, err = r.peel(ref.ID)
	}
	return ref, err
}

// ref returns the ref with the given name. Symbolic refs are followed.
func (r *Repo) ref(packed map[string]Ref, name string, depth int) (Ref, error) {
	if name != "HEAD" && !strings.HasPrefix(name, "refs/") || path.Clean(name) != name || !filepath.IsLocal(filepath.FromSlash(name)) {
		return Ref{}, fs.ErrNotExist
	}
	if depth > maxSymrefs {
		return Ref{}, fmt.Errorf("%w: more than %d symbolic refs in a row", object.ErrCorrupt, maxSymrefs)
	}
	text, err := r.looseRef(name)
	if err != nil {
		if ref, ok := packed[name]; ok {
			return ref, nil
		}
		return Ref{}, err
	}
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		target = strings.TrimSpace(target)
		ref, err := r.ref(packed, target, depth+1)
		ref.Name, ref.Symref = name, target
		return ref, err
	}
	id, err := object.ParseID(text)
	if err != nil {
		return Ref{}, fmt.Errorf("%w: %w", object.ErrCorrupt, err)
	}
	return Ref{Name: name, ID: id}, nil
}

// looseRef returns what is in the file of a ref. The error is fs.ErrNotExist
// where a folder has its name, or a file that of its folder.
func (r *Repo) looseRef(name string) (string, error) {
	file := filepath.Join(r.common, filepath.FromSlash(name))
	if name == "HEAD" {
		file = filepath.Join(r.dir, name)
	}
	text, err := readFile(file)
	if err == nil {
		return strings.TrimSpace(text), nil
	}
	if info, statErr := os.Stat(file); errors.Is(err, syscall.ENOTDIR) || statErr == nil && info.IsDir() {
		err = fs.ErrNotExist
	}
	return "", err
}

// peel returns what a tag leads to; zero for other objects, present or not.
func (r *Repo) peel(id object.ID) (object.ID, error) {
	var peeled object.ID
	for range maxPeel {
		t, _, err := r.Stat(id)
		if errors.Is(err, fs.ErrNotExist) {
			return peeled, nil
		}
		if err != nil || t != object.Tag {
			return peeled, err
		}
		data, err := object.Read(r, id, object.Tag, maxTag)
		if err != nil {
			return peeled, err
		}
		tag, err := object.ParseTag(data)
		if err != nil {
			return peeled, fmt.Errorf("tag %v: %w", id, err)
		}
		id, peeled = tag.Object, tag.Object
	}
	return peeled, fmt.Errorf("%w: more than %d tags in a row", object.ErrCorrupt, maxPeel)
}

// packedRefs reads the file packed-refs: lines of an ID and a name, each followed
// for a tag by a line of "^" and the ID that it leads to.
func (r *Repo) packedRefs() (map[string]Ref, error) {
	refs := make(map[string]Ref)
	file := filepath.Join(r.common, "packed-refs")
	f, err := openFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return refs, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxPacked)
	last := ""
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		hex, name, _ := strings.Cut(strings.TrimPrefix(line, "^"), " ")
		id, err := object.ParseID(hex)
		if err != nil || (line[0] == '^') != (name == "") || line[0] == '^' && last == "" {
			return nil, fmt.Errorf("%s: %w: line %.80q", file, object.ErrCorrupt, line)
		}
		if line[0] == '^' {
			ref := refs[last]
			ref.Peeled = id
			refs[last] = ref
			continue
		}
		refs[name] = Ref{Name: name, ID: id}
		last = name
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return refs, nil
}
