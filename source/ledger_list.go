package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// List decodes all saved documents, in the order of their names. The error
// joins one for each that cannot be read; the others are in the set.
func (l *Ledger) List() (*Set, error) {
	set := new(Set)
	root, err := l.open()
	if root == nil {
		return set, err
	}
	defer root.Close()
	var bad []error
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			bad = append(bad, err)
			return nil
		}
		if !d.Type().IsRegular() || path.Ext(name) != documentFile || strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		text, err := read(root, name, maxSaved)
		if err == nil {
			err = set.Decode(l.file(name), bytes.NewReader(text))
		}
		bad = append(bad, err)
		return nil
	})
	return set, errors.Join(append(bad, err)...)
}

// Object decodes the saved document of one object, with its status. The error
// wraps fs.ErrNotExist when there is none.
func (l *Ledger) Object(ref Reference) (Object, error) {
	address, err := ref.address()
	if err != nil {
		return nil, fmt.Errorf("saved %s: %w", ref, err)
	}
	root, err := l.open()
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, fmt.Errorf("saved %s: %w", ref, fs.ErrNotExist)
	}
	defer root.Close()
	text, err := read(root, address+documentFile, maxSaved)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	set := new(Set)
	if err := set.Decode(l.file(address+documentFile), bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if len(set.Objects) != 1 || ReferenceTo(set.Objects[0]) != ref {
		return nil, fmt.Errorf("ledger: %s is damaged, delete or mend it: it is not the document of %s", l.file(address+documentFile), ref)
	}
	return set.Objects[0], nil
}

// References returns the names of all objects that something but a
// [Suspension] is saved of, in the order of kind, namespace and name. It reads
// directories only.
func (l *Ledger) References() ([]Reference, error) {
	return l.references(documentFile, stateFile, removedFile)
}

// Removed returns since when documents are missing, as [Ledger.SetRemoved] had it.
func (l *Ledger) Removed() (map[Reference]time.Time, error) {
	refs, err := l.references(removedFile)
	all := make(map[Reference]time.Time, len(refs))
	root, err1 := l.open()
	if root == nil {
		return all, errors.Join(err, err1)
	}
	defer root.Close()
	for _, ref := range refs {
		address, err1 := ref.address()
		if err1 == nil {
			var text []byte
			if text, err1 = read(root, address+removedFile, maxHold); err1 == nil {
				all[ref], err1 = time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
			}
		}
		if err1 != nil && !errors.Is(err1, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("ledger: %s is damaged, delete it: %w", l.file(address+removedFile), err1))
			delete(all, ref)
		}
	}
	return all, err
}

// SetRemoved makes durable that the document of an object is missing since
// then; the zero time says that it is not.
func (l *Ledger) SetRemoved(ref Reference, since time.Time) error {
	var err error
	if since.IsZero() {
		if err = l.drop(ref, removedFile); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		err = l.put(ref, removedFile, since.UTC().AppendFormat(nil, time.RFC3339+"\n"))
	}
	if err != nil {
		return fmt.Errorf("ledger: note that %s is missing: %w", ref, err)
	}
	return nil
}

// Remove removes all that is saved of an object, the document first. What a
// crash leaves is in [Ledger.References].
func (l *Ledger) Remove(ref Reference) error {
	if address, err := ref.address(); err == nil {
		l.discard(address)
	}
	err := l.drop(ref, documentFile, stateFile, holdFile, removedFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ledger: remove %s: %w", ref, err)
	}
	return nil
}

// discard removes what writers of an object left that were killed.
func (l *Ledger) discard(address string) {
	root, _ := l.open()
	if root == nil {
		return
	}
	defer root.Close()
	for _, extension := range []string{documentFile, stateFile, holdFile, removedFile} {
		root.Remove(tempOf(address + extension))
	}
}

// references returns the names of the objects that have a file with one of the extensions.
func (l *Ledger) references(extensions ...string) ([]Reference, error) {
	root, err := l.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	found := make(map[Reference]bool)
	for i := range kinds {
		dir := strings.ToLower(kinds[i].name)
		for _, space := range entries(root.FS(), dir, &err) {
			if !space.IsDir() || strings.HasPrefix(space.Name(), ".") {
				continue
			}
			for _, file := range entries(root.FS(), path.Join(dir, space.Name()), &err) {
				extension := path.Ext(file.Name())
				name := strings.TrimSuffix(file.Name(), extension)
				if name != "" && name[0] != '.' && file.Type().IsRegular() && slices.Contains(extensions, extension) {
					found[Reference{kinds[i].name, space.Name(), name}] = true
				}
			}
		}
	}
	refs := make([]Reference, 0, len(found))
	for ref := range found {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b Reference) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return refs, err
}

