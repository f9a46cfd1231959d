package main

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

// A storeLock is the claim of a server to keep the sources of a store. There is
// one at a time; it ends with the process.
type storeLock struct{ file *os.File }

// A storeNote is what the server that has the lock tells others.
type storeNote struct {
	PID    int    `json:"pid"`
	URL    string `json:"url,omitempty"`
	Socket string `json:"socket,omitempty"` // absolute
}

func lockPath(store string) string { return filepath.Join(store, ".serve.lock") }

// lockStore takes the lock of a store, which exists. A command that looks whether
// somebody has the lock has it for a moment.
func lockStore(dir string) (*storeLock, error) {
	f, err := os.OpenFile(lockPath(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the store: %w", err)
	}
	for wait := time.Millisecond; ; wait *= 2 {
		free, err := durable.TryLock(f)
		switch {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock the store: %w", err), f.Close())
		case free:
			return &storeLock{f}, nil
		case wait > 300*time.Millisecond:
			note := readNote(f)
			f.Close()
			return nil, fmt.Errorf("the store %s is kept by another server%s: end it first, or give this one a store of its own with --store", dir, note)
		}
		time.Sleep(wait)
	}
}

// tell leaves a note for others.
func (l *storeLock) tell(note storeNote) error {
	note.PID = os.Getpid()
	text, err := json.Marshal(note)
	if err == nil {
		err = errors.Join(l.file.Truncate(0), second(l.file.WriteAt(append(text, '\n'), 0)))
	}
	return err
}

func second(_ int, err error) error { return err }

// release gives the lock back. The file stays: without it two servers could
// have locked files of one name.
func (l *storeLock) release() error {
	return errors.Join(l.file.Truncate(0), l.file.Close())
}

// keeperOf returns the note of the server that keeps a store now, nil when there is none.
func keeperOf(dir string) (*storeNote, error) {
	f, err := os.Open(lockPath(dir)) // a store may be read-only
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

// readNote returns the note of a lock; an empty one when the server has not come so far.
func readNote(f *os.File) (note storeNote) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<10))
	if err != nil || json.Unmarshal(text, &note) != nil {
		return storeNote{}
	}
	return note
}

// String names the server behind a note, in an error.
func (n storeNote) String() string {
	switch {
	case n.PID == 0:
		return ""
	case n.URL == "":
		return fmt.Sprintf(" (process %d)", n.PID)
	}
	return fmt.Sprintf(" (process %d, at %s)", n.PID, n.URL)
}
