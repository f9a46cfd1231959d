package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// A Ledger keeps the status of objects in a directory, so that the next run
// knows what this one did. Load and Save are made for the [Reconciler].
//
// Each object has a file KIND/NAMESPACE/NAME.yaml, the whole document as it was
// last reconciled with its status, and beside it NAME.state, what its kind
// remembers if anything, NAME.hold, the [Suspension] if there is one, and
// NAME.removed, when its document was first missing. People may read the files,
// and delete them: what is lost is observed again. Directories have mode 0700
// and files 0600, since a spec may hold credentials in its URL. The file .memo
// is what a server remembers of all objects together.
//
// A file is replaced atomically, and Save returns when it has reached the
// disk. The status is written before the state: a crash in between leaves a
// state that is older than its status. All access is confined to the
// directory, which is no symbolic link out of the one that holds it. One object must not be saved twice at once; the Reconciler sees
// to it. Otherwise a Ledger may be used by several goroutines at once.
//
// A Ledger remembers what it read and wrote last, about 1 KiB of each object.
// What did not change since, as size, times and number of its file tell, is
// neither read nor written again; others may change a file at any time.
type Ledger struct {
	Dir string // created when it does not exist

	mu    sync.Mutex
	known map[string]memory // by address
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
	m := l.recall(address)
	if l.same(address+documentFile, &m.document) && m.restore(obj) {
		if state, ok := l.stateOf(address, &m); ok {
			l.remember(address, m)
			return state, nil
		}
		statusOf(obj).SetZero()
	}
	return l.load(address, obj)
}

// load is Load from the files.
func (l *Ledger) load(address string, obj Object) (State, error) {
	l.forget(address)
	root, err := l.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	var m memory
	text, err := m.document.read(root, address+documentFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = m.decode(obj, text)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %s is damaged, delete or mend it: %w", l.file(address+documentFile), err)
	}
	state, err := m.readState(root, address)
	if err == nil {
		l.remember(address, m)
	}
	return state, err
}

// Extensions of the files of an object.
const (
	documentFile = ".yaml"
	stateFile    = ".state"
	holdFile     = ".hold"
	removedFile  = ".removed"
)

// file returns the path of a file of the ledger.
func (l *Ledger) file(name string) string { return filepath.Join(l.Dir, filepath.FromSlash(name)) }

// open returns the directory, nil when there is none yet or it cannot be opened.
func (l *Ledger) open() (*os.Root, error) {
	root, err := l.root()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return root, nil
}

// create returns the directory, which it makes when there is none.
func (l *Ledger) create() (*os.Root, error) {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, err
	}
	return l.root()
}

// root opens the directory, unless it is a link that leads out of the one that holds it.
func (l *Ledger) root() (*os.Root, error) {
	parent, err := os.OpenRoot(filepath.Dir(l.Dir))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	root, err := parent.OpenRoot(filepath.Base(l.Dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Dir, err)
	}
	return root, nil
}

// Save makes the document of obj, with its status, and the state durable.
func (l *Ledger) Save(_ context.Context, obj Object, state State) error {
	address, err := Address(obj)
	if err != nil {
		return err
	}
	object, err := sumOf(obj)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	m := l.recall(address)
	if m.object != object || !l.has(address+documentFile, &m.document) || !m.state.holds(state) || !l.has(address+stateFile, &m.state) {
		l.forget(address)
		if err := l.save(address, obj, state, &m); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		m.learn(obj, object, state)
	}
	l.remember(address, m)
	return nil
}

// save is Save to the files.
func (l *Ledger) save(address string, obj Object, state State, m *memory) error {
	doc, err := written(obj)
	if err != nil {
		return err
	}
	root, err := l.create()
	if err != nil {
		return err
	}
	defer root.Close()
	content := sha256.Sum256(doc.AppendJSON(nil))
	if m.content != content || !l.has(address+documentFile, &m.document) {
		text, err := encodeYAML(doc)
		if err != nil {
			return fmt.Errorf("encode %s: %w", obj.Head(), err)
		}
		if err := m.document.write(root, address+documentFile, text); err != nil {
			return err
		}
		m.content = content
	}
	if m.state.holds(state) && l.has(address+stateFile, &m.state) {
		return nil
	}
	return m.state.write(root, address+stateFile, state)
}
