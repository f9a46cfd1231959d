package local

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
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
	packed, err := r.packedRefs()
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	wanted := names
	if !exact {
		if wanted, err = r.match(packed, names); err != nil {
			return nil, fmt.Errorf("read refs: %w", err)
		}
	}
	var refs []Ref
	for _, name := range wanted {
		ref, err := r.ref(packed, name, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && ref.Peeled.IsZero() {
			ref.Peeled, err = r.peel(ref.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("ref %.200q: %w", name, err)
		}
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs, nil
}

// match returns the names that begin with one of the prefixes.
func (r *Repo) match(packed map[string]Ref, prefixes []string) ([]string, error) {
	found := make(map[string]bool)
	add := func(name string) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			found[name] = true
		}
	}
	add("HEAD")
	for name := range packed {
		add(name)
	}
	err := filepath.WalkDir(filepath.Join(r.common, "refs"), func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.common, file)
		if err == nil && !e.IsDir() && !strings.HasSuffix(name, ".lock") {
			add(filepath.ToSlash(name))
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	return names, nil
}

// ref returns the ref with the given name. Symbolic refs are followed.
func (r *Repo) ref(packed map[string]Ref, name string, depth int) (Ref, error) {
	if name != "HEAD" && !strings.HasPrefix(name, "refs/") || path.Clean(name) != name || !filepath.IsLocal(filepath.FromSlash(name)) {
		return Ref{}, fs.ErrNotExist
	}
	if depth > maxSymrefs {
		return Ref{}, fmt.Errorf("%w: more than %d symbolic refs in a row", object.ErrCorrupt, maxSymrefs)
	}
	dir := r.common
	if name == "HEAD" {
		dir = r.dir
	}
	text, err := readFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		if ref, ok := packed[name]; ok {
			return ref, nil
		}
		info, statErr := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, syscall.ENOTDIR) || statErr == nil && info.IsDir() {
			err = fs.ErrNotExist
		}
		return Ref{}, err
	}
	text = strings.TrimSpace(text)
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
	f, err := os.Open(file)
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
