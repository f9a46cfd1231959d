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

// Limits for reading refs.
const (
	maxSymrefs = 5        // symbolic refs in a row
	maxPacked  = 64 << 10 // bytes in a line of packed-refs
)

// Refs returns the refs with the given full names (HEAD, refs/heads/main), or when
// exact is false those whose names begin with one of them, sorted by name. A name
// without a ref is no error, and neither is a symbolic ref that leads nowhere, such
// as the HEAD of an empty repository: both are left out.
func (r *Repo) Refs(exact bool, names ...string) ([]object.Ref, error) {
	wanted := make(map[string]bool)
	take := func(name string) {
		if slices.ContainsFunc(names, func(p string) bool { return name == p || !exact && strings.HasPrefix(name, p) }) {
			wanted[name] = true
		}
	}
	take("HEAD")
	// Refs move from files into packed-refs at any time, so packed-refs is read last.
	err := filepath.WalkDir(filepath.Join(r.common, "refs"), func(file string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was moved meanwhile, or there are none
		}
		if err == nil && !e.IsDir() && !strings.HasSuffix(file, ".lock") {
			take(filepath.ToSlash(strings.TrimPrefix(file, r.common+string(filepath.Separator))))
		}
		return err
	})
	var packed map[string]object.Ref
	if err == nil {
		packed, err = r.packedRefs()
	}
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	for name := range packed {
		take(name)
	}
	if exact { // also names that the walk has not seen
		for _, name := range names {
			wanted[name] = true
		}
	}
	var refs []object.Ref
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		ref, err := r.ref(packed, name, 0)
		if errors.Is(err, fs.ErrNotExist) { // or was moved since packed was read
			if packed, err = r.packedRefs(); err == nil {
				ref, err = r.ref(packed, name, 0)
			}
		}
		if err == nil && ref.Peeled.IsZero() {
			ref.Peeled, err = r.peel(ref.ID)
		}
		if err == nil {
			refs = append(refs, ref)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("ref %.200q: %w", name, err)
		}
	}
	return refs, nil
}

// ref returns the ref with the given name. Symbolic refs are followed.
func (r *Repo) ref(packed map[string]object.Ref, name string, depth int) (object.Ref, error) {
	if name != "HEAD" && !strings.HasPrefix(name, "refs/") || path.Clean(name) != name || !filepath.IsLocal(filepath.FromSlash(name)) {
		return object.Ref{}, fs.ErrNotExist
	}
	if depth > maxSymrefs {
		return object.Ref{}, fmt.Errorf("%w: more than %d symbolic refs in a row", object.ErrCorrupt, maxSymrefs)
	}
	file := filepath.Join(r.common, filepath.FromSlash(name))
	if name == "HEAD" {
		file = filepath.Join(r.dir, name)
	}
	text, err := readFile(file)
	if err != nil {
		if ref, ok := packed[name]; ok {
			return ref, nil
		}
		if info, statErr := os.Stat(file); errors.Is(err, syscall.ENOTDIR) || statErr == nil && info.IsDir() {
			err = fs.ErrNotExist // a folder has this name, or a file has that of a folder above
		}
		return object.Ref{}, err
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
		return object.Ref{}, fmt.Errorf("%w: %w", object.ErrCorrupt, err)
	}
	return object.Ref{Name: name, ID: id}, nil
}

// peel returns the object that a tag leads to; zero if id is no tag or is missing.
func (r *Repo) peel(id object.ID) (object.ID, error) {
	var peeled object.ID
	for range object.MaxTags {
		t, _, err := r.Stat(id)
		if errors.Is(err, fs.ErrNotExist) {
			return peeled, nil
		}
		if err != nil || t != object.Tag {
			return peeled, err
		}
		tag, err := object.ReadTag(r, id)
		if err != nil {
			return peeled, fmt.Errorf("tag %v: %w", id, err)
		}
		id, peeled = tag.Object, tag.Object
	}
	return peeled, fmt.Errorf("%w: more than %d tags in a row", object.ErrCorrupt, object.MaxTags)
}

// packedRefs reads the file packed-refs: lines of an ID and a name, each followed
// for a tag by a line of "^" and the ID that it leads to.
func (r *Repo) packedRefs() (map[string]object.Ref, error) {
	refs := make(map[string]object.Ref)
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
		refs[name] = object.Ref{Name: name, ID: id}
		last = name
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return refs, nil
}
