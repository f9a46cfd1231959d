// Package journal keeps the last events of sources in files, to be read back
// and followed.
//
// A journal is a directory of mode 0700 with up to eight files of mode 0600. A
// file is named for the ID of its first event, 20 digits and .jsonl, and holds a
// JSON object a line, an [Entry]. A full file is closed and a new one begun; the
// oldest is removed when there are more. Lines that are no entries are passed over.
//
// IDs grow, also over restarts and when the files were deleted; they are not
// contiguous. An event that cannot be written is told to those who follow, and
// lost after that. Written events reach the disk when a file is full and on
// Close: a system that crashes may lose the last ones, a killed process does not.
//
// One process writes. Any number of others may read with [Read] at any time.
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
	"strconv"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
)

const (
	files        = 8
	defaultBytes = 16 << 20
	maxFile      = 64 << 20  // bytes that are read of a file, whichever program wrote it
	maxLine      = 256 << 10 // an event that is longer loses its metadata and the end of its message
	maxRecent    = 4096      // events that are kept in memory for those who follow
)

// A Config says where events are kept.
type Config struct {
	Dir    string           // created when it does not exist
	Bytes  int64            // of all files, about; default 16 MiB
	Traces bool             // events of severity trace are kept as well
	Now    func() time.Time // default time.Now
	Report func(error)      // told when events cannot be written, and when they can again; nil for no reports
}

// An Entry is one event of the journal.
type Entry struct {
	ID int64 `json:"id"` // grows
	source.Event
}

// A Journal keeps events. It is safe for concurrent use.
type Journal struct {
	config Config

	mu     sync.Mutex
	file   *os.File // that is written to; nil before the first event of a file
	size   int64    // of it, in bytes
	failed error    // why the last event could not be written
	id     int64    // of the last event
	recent []Entry  // the last events, all since begin
	begin  int64    // ID before the first of them
	news   chan struct{}
	closed bool
}

// Open opens the journal of a directory for writing. Its owner calls Close.
func Open(c Config) (*Journal, error) {
	c.Bytes = cmp.Or(c.Bytes, defaultBytes)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	j := &Journal{config: c, news: make(chan struct{})}
	if err := j.open(); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return j, nil
}

// open goes on after the last event that was written, and at least with the time
// in milliseconds, which is ahead of events whose files were deleted.
func (j *Journal) open() error {
	if err := os.MkdirAll(j.config.Dir, 0o700); err != nil {
		return err
	}
	names, err := list(j.config.Dir)
	if err != nil {
		return err
	}
	j.id = max(j.config.Now().UnixMilli(), 1)
	if len(names) == 0 {
		j.begin = j.id
		return nil
	}
	last := names[len(names)-1]
	text, err := read(last)
	if err != nil {
		return err
	}
	j.id = max(j.id, first(last))
	for e := range entries(text) {
		j.id = max(j.id, e.ID)
	}
	j.begin = j.id
	if len(text) == maxFile {
		return nil // what is behind may be entries: the next event begins a file
	}
	j.size = int64(bytes.LastIndexByte(text, '\n') + 1)
	if j.file, err = os.OpenFile(last, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return err
	}
	if j.size < int64(len(text)) { // a killed process may leave a part of a line
		return j.file.Truncate(j.size)
	}
	return nil
}

