package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/durable"
)

// List decodes all saved documents, ordered by name. The error joins an error for each document
// that cannot be read; the others are in the set.
func (l *Ledger) List() (*Set, error) {
	set := &Set{saved: true}
	root, err := l.open()
	if errors.Is(err, fs.ErrNotExist) {
		return set, nil
	}
	if err != nil {
		return set, fmt.Errorf("ledger: %w", err)
	}
	defer root.Close()
	var errs []error
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		if !d.Type().IsRegular() || path.Ext(name) != documentFile || strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		text, err := read(root, name, maxSaved)
		if err == nil {
			err = set.Decode(l.file(name), bytes.NewReader(text))
		}
		errs = append(errs, err)
		return nil
	})
	return set, errors.Join(append(errs, err)...)
}

// Object decodes the saved document of one object, with its status. The error wraps fs.ErrNotExist
// if there is none.
func (l *Ledger) Object(ref Reference) (Object, error) {
	text, name, err := l.getOf(ref, documentFile, maxSaved)
	if err != nil {
		return nil, fmt.Errorf("ledger: saved %s: %w", ref, err)
	}
	set := &Set{saved: true}
	if err := set.Decode(l.file(name), bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if len(set.Objects) != 1 || ReferenceTo(set.Objects[0]) != ref {
		return nil, l.damaged(name, fmt.Errorf("it is not the document of %s", ref))
	}
	return set.Objects[0], nil
}

// getOf returns the content of a file of an object, and its name.
func (l *Ledger) getOf(ref Reference, extension string, limit int64) (text []byte, name string, err error) {
	address, err := ref.address()
	if err == nil {
		text, err = l.get(address+extension, limit)
	}
	return text, address + extension, err
}

// References returns all objects for which the ledger has a file other than a [Suspension], ordered
// by kind, namespace and name. It reads only directories.
func (l *Ledger) References() ([]Reference, error) {
	return l.references(documentFile, stateFile, removedFile)
}

// Removed returns the times since when documents are missing, as set by [Ledger.SetRemoved].
func (l *Ledger) Removed() (map[Reference]time.Time, error) {
	refs, err := l.references(removedFile)
	all := make(map[Reference]time.Time, len(refs))
	for _, ref := range refs {
		text, name, failed := l.getOf(ref, removedFile, maxSuspension)
		var since time.Time
		if failed == nil {
			since, failed = time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
		}
		if failed == nil {
			all[ref] = since
		} else if !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, l.damaged(name, failed))
		}
	}
	return all, err
}

// SetRemoved durably records that the document of an object has been missing since that time; the
// zero time means that it is not missing.
func (l *Ledger) SetRemoved(ref Reference, since time.Time) error {
	address, err := ref.address()
	switch {
	case err != nil:
	case !since.IsZero():
		err = l.put(address+removedFile, since.UTC().AppendFormat(nil, time.RFC3339+"\n"))
	default:
		if err = l.removeFiles(ref, removedFile); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("ledger: note that %s is missing: %w", ref, err)
	}
	return nil
}

// Remove removes all files of an object, the document first. After a crash in between,
// [Ledger.References] still returns the object.
func (l *Ledger) Remove(ref Reference) error {
	err := l.removeFiles(ref, documentFile, stateFile, suspensionFile, removedFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ledger: remove %s: %w", ref, err)
	}
	return nil
}

// Forget removes an object from the ledger and from a store. It removes the status first, so that a
// status never names a missing artifact.
func (l *Ledger) Forget(ctx context.Context, store *artifact.Store, ref Reference) error {
	dir, err := ref.address()
	if err != nil {
		return err
	}
	unlock, err := store.Lock(ctx, dir)
	if err != nil {
		return err
	}
	if err = l.Remove(ref); err == nil {
		err = store.Remove(dir)
	}
	unlock()
	if err == nil {
		err = store.Tidy(dir)
	}
	return err
}

// MadeBy returns the saved objects that the generator made, even if it does not list them any more.
func (l *Ledger) MadeBy(generator Reference) (outputs []Reference, err error) {
	all, err := l.references(documentFile)
	for _, ref := range all {
		if ref.Kind != "ExternalArtifact" || ref.Namespace != generator.Namespace {
			continue
		}
		obj, _ := l.Object(ref) // skip documents that cannot be read
		if e, is := obj.(*ExternalArtifact); is && e.Spec.SourceRef != nil {
			if by := e.Spec.SourceRef; generator == (Reference{by.Kind, by.Namespace, by.Name}) {
				outputs = append(outputs, ref)
			}
		}
	}
	return outputs, err
}

