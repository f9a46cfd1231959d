// Package journal keeps the last events of sources in files, to be read back
// and followed. Its rules:
//
//   - Append never waits for the disk. Up to [MaxWaiting] events wait for it;
//     those beyond, and those that the disk does not take, are lost. As soon as
//     the disk takes events again, one with the reason [ReasonLost] says how
//     many were.
//   - The ID of an event is higher than those of all before it, also after a
//     restart, a crash, and when the files were deleted. IDs are not contiguous.
//   - Events of severity trace, one of each run that found nothing new, are not
//     kept unless [Config] asks for them.
//   - A process may be killed at any time: an event is in the journal or it is
//     not. What was written reaches the disk at the latest when a file is full
//     and on Close, so that a system that crashes may lose the last events.
//   - One process writes. Any number of others may read, with [Read], at any time.
//   - A reader needs memory for one file, an eighth of the journal, and for what
//     it returns. One that follows needs some 100 kB, however slow it is; when
//     it is slower than the journal is kept, an event says so.
//
// A journal is a directory of mode 0700. Its files have mode 0600 and the name
// ID.jsonl, ID being that of the first event, 20 digits long. They hold a JSON object
// a line, an [Entry], and are only ever appended to. When all are larger than
// the journal may be, the oldest is removed. Lines that are no entries are
// passed over, and so is what follows the last line break. The file lock belongs to who writes.
package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/source"
)

// Limits of a journal.
const (
	MaxWaiting = 4096 // events that wait for the disk, also those with MaxBytes of text

	maxWaitingBytes = 8 << 20
	maxLine         = 256 << 10 // bytes of one entry; one that is longer loses its metadata and the end of its message
	segments        = 8         // files of a journal that is full
	defaultBytes    = 16 << 20
	minBytes        = segments * maxLine
	mostBytes       = segments * maxSegment
)

// ReasonLost is the reason of an event about events that the journal does not
// have. It involves no object.
const ReasonLost = "EventsLost"

// A Config says where events are kept.
type Config struct {
	Dir    string           // created when it does not exist
	Bytes  int64            // of all files, at most; default 16 MiB, at least 2 MiB, at most 512 MiB
	Traces bool             // events of severity trace are kept as well
	Now    func() time.Time // default time.Now
	Report func(error)      // told when the disk takes no events, and when it does again; nil for nobody
}

// An Entry is one event of the journal.
type Entry struct {
	ID int64 `json:"id"` // grows
	source.Event
}

// A Journal keeps events. It is safe for concurrent use.
type Journal struct {
	config Config
	lock   *os.File
	done   chan struct{} // closed when the writer ended

	mu       sync.Mutex
	waiting  [][]byte // events in JSON
	bytes    int      // of them
	lost     int64    // events that came while too many were waiting
	closed   bool
	failed   error         // why the disk took no events the last time
	wake     chan struct{} // has a place for one; closed on Close
	end      position      // of what readers may read
	removed  int64         // first ID of the last file that was removed
	grown    chan struct{} // closed, and made anew, when end has moved
	finished bool          // nothing comes any more

	w writer // of the goroutine that writes
}

// Open opens the journal of a directory for writing. Its owner calls Close.
// The error is that of the file system, or says that another process writes.
func Open(c Config) (*Journal, error) {
	c.Bytes = min(max(cmp.Or(c.Bytes, defaultBytes), minBytes), mostBytes)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	lock, err := lockDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{config: c, lock: lock, done: make(chan struct{}), wake: make(chan struct{}, 1), grown: make(chan struct{})}
	j.w = writer{dir: c.Dir, bytes: c.Bytes, drop: j.drop}
	if err := j.w.open(c.Now()); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), lock.Close())
	}
	j.end = j.w.position()
	go j.write()
	return j, nil
}

// lockDir takes the lock of a directory, which ends with the process.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	taken, err := durable.TryLock(f)
	if err == nil && !taken {
		err = fmt.Errorf("%s: another process writes this journal", dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Append adds an event. It does not wait for the disk. After Close it does
// nothing.
func (j *Journal) Append(e source.Event) {
	rank, known := ranks[e.Severity]
	if !known || rank == ranks[trace] && !j.config.Traces {
		return
	}
	text := encode(e)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	if len(j.waiting) >= MaxWaiting || j.bytes+len(text) > maxWaitingBytes {
		j.lost++
		return
	}
	j.waiting = append(j.waiting, text)
	j.bytes += len(text)
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// encode returns an event in JSON, within the limit of a line.
func encode(e source.Event) []byte {
	const spare = 64 // bytes for the ID and the line break
	text, err := json.Marshal(e)
	if err == nil && len(text) <= maxLine-spare {
		return text
	}
	e.Metadata = nil
	if text, err = json.Marshal(e); err == nil && len(text) <= maxLine-spare {
		return text
	}
	cut := func(s string, n int) string { return s[:min(len(s), n)] } // a byte may be six in JSON
	o := e.InvolvedObject
	e.InvolvedObject = source.ObjectReference{APIVersion: cut(o.APIVersion, 1024), Kind: cut(o.Kind, 1024), Namespace: cut(o.Namespace, 1024), Name: cut(o.Name, 1024)}
	e.Reason, e.Controller, e.Instance = cut(e.Reason, 1024), cut(e.Controller, 1024), cut(e.Instance, 1024)
	e.Message = cut(e.Message, maxLine/16)
	if y := e.Timestamp.UTC().Year(); y < 0 || y > 9999 {
		e.Timestamp = time.Time{} // which JSON cannot hold
	}
	text, _ = json.Marshal(e)
	return text
}

// Close writes what is left. It ends those who follow, and returns why the last
// events could not be written.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	close(j.wake)
	j.mu.Unlock()
	<-j.done
	err := errors.Join(j.failed, j.w.close(), j.lock.Close())
	j.mu.Lock()
	j.finished = true
	close(j.grown)
	j.mu.Unlock()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// errClosed ends those who follow.
var errClosed = fmt.Errorf("journal: %w", fs.ErrClosed)

// Read returns the entries that a query selects, the oldest first. Events that
// were appended just now may be missing.
func (j *Journal) Read(ctx context.Context, q Query) ([]Entry, error) {
	j.mu.Lock()
	end := j.end
	j.mu.Unlock()
	return read(ctx, j.config.Dir, q, end)
}

// Read returns the entries of a directory that nobody need have open. A
// directory that does not exist has none.
func Read(ctx context.Context, dir string, q Query) ([]Entry, error) {
	return read(ctx, dir, q, position{})
}
