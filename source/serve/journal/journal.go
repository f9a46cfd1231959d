// Package journal keeps the last events of sources in a file, to be read back and followed.
//
// A journal is a directory of mode 0700 with the file events.jsonl of mode 0600, which has a JSON object a
// line, an [api.Event]. When it is full it becomes events.old.jsonl, in place of the one before. The last
// 10,000 events are answered, also after a restart. Lines that are no events are passed over.
//
// IDs grow, also over restarts and when the files were deleted; they are not
// contiguous. An event that cannot be written is told to callers that follow, and lost at the next start.
// Written events reach the disk when the file is full and on Close: a system that crashes may lose the
// last ones, a killed process does not.
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
	maxEvents = 10_000  // that are in memory, for callers that ask or follow
)

// A Config says where events are kept.
type Config struct {
	Dir    string           // created when it does not exist
	Now    func() time.Time // default time.Now
	Report func(error)      // told when events cannot be written, and when they can again; nil for no reports
}

// A Journal keeps events. It is safe for concurrent use.
type Journal struct {
	config Config

	mu     sync.Mutex
	file   *os.File // that is written to
	size   int64    // of it, in bytes
	failed error    // why the last event could not be written
	id     int64    // of the last event
	events []api.Event
	news   chan struct{} // closed and replaced with each event
	closed bool
}

// Open opens the journal of a directory. Its owner calls Close.
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
	if err == nil { // a killed process may leave a part of a line
		err = j.file.Truncate(j.size)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j.id = max(j.id, c.Now().UnixMilli(), 1) // which is ahead of events whose files were deleted
	return j, nil
}

const oldFile, newFile = "events.old.jsonl", "events.jsonl"

func (j *Journal) open() (*os.File, error) {
	return os.OpenFile(filepath.Join(j.config.Dir, newFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// load reads the events of a file, none if there is none, and returns the size of its whole lines.
func (j *Journal) load(base string) (int64, error) {
	f, err := os.Open(filepath.Join(j.config.Dir, base))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 2*maxFile)) // whichever program wrote it
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

// Append adds an event, unless it is of severity trace. After Close it does nothing.
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
	case err != nil && j.failed == nil:
		j.config.Report(fmt.Errorf("journal: events are lost: %w", err))
	case err == nil && j.failed != nil:
		j.config.Report(errors.New("journal: events are written again"))
	}
	j.failed = err
	j.add(e)
	close(j.news)
	j.news = make(chan struct{})
}

// write appends a line to the file. One that is full becomes the old one first.
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

// Close makes the last events durable and ends [Journal.Follow]. Its error says
// why the last events could not be written.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	close(j.news)
	if err := errors.Join(j.failed, j.file.Sync(), j.file.Close()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// A Query selects events; zero fields select all.
type Query struct {
	Severity string // at least: trace, info, error; default info
	Since    time.Time
	After    int64                 // only those with a higher ID
	Limit    int                   // the newest; 0 for all
	Select   func(*api.Event) bool // what else has to hold, before events are counted; nil for nothing
}

// ranks orders severities.
var ranks = map[string]int{"trace": 1, "info": 2, "error": 3}

// Read returns the events that a query selects, the oldest first.
func (j *Journal) Read(q Query) []api.Event {
	j.mu.Lock()
	events := j.events[:len(j.events):len(j.events)] // which are not changed
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

// Follow calls each with the events that a query selects, and then with those
// that come, until ctx ends, which is no error. Its error wraps [fs.ErrClosed] when the
// journal is closed. A caller that is slower than events are removed misses some.
func (j *Journal) Follow(ctx context.Context, q Query, each func(api.Event)) error {
	for {
		j.mu.Lock()
		news, closed, last := j.news, j.closed, j.id
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
		case <-news:
		case <-ctx.Done():
			return nil
		}
	}
}