// entries returns what is in a directory, which need not exist. It adds to err.
func entries(fsys fs.FS, dir string, err *error) []fs.DirEntry {
	list, err1 := fs.ReadDir(fsys, dir)
	if err1 != nil && !errors.Is(err1, fs.ErrNotExist) {
		*err = errors.Join(*err, fmt.Errorf("ledger: %w", err1))
	}
	return list
}

// A Suspension is an order to leave an object alone, given by a command and not
// by its spec. Servers keep to it; fetch, which is a command itself, does not.
type Suspension struct {
	By     string    `json:"by,omitempty"`     // who gave it
	Reason string    `json:"reason,omitempty"` // what for
	Since  time.Time `json:"since"`
}

// Suspend makes a suspension of the object durable, in place of the one there is.
// The object need not exist. The error wraps [ErrInvalid] for a name that no
// object can have.
func (l *Ledger) Suspend(ref Reference, s Suspension) error {
	s.Since = s.Since.UTC().Truncate(time.Second)
	text, err := yaml.Marshal(s)
	if err == nil {
		err = l.put(ref, holdFile, text)
	}
	if err != nil {
		return fmt.Errorf("suspend %s: %w", ref, err)
	}
	return nil
}

// Resume ends the suspension of an object, durably. The error wraps
// fs.ErrNotExist when there is none.
func (l *Ledger) Resume(ref Reference) error {
	if err := l.drop(ref, holdFile); err != nil {
		return fmt.Errorf("resume %s: %w", ref, err)
	}
	return nil
}

// Suspension returns the suspension of an object, nil when there is none. A
// file that cannot be read suspends its object too: then there are both a
// suspension that says so and an error. An empty one is as good as any; its
// time counts.
func (l *Ledger) Suspension(ref Reference) (*Suspension, error) {
	address, err := ref.address()
	if err != nil {
		return nil, fmt.Errorf("suspension of %s: %w", ref, err)
	}
	if _, err := os.Lstat(l.file(address + holdFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	root, err := l.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	s, err := readHold(root, address+holdFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		err = fmt.Errorf("ledger: %s is damaged, delete or mend it: %w", l.file(address+holdFile), err)
		s.Reason = "its file cannot be read"
	}
	return &s, err
}

func readHold(root *os.Root, name string) (s Suspension, err error) {
	text, err := read(root, name, maxHold)
	if err != nil {
		return s, err
	}
	if err := yaml.Unmarshal(text, &s); err != nil {
		return Suspension{}, err
	}
	if s.Since.IsZero() {
		if info, err := root.Stat(name); err == nil {
			s.Since = info.ModTime().UTC().Truncate(time.Second)
		}
	}
	return s, nil
}

// Suspensions returns all suspensions. The error joins one for each file that
// cannot be read; its object is suspended all the same.
func (l *Ledger) Suspensions() (map[Reference]Suspension, error) {
	refs, err := l.references(holdFile)
	all := make(map[Reference]Suspension, len(refs))
	for _, ref := range refs {
		s, err1 := l.Suspension(ref)
		if err = errors.Join(err, err1); s != nil {
			all[ref] = *s
		}
	}
	return all, err
}

// put makes data the content of a file of an object.
func (l *Ledger) put(ref Reference, extension string, data []byte) error {
	address, err := ref.address()
	if err != nil {
		return err
	}
	root, err := l.create()
	if err != nil {
		return err
	}
	defer root.Close()
	return l.write(root, address+extension, data)
}

// drop removes files of an object, durably. The error wraps fs.ErrNotExist when
// the last of them does not exist.
func (l *Ledger) drop(ref Reference, extensions ...string) error {
	address, err := ref.address()
	if err != nil {
		return err
	}
	root, err := l.open()
	if err != nil {
		return err
	}
	if root == nil {
		return fs.ErrNotExist
	}
	defer root.Close()
	for _, extension := range extensions {
		if err = root.Remove(address + extension); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	dir := path.Dir(address)
	if err1 := syncDirs(root, dir); err1 != nil && !errors.Is(err1, fs.ErrNotExist) {
		return err1
	}
	for dir != "." && root.Remove(dir) == nil { // as far as they are empty
		dir = path.Dir(dir)
	}
	return err
}
