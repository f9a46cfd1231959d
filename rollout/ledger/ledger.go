// Package ledger keeps the status of a rollout in a file, so that an analysis
// goes on where it was after its process has ended, in whatever way.
//
//   - A file has one owner at a time, of all processes.
//   - It is replaced as a whole: a reader finds the status before a save or the
//     one after it, also after a crash.
//   - It is its owner's alone (mode 0600), and says which canary it is of.
//   - Beside it stands what a person asks of the rollout, until its owner has
//     taken that up: see [Ask].
package ledger

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/rollout"
)

// ErrInUse is wrapped when another process, or another File, has the file.
var ErrInUse = errors.New("in use")

// maxSize is the size of a file that is read, in bytes.
const maxSize = 1 << 20

// A File is the kept status of one canary. It is not safe for concurrent use.
type File struct {
	path string
	lock *os.File
	of   owner
}

// An owner is the canary that a file is of.
type owner struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

func (o owner) String() string { return o.Namespace + "/" + o.Name }

// A record is the content of a file.
type record struct {
	owner
	Status rollout.Status `json:"status"`
}

// Open takes possession of the file path, which need not exist, for a canary.
// Its directory is created. The error wraps [ErrInUse] when somebody else has it.
func Open(path string, canary rollout.Metadata) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600) // beside it: a file that is replaced loses its lock
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	switch mine, err := durable.TryLock(lock); {
	case err != nil:
		return nil, fmt.Errorf("status: %w", errors.Join(err, lock.Close()))
	case !mine:
		lock.Close()
		return nil, fmt.Errorf("status %s: %w by another run", path, ErrInUse)
	}
	return &File{path, lock, owner{canary.Name, cmp.Or(canary.Namespace, rollout.DefaultNamespace)}}, nil
}

// Load returns the status, the zero one when none was saved.
func (f *File) Load() (rollout.Status, error) {
	r, err := read(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return rollout.Status{}, nil
	case err != nil:
		return rollout.Status{}, err
	case r.owner != f.of:
		return rollout.Status{}, fmt.Errorf("status %s is that of canary %s, not of %s", f.path, r.owner, f.of)
	}
	return r.Status, nil
}

// Read returns the status in the file path, and of which canary it is, whether
// or not the file has an owner. The error wraps [fs.ErrNotExist] when there is none.
func Read(path string) (canary rollout.Metadata, s rollout.Status, err error) {
	r, err := read(path)
	if err != nil {
		return rollout.Metadata{}, rollout.Status{}, err
	}
	return rollout.Metadata{Name: r.Name, Namespace: r.Namespace}, r.Status, nil
}

func read(path string) (r record, err error) {
	text, err := readFile(path)
	if err != nil {
		return r, fmt.Errorf("status: %w", err)
	}
	if err = json.Unmarshal(text, &r); err == nil {
		err = r.Status.Check()
	}
	if err != nil {
		return record{}, fmt.Errorf("status %s is damaged, delete or mend it: %w", path, err)
	}
	return r, nil
}

// readFile returns the content of a regular file.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // before it is opened: a pipe would wait for who writes
		err = fmt.Errorf("%s: want a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxSize)
	}
	return text, err
}

// Save replaces the status.
func (f *File) Save(s rollout.Status) error {
	text, err := json.MarshalIndent(record{f.of, s}, "", "  ")
	if err == nil {
		err = durable.Replace(f.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("status %s: %w", f.path, err)
	}
	return nil
}

// Path returns where the status is kept.
func (f *File) Path() string { return f.path }

// Close gives the file up.
func (f *File) Close() error { return f.lock.Close() }
