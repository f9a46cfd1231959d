// Package journal stores the latest events of sources in a file, and lets callers read and follow
// them.
//
// A journal is a directory of mode 0700. Its file events.jsonl of mode 0600 contains one
// [api.Event] per line, as JSON. A full file is renamed to events.old.jsonl and replaces the
// previous one. The latest 10,000 events can be read, also after a restart. Lines that are not
// valid events are ignored.
//
// IDs increase, even over restarts and if the files were deleted, but they are not contiguous. An
// event that cannot be written is still delivered to followers, but lost at the next start. Events
// are synced to disk when the file is full and on Close: a crash of the system may lose the latest
// events, a crash of the process does not.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

const (
	maxFile   = 8 << 20 // bytes
	maxEvents = 10_000  // kept in memory, for Read and Follow
)

// A Config configures a [Journal].
type Config struct {
	Dir    string           // created if it does not exist
	Now    func() time.Time // default time.Now
	Report func(error)      // called when writing events begins to fail, and when it works again; nil for no reports
}

// A Journal stores events. It is safe for concurrent use.
type Journal struct {
	config Config

	mu       sync.Mutex
	file     *os.File // events.jsonl
	size     int64    // of file, in bytes
	writeErr error    // why the last event could not be written, nil if it was
	id       int64    // of the last event
	events   []api.Event
	news     chan struct{} // closed and replaced with each event
	closed   bool
}

// Open opens the journal in a directory. The caller closes it.
func Open(c Config) (*Journal, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	j := &Journal{config: c, news: make(chan struct{})}
	err := os.MkdirAll(c.Dir, 0o700)
	for _, base := range []string{oldFile, newFile} {
		if err == nil {
			j.size, err = j.load(base)
		}
	}
	if err == nil {
		j.file, err = j.open()
	}
	if err == nil { // a killed process may leave an incomplete line
		err = j.file.Truncate(j.size)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j.id = max(j.id, c.Now().UnixMilli(), 1) // the time exceeds the IDs of events whose files were deleted
	return j, nil
}

const oldFile, newFile = "events.old.jsonl", "events.jsonl"

func (j *Journal) open() (*os.File, error) {
	return os.OpenFile(filepath.Join(j.config.Dir, newFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// load reads the events of a file, which need not exist, and returns the size of its complete lines in bytes.
func (j *Journal) load(base string) (int64, error) {
	f, err := os.Open(filepath.Join(j.config.Dir, base))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 2*maxFile)) // limited, because another program may have written the file
	for line := range bytes.Lines(text) {
		var e api.Event
		if line[len(line)-1] == '\n' && json.Unmarshal(line, &e) == nil && e.ID > 0 && ranks[e.Severity] > 0 {
			j.add(e)
		}
	}
	return int64(bytes.LastIndexByte(text, '\n') + 1), err
}

// add adds an event to those in memory.
func (j *Journal) add(e api.Event) {
	j.id = max(j.id, e.ID)
	j.events = append(j.events, e)
	if len(j.events) >= maxEvents+maxEvents/4 {
		j.events = slices.Clone(j.events[len(j.events)-maxEvents:])
	}
}

// Append stores an event and wakes followers. It ignores events of severity trace, and all events after Close.
// It reports write errors to Config.Report.
func (j *Journal) Append(event source.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ranks[event.Severity] < 2 || j.closed {
		return
	}
	e := api.Event{ID: j.id + 1, Event: event}
	text, err := json.Marshal(e)
	if err == nil {
		err = j.write(append(text, '\n'))
	}
	switch {
	case err != nil && j.writeErr == nil:
		j.config.Report(fmt.Errorf("journal: events are lost: %w", err))
	case err == nil && j.writeErr != nil:
		j.config.Report(errors.New("journal: events are written again"))
	}
	j.writeErr = err
	j.add(e)
	close(j.news)
	j.news = make(chan struct{})
}

// write appends a line to the file. If the file is full, it is first renamed to the old file.
func (j *Journal) write(line []byte) error {
	if j.size+int64(len(line)) > maxFile {
		err := os.Rename(j.file.Name(), filepath.Join(j.config.Dir, oldFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		next, err := j.open()
		if err != nil {
			return err
		}
		old := j.file
		j.file, j.size = next, 0
		if err := errors.Join(old.Sync(), old.Close()); err != nil {
			return err
		}
	}
	if _, err := j.file.Write(line); err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(len(line))
	return nil
}

// Close syncs the file to disk and ends [Journal.Follow]. It returns the error of the last write, if that failed.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	close(j.news)
	if err := errors.Join(j.writeErr, j.file.Sync(), j.file.Close()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// A Query selects events; zero fields select all.
type Query struct {
	Severity string                // least severity: trace, info or error; default info
	Since    time.Time             // no events before that time
	After    int64                 // only events with a higher ID
	Limit    int                   // only that many of the newest matching events; 0 for all
	Select   func(*api.Event) bool // further condition, applied before Limit; nil for none
}

// ranks orders severities.
var ranks = map[string]int{"trace": 1, "info": 2, "error": 3}

// Read returns the events that a query selects, the oldest first.
func (j *Journal) Read(q Query) []api.Event {
	j.mu.Lock()
	events := j.events[:len(j.events):len(j.events)] // these elements are never modified
	j.mu.Unlock()
	from, _ := slices.BinarySearchFunc(events, q.After+1, func(e api.Event, id int64) int { return cmp.Compare(e.ID, id) })
	var found []api.Event
	for _, e := range slices.Backward(events[from:]) {
		if q.Limit > 0 && len(found) == q.Limit {
			break
		}
		if ranks[e.Severity] >= ranks[cmp.Or(q.Severity, "info")] && !e.Timestamp.Before(q.Since) && (q.Select == nil || q.Select(&e)) {
			found = append(found, e)
		}
	}
	slices.Reverse(found)
	return found
}

// Follow calls each with the existing events that a query selects, and then with each new one. It returns
// nil when ctx ends, and an error that wraps [fs.ErrClosed] when the journal is closed. Events that are
// removed from the journal before each was called with them are skipped.
func (j *Journal) Follow(ctx context.Context, q Query, each func(api.Event)) error {
	for {
		j.mu.Lock()
		changes, closed, last := j.news, j.closed, j.id
		j.mu.Unlock()
		for _, e := range j.Read(q) {
			last = max(last, e.ID)
			if each(e); ctx.Err() != nil {
				return nil
			}
		}
		q.After, q.Limit = max(q.After, last), 0
		if closed {
			return fmt.Errorf("journal: %w", fs.ErrClosed)
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return nil
		}
	}
}
