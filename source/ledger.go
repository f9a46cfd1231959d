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
	"reflect"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/durable"
)

// A Ledger stores the status of objects in a directory, so that the next run knows the results of
// this one. Load and Save implement the functions of a [Reconciler].
//
// Each object has a file KIND/NAMESPACE/NAME.yaml: the whole document as it was last reconciled,
// with its status. Beside it are NAME.state, the [State] of the origin if it has one; NAME.hold,
// the [Suspension] if there is one; and NAME.removed, the time since when its document is missing.
// People may read the files and delete them; lost data is observed again. Directories have mode
// 0700 and files 0600, because the URL in a spec may contain credentials.
//
// A file is replaced atomically, and only if its content changes; Save returns when the file has
// reached the disk. The status is written before the state, so a crash between the two leaves a
// state that is older than its status. All access is confined to the directory, which must not be a
// symbolic link out of its parent directory. Callers must not save one object concurrently; the
// Reconciler ensures this. Otherwise a Ledger is safe for concurrent use.
type Ledger struct {
	Dir string // created if it does not exist
}

// Maximum sizes of files, in bytes.
const (
	maxSaved      = 16 << 20
	maxSuspension = 1 << 20
)

// Extensions of the files of an object.
const (
	documentFile   = ".yaml"
	stateFile      = ".state"
	suspensionFile = ".hold"
	removedFile    = ".removed"
)

// Load sets the status of obj to the saved one, which may be empty, and returns the saved state. If
// the generation is 0, because the document was never in a cluster, it becomes the saved one, plus
// 1 if the spec has changed since.
//
// The error names the file that cannot be read; obj then has no status.
func (l *Ledger) Load(_ context.Context, obj Object) (State, error) {
	SetStatus(obj, nil)
	address, err := Address(obj)
	if err != nil {
		return nil, err
	}
	saved, err := l.saved(address, obj)
	SetStatus(obj, saved)
	AssignGeneration(obj, saved)
	if saved == nil || err != nil {
		return nil, err
	}
	state, err := l.get(address+stateFile, maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return state, err
}

// saved returns the object saved at the address of obj, or nil if there is none.
func (l *Ledger) saved(address string, obj Object) (Object, error) {
	text, err := l.get(address+documentFile, maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	saved := newLike(obj)
	if err == nil {
		err = yaml.Unmarshal(text, saved) // lenient: another version of this program, or a person, may have written it
	}
	if err != nil {
		return nil, l.damaged(address+documentFile, err)
	}
	saved.Head().spelled = saved.Head().Kind
	Default(saved)
	return saved, nil
}

// Save durably writes the document of obj, with its status, and the state.
func (l *Ledger) Save(_ context.Context, obj Object, state State) error {
	address, err := Address(obj)
	if err != nil {
		return err
	}
	if saved, failed := l.saved(address, obj); failed != nil || !reflect.DeepEqual(saved, obj) {
		var text []byte
		if text, err = EncodeYAML(obj); err == nil {
			err = l.put(address+documentFile, text)
		}
	}
	if err == nil {
		err = l.put(address+stateFile, state)
	}
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// file returns the path of a file of the ledger.
func (l *Ledger) file(name string) string { return filepath.Join(l.Dir, filepath.FromSlash(name)) }

func (l *Ledger) damaged(name string, err error) error {
	return fmt.Errorf("ledger: %s is damaged, delete or mend it: %w", l.file(name), err)
}

// open opens the directory. It fails if the directory is a link out of its parent directory.
func (l *Ledger) open() (*os.Root, error) {
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

// get returns the content of a file of at most limit bytes. The error wraps
// fs.ErrNotExist if there is none.
func (l *Ledger) get(name string, limit int64) ([]byte, error) {
	root, err := l.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return read(root, name, limit)
}

// read returns the content of a file of at most limit bytes, which must be a number of MiB.
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

// put durably makes data the content of a file; empty data removes the file. It does not write a
// file that already has this content.
func (l *Ledger) put(name string, data []byte) error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	root, err := l.open()
	if err != nil {
		return err
	}
	defer root.Close()
	old, err := read(root, name, maxSaved)
	switch none := errors.Is(err, fs.ErrNotExist); {
	case none && len(data) == 0, err == nil && len(data) > 0 && bytes.Equal(old, data):
		return nil
	case len(data) == 0:
		if err = root.Remove(name); err == nil {
			err = durable.SyncUp(root, path.Dir(name))
		}
	default:
		err = durable.ReplaceIn(root, name, data)
	}
	if errors.Is(err, fs.ErrNotExist) && len(data) == 0 {
		return nil // another process has removed it
	}
	return err
}
