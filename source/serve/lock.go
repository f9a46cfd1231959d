package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
)

// A StoreLock is the exclusive lock of the directory of a store. A server holds it, or a program that changes statuses
// and artifacts there. The lock is released when the process ends.
type StoreLock struct{ file *os.File }

// A StoreNote tells other processes about the server that holds the lock of a store.
type StoreNote struct {
	PID    int    `json:"pid"` // 0: the server has not written its note yet
	URL    string `json:"url,omitempty"`
	Socket string `json:"socket,omitempty"` // absolute
}

// String describes the server in parentheses, to be appended to an error message; "" if PID is 0.
func (n StoreNote) String() string {
	switch {
	case n.PID == 0:
		return ""
	case n.URL == "":
		return fmt.Sprintf(" (process %d)", n.PID)
	}
	return fmt.Sprintf(" (process %d, at %s)", n.PID, n.URL)
}

const lockName = ".serve.lock"

// LockStore takes the lock of an existing directory. It waits for a fraction of a second if the lock is taken, because
// [NoteOf] takes it briefly. If another process holds the lock, the error names its server. The caller releases the lock.
func LockStore(dir string) (*StoreLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the store: %w", err)
	}
	for wait := time.Millisecond; ; wait *= 2 {
		free, err := durable.TryLock(f)
		if free && err == nil {
			return &StoreLock{f}, nil
		}
		if err == nil && wait > 300*time.Millisecond {
			err = fmt.Errorf("the store %s is used by another server%s: stop it first, or use another store", dir, readNote(f))
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		time.Sleep(wait)
	}
}

// Tell writes a note for other processes. It sets the PID of the note to that of this process.
func (l *StoreLock) Tell(note StoreNote) error {
	note.PID = os.Getpid()
	text, err := json.Marshal(note)
	if err == nil {
		_, err = l.file.WriteAt(append(text, '\n'), 0)
	}
	return err
}

// Release erases the note and releases the lock. It does not delete the file: otherwise two servers could each
// lock a different file of the same name.
func (l *StoreLock) Release() error { return errors.Join(l.file.Truncate(0), l.file.Close()) }

// NoteOf returns the note of the server that holds the lock of a directory, nil if no process holds it.
func NoteOf(dir string) (*StoreNote, error) {
	f, err := os.Open(filepath.Join(dir, lockName)) // a store may be read-only
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	free, err := durable.TryLock(f)
	if free || err != nil {
		return nil, err
	}
	note := readNote(f)
	return &note, nil
}

// readNote returns the note in a file, the zero StoreNote if none was written yet.
func readNote(f *os.File) (note StoreNote) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<10))
	if err != nil || json.Unmarshal(text, &note) != nil {
		return StoreNote{}
	}
	return note
}