// references returns the objects that have a file with one of the extensions.
func (l *Ledger) references(extensions ...string) ([]Reference, error) {
	root, err := l.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer root.Close()
	var refs []Reference
	for i := range kinds {
		dir := strings.ToLower(kinds[i].name)
		fs.WalkDir(root.FS(), dir, func(file string, d fs.DirEntry, failed error) error {
			parts, base, extension := strings.Split(file, "/"), path.Base(file), path.Ext(file)
			switch {
			case failed != nil && !errors.Is(failed, fs.ErrNotExist):
				err = errors.Join(err, fmt.Errorf("ledger: %w", failed))
			case failed != nil:
			case file == dir && !d.IsDir():
				err = errors.Join(err, fmt.Errorf("ledger: %s is not a directory", l.file(dir)))
			case d.IsDir() && base[0] == '.':
				return fs.SkipDir
			case len(parts) == 3 && d.Type().IsRegular() && base[0] != '.' && slices.Contains(extensions, extension):
				refs = append(refs, Reference{kinds[i].name, parts[1], strings.TrimSuffix(base, extension)})
			}
			return nil
		})
	}
	slices.SortFunc(refs, func(a, b Reference) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return slices.Compact(refs), err
}

// A Suspension stops the reconciliation of an object, by a command instead of its spec. Servers
// respect it; the fetch command does not.
type Suspension struct {
	By     string    `json:"by,omitempty"`     // the user who suspended it
	Reason string    `json:"reason,omitempty"` // why
	Since  time.Time `json:"since"`
}

// Suspend durably sets the suspension of the object and replaces an existing one. The object need
// not exist. The error wraps [ErrInvalid] for a name that no object can have.
func (l *Ledger) Suspend(ref Reference, s Suspension) error {
	s.Since = s.Since.UTC().Truncate(time.Second)
	text, err := yaml.Marshal(s)
	var address string
	if err == nil {
		address, err = ref.address()
	}
	if err == nil {
		err = l.put(address+suspensionFile, text)
	}
	if err != nil {
		return fmt.Errorf("suspend %s: %w", ref, err)
	}
	return nil
}

// Resume durably removes the suspension of an object. The error wraps fs.ErrNotExist if there is
// none.
func (l *Ledger) Resume(ref Reference) error {
	if err := l.removeFiles(ref, suspensionFile); err != nil {
		return fmt.Errorf("resume %s: %w", ref, err)
	}
	return nil
}

// Suspension returns the suspension of an object, or nil if there is none. If its file cannot be
// read, the object is suspended too: Suspension then returns both a suspension with that reason and
// an error. An empty file also suspends the object, since the file's modification time.
func (l *Ledger) Suspension(ref Reference) (*Suspension, error) {
	text, name, err := l.getOf(ref, suspensionFile, maxSuspension)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, ErrInvalid) {
		return nil, fmt.Errorf("suspension of %s: %w", ref, err)
	}
	s := new(Suspension)
	if err == nil {
		err = yaml.Unmarshal(text, s)
	}
	if err != nil {
		return &Suspension{Reason: "its file cannot be read"}, l.damaged(name, err)
	}
	if info, err := os.Lstat(l.file(name)); s.Since.IsZero() && err == nil {
		s.Since = info.ModTime().UTC().Truncate(time.Second)
	}
	return s, nil
}

// removeFiles durably removes files of an object. The error wraps fs.ErrNotExist if the last of them does
// not exist.
func (l *Ledger) removeFiles(ref Reference, extensions ...string) error {
	address, err := ref.address()
	if err != nil {
		return err
	}
	root, err := l.open()
	if err != nil {
		return err
	}
	defer root.Close()
	for _, extension := range extensions {
		root.Remove(durable.TempName(address + extension)) // left by a killed writer
		if err = root.Remove(address + extension); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	dir := path.Dir(address)
	if err1 := durable.SyncUp(root, dir); err1 != nil && !errors.Is(err1, fs.ErrNotExist) {
		return err1
	}
	for dir != "." && root.Remove(dir) == nil { // up to the first that is not empty
		dir = path.Dir(dir)
	}
	return err
}
