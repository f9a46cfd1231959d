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

// A StoreLock is held by the server of the directory of a store, or by a program that changes statuses and artifacts
// there. There is one at a time; it ends with the process.
type StoreLock struct{ file *os.File }

// A StoreNote is what the server that has the lock of a store tells others.
type StoreNote struct {
	PID    int    `json:"pid"` // 0: the server has not come so far
	URL    string `json:"url,omitempty"`
	Socket string `json:"socket,omitempty"` // absolute
}

// String names the server behind a note, in an error.
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

// LockStore takes the lock of a directory, which exists. It waits for a moment: a caller of [NoteOf] has the lock
// while it looks. The error of a lock that is taken names the server.
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

// Tell leaves a note for others, with the number of this process.
func (l *StoreLock) Tell(note StoreNote) error {
	note.PID = os.Getpid()
	text, err := json.Marshal(note)
	if err == nil {
		_, err = l.file.WriteAt(append(text, '\n'), 0)
	}
	return err
}

// Release gives the lock back. The file stays: without it two servers could have
// locked files of one name.
func (l *StoreLock) Release() error { return errors.Join(l.file.Truncate(0), l.file.Close()) }

// NoteOf returns the note of the server that has the lock of a directory, nil if there is none.
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

// readNote returns the note in a file, an empty one if the server has not come so far.
func readNote(f *os.File) (note StoreNote) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<10))
	if err != nil || json.Unmarshal(text, &note) != nil {
		return StoreNote{}
	}
	return note
}
