package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// A Ledger keeps the status of objects in a directory, so that the next run
// knows what this one did. Load and Save are made for the [Reconciler].
//
// Each object has a file KIND/NAMESPACE/NAME.yaml, the whole document as it was
// last reconciled with its status, and beside it NAME.state, what its kind
// remembers if anything. People may read the files, and delete them: what is lost is
// observed again. Directories have mode 0700 and files 0600, since a spec may
// hold credentials in its URL.
//
// A file is replaced atomically, and Save returns when it has reached the
// disk. The status is written before the state: a crash in between leaves a
// state that is older than its status. All access is confined to the
// directory. One object must not be saved twice at once; the Reconciler sees
// to it.
type Ledger struct {
	Dir string // created when it does not exist
}

// maxSaved bounds the size of a file that Load reads, in bytes.
const maxSaved = 16 << 20

// Load sets the status of obj to the saved one, which may be none, and returns
// the saved state. A generation of 0, which is what a document has that never
// was in a cluster, becomes the saved one, plus 1 if the spec has changed since.
//
// The error says which file cannot be read; then obj has no status.
func (l *Ledger) Load(_ context.Context, obj Object) (State, error) {
	statusOf(obj).SetZero()
	address, err := Address(obj)
	if err != nil {
		return nil, err
	}
	defer func() { AssignGeneration(obj, nil) }() // unless the saved document decides
	root, err := l.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	text, err := read(root, address+".yaml", maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = restore(obj, text)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %s is damaged, delete or mend it: %w", filepath.Join(l.Dir, filepath.FromSlash(address)+".yaml"), err)
	}
	state, err := read(root, address+".state", maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return state, err
}

// open returns the directory, nil when there is none yet or it cannot be opened.
func (l *Ledger) open() (*os.Root, error) {
	root, err := os.OpenRoot(l.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return root, nil
}

// restore fills in status and generation of obj from the saved document.
func restore(obj Object, text []byte) error {
	saved := blank(obj)
	if err := yaml.Unmarshal(text, saved); err != nil {
		return err
	}
	statusOf(obj).Set(statusOf(saved))
	AssignGeneration(obj, saved)
	return nil
}

// Save makes the document of obj, with its status, and the state durable.
func (l *Ledger) Save(_ context.Context, obj Object, state State) error {
	address, err := Address(obj)
	if err != nil {
		return err
	}
	text, err := EncodeYAML(obj)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	root, err := os.OpenRoot(l.Dir)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer root.Close()
	for _, file := range []struct {
		name string
		data []byte
	}{{address + ".yaml", text}, {address + ".state", state}} {
		if err := keep(root, file.name, file.data); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	return nil
}

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
		if !d.Type().IsRegular() || path.Ext(name) != ".yaml" || strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		text, err := read(root, name, maxSaved)
		if err == nil {
			err = set.Decode(filepath.Join(l.Dir, filepath.FromSlash(name)), bytes.NewReader(text))
		}
		bad = append(bad, err)
		return nil
	})
	return set, errors.Join(append(bad, err)...)
}

// read returns the content of a file of at most limit bytes, a number of MiB.
func read(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, limit>>20)
	}
	return data, nil
}

// keep makes data the content of a file. What is there already is not written again.
func keep(root *os.Root, name string, data []byte) error {
	old, err := read(root, name, maxSaved)
	switch exists := err == nil; {
	case exists && len(data) == 0:
		err = root.Remove(name)
	case !exists && len(data) == 0, exists && bytes.Equal(old, data):
		err = nil
	default:
		err = replace(root, name, data)
	}
	if err != nil {
		return err
	}
	return syncDirs(root, path.Dir(name))
}

// replace writes data to a file beside name, and moves it there once it has
// reached the disk. That file has a fixed name, so that a crash leaves at most one.
func replace(root *os.Root, name string, data []byte) error {
	dir, base := path.Split(name)
	temp := dir + "." + base
	if err := root.MkdirAll(path.Clean(dir), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return root.Rename(temp, name)
}