// Append adds an event. After Close it does nothing.
func (j *Journal) Append(event source.Event) {
	rank, known := ranks[event.Severity]
	if !known || rank == 1 && !j.config.Traces {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.id++
	e := Entry{j.id, event}
	text, err := json.Marshal(e)
	for _, shorten := range []func(){
		func() { e.Metadata = nil },
		func() { e.Message = e.Message[:min(len(e.Message), maxLine/16)] },
	} {
		if len(text) > maxLine {
			shorten()
			text, err = json.Marshal(e)
		}
	}
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
	j.recent = append(j.recent, e)
	if len(j.recent) >= 2*maxRecent {
		j.begin = j.recent[maxRecent-1].ID
		j.recent = slices.Clone(j.recent[maxRecent:])
	}
	close(j.news)
	j.news = make(chan struct{})
}

// write appends a line to the last file, or to a new one.
func (j *Journal) write(line []byte) error {
	if j.file == nil || j.size+int64(len(line)) > j.config.Bytes/files {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	_, err := j.file.Write(line)
	if err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(len(line))
	return nil
}

// rotate ends the last file, begins another and removes the oldest.
func (j *Journal) rotate() (err error) {
	if err := j.end(); err != nil {
		return err
	}
	name := filepath.Join(j.config.Dir, fmt.Sprintf("%020d.jsonl", j.id))
	if j.file, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		j.file = nil
		return err
	}
	names, err := list(j.config.Dir)
	if err != nil {
		return err
	}
	for _, old := range names[:max(len(names)-files, 0)] {
		_ = os.Remove(old) // one that another process reads may stay for a while
	}
	return nil
}

func (j *Journal) end() error {
	f := j.file
	j.file, j.size = nil, 0
	if f == nil {
		return nil
	}
	return errors.Join(f.Sync(), f.Close())
}

// Close makes the last events durable and ends those who follow. Its error says
// why the last events could not be written.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	close(j.news)
	if err := errors.Join(j.failed, j.end()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// A Query selects entries; zero fields select all.
type Query struct {
	Object   source.Reference // also with empty parts; the kind as [source.ParseKind] reads it
	Severity string           // at least: trace, info, error; default info
	Since    time.Time
	After    int64 // only those with a higher ID
	Limit    int   // the newest; 0 for all

	Select func(*Entry) bool // what else has to hold, before entries are counted; nil for nothing
}

// ranks orders severities.
var ranks = map[string]int{"trace": 1, "info": 2, "error": 3}

// check replaces names by the spelling that is compared, and refuses those that are not known.
func (q *Query) check() error {
	q.Severity = cmp.Or(q.Severity, "info")
	if ranks[q.Severity] == 0 {
		return fmt.Errorf("journal: severity %q is not known: use trace, info or error", q.Severity)
	}
	if q.Object.Kind != "" {
		kind, known := source.ParseKind(q.Object.Kind)
		if !known {
			return fmt.Errorf("journal: kind %q is not known", q.Object.Kind)
		}
		q.Object.Kind = kind
	}
	return nil
}

func (q *Query) selects(e *Entry) bool {
	o := &e.InvolvedObject
	kind, _ := source.ParseKind(o.Kind)
	return ranks[e.Severity] >= ranks[q.Severity] && e.ID > q.After && !e.Timestamp.Before(q.Since) &&
		(q.Object.Name == "" || q.Object.Name == o.Name) && (q.Object.Namespace == "" || q.Object.Namespace == o.Namespace) &&
		(q.Object.Kind == "" || q.Object.Kind == kind) && (q.Select == nil || q.Select(e))
}

// Read returns the entries of a directory that a query selects, the oldest first,
// whether a process writes it or not. A directory that does not exist has none.
func Read(ctx context.Context, dir string, q Query) ([]Entry, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	names, err := list(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var found []Entry
	for _, name := range slices.Backward(names) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		text, err := read(name)
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		var here []Entry
		for e := range entries(text) {
			if q.selects(e) {
				here = append(here, *e)
			}
		}
		found = append(here, found...)
		if q.Limit > 0 && len(found) >= q.Limit {
			return found[len(found)-q.Limit:], nil
		}
		if first(name) <= q.After {
			break // all before have lower IDs
		}
	}
	return found, nil
}

// Read returns the entries that a query selects, the oldest first.
func (j *Journal) Read(ctx context.Context, q Query) ([]Entry, error) {
	return Read(ctx, j.config.Dir, q)
}

// Follow calls each with the entries that a query selects, and then with those
// that come, until ctx ends, which is no error, or each returns an error, which
// it returns. Its error wraps [fs.ErrClosed] when the journal is closed. A caller
// that is slower than events are removed misses some.
func (j *Journal) Follow(ctx context.Context, q Query, each func(Entry) error) error {
	if err := q.check(); err != nil {
		return err
	}
	for {
		j.mu.Lock()
		news, closed, last := j.news, j.closed, j.id
		i, _ := slices.BinarySearchFunc(j.recent, q.After+1, func(e Entry, id int64) int { return cmp.Compare(e.ID, id) })
		recent, complete := slices.Clone(j.recent[i:]), q.After >= j.begin && q.Limit == 0
		j.mu.Unlock()
		if !complete {
			var err error
			if recent, err = Read(ctx, j.config.Dir, q); err != nil && ctx.Err() == nil {
				return err
			}
		}
		for _, e := range recent {
			if ctx.Err() != nil {
				return nil
			}
			if e.ID <= last && q.selects(&e) {
				if err := each(e); err != nil {
					return err
				}
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

// list returns the files of a directory, the oldest first.
func list(dir string) ([]string, error) {
	all, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range all {
		if name := filepath.Join(dir, e.Name()); first(name) > 0 {
			names = append(names, name)
		}
	}
	return names, nil // in the order of names, which have one length
}

// first returns the ID of the first event of a file, 0 for a file of another name.
func first(name string) int64 {
	base := filepath.Base(name)
	if len(base) != len("00000000000000000000.jsonl") || filepath.Ext(base) != ".jsonl" {
		return 0
	}
	id, _ := strconv.ParseInt(base[:20], 10, 64)
	return id
}

// read returns the text of a file; one that was removed meanwhile has none.
func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// entries yields the entries of whole lines.
func entries(text []byte) func(yield func(*Entry) bool) {
	return func(yield func(*Entry) bool) {
		for line := range bytes.Lines(text) {
			var e Entry
			if line[len(line)-1] == '\n' && json.Unmarshal(line, &e) == nil && e.ID > 0 && ranks[e.Severity] > 0 && !yield(&e) {
				return
			}
		}
	}
}
