package journal

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/source"
)

// A writer appends entries to the last segment of a journal.
type writer struct {
	dir   string
	bytes int64 // of all segments, at most
	drop  func(segment)

	id   int64     // of the last entry
	list []segment // the oldest first; the last is written to
	file *os.File  // the last, nil when it is not open
	torn error     // why the file may end in a part of a line; nil when it does not
	buf  []byte
}

// open finds the end of the journal. It removes a part of a line from it. IDs go on at
// least with the time in ms, which is ahead of any that was lost.
func (w *writer) open(now time.Time) (err error) {
	if w.list, err = listSegments(w.dir); err != nil {
		return err
	}
	w.id = max(now.UnixMilli(), 1) - 1
	if len(w.list) == 0 {
		return nil
	}
	last := &w.list[len(w.list)-1]
	id, whole, err := lastID(w.dir, *last)
	if err != nil {
		return err
	}
	w.id = max(w.id, id)
	path := segmentPath(w.dir, last.first)
	if last.size > maxSegment { // not ours: what is behind may be entries
		w.id += last.size - whole
		return nil // the next entry begins a segment
	}
	if whole < last.size {
		if err := os.Truncate(path, whole); err != nil {
			return err
		}
		last.size = whole
	}
	if w.id-last.first > maxSpan/2 {
		return nil // the next entry begins a segment
	}
	w.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	return err
}

func (w *writer) position() position {
	if len(w.list) == 0 {
		return position{}
	}
	last := w.list[len(w.list)-1]
	return position{last.first, last.size}
}

// add appends events, and returns how many of them were written.
func (w *writer) add(events [][]byte) (written int, err error) {
	for written < len(events) {
		n, err := w.chunk(events[written:])
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// chunk writes as many of the events as go into the last segment, or one into a new one.
func (w *writer) chunk(events [][]byte) (n int, err error) {
	room := w.bytes / segments
	if w.file != nil {
		room -= w.list[len(w.list)-1].size
	}
	w.buf = w.buf[:0]
	for n < len(events) {
		before := len(w.buf)
		w.buf = append(strconv.AppendInt(append(w.buf, `{"id":`...), w.id+int64(n)+1, 10), ',')
		w.buf = append(append(w.buf, events[n][1:]...), '\n')
		if int64(len(w.buf)) > room {
			w.buf = w.buf[:before]
			break
		}
		n++
	}
	if n == 0 || w.file == nil {
		if err := w.rotate(); err != nil || n == 0 {
			return 0, err
		}
	}
	return n, w.append(int64(n))
}

// append writes the buffer of n entries, all of it or nothing.
func (w *writer) append(n int64) error {
	last := &w.list[len(w.list)-1]
	if w.torn != nil {
		if w.file.Truncate(last.size) != nil {
			return w.torn
		}
		w.torn = nil
	}
	if _, err := w.file.Write(w.buf); err != nil {
		if w.file.Truncate(last.size) != nil {
			w.torn = err
		}
		return err
	}
	last.size += int64(len(w.buf))
	w.id += n
	return nil
}

// rotate ends the last segment, begins a new one, and removes those for which there is no
// room beside it.
func (w *writer) rotate() error {
	if err := w.close(); err != nil {
		return err
	}
	next := segment{first: w.id + 1}
	f, err := os.OpenFile(segmentPath(w.dir, next.first), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w.file, w.torn = f, nil
	w.list = append(w.list, next)
	w.shrink()
	return durable.SyncPath(w.dir)
}

// shrink removes the oldest segments until there is room for the last one to be full. One that
// cannot be removed, as when it is open elsewhere on Windows, is removed later.
func (w *writer) shrink() {
	total := w.bytes / segments
	for _, s := range w.list {
		total += s.size
	}
	for total > w.bytes && len(w.list) > 1 {
		oldest := w.list[0]
		if err := os.Remove(segmentPath(w.dir, oldest.first)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return
		}
		w.drop(oldest)
		total -= oldest.size
		w.list = w.list[1:]
	}
}

// close makes the last segment durable.
func (w *writer) close() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return errors.Join(f.Sync(), f.Close())
}

// write appends what waits until the journal is closed.
func (j *Journal) write() {
	defer close(j.done)
	unsaid := int64(0) // events that were lost, which no entry says yet
	for more := true; more; {
		_, more = <-j.wake
		j.mu.Lock()
		events, lost := j.waiting, j.lost
		j.waiting, j.bytes, j.lost = nil, 0, 0
		j.mu.Unlock()
		unsaid += lost
		if len(events) > 0 || unsaid > 0 {
			unsaid = j.writeAll(events, unsaid)
		}
	}
}

// writeAll writes events, and before them one about those that were lost. It returns
// how many were lost and not spoken of.
func (j *Journal) writeAll(events [][]byte, lost int64) (unsaid int64) {
	notes := 0
	if lost > 0 {
		notes = 1
		note := encode(j.notice(fmt.Sprintf("events are missing here: the disk did not take %d", lost)))
		events = append([][]byte{note}, events...)
	}
	written, err := j.w.add(events)
	unsaid = int64(len(events) - max(written, notes))
	if written < notes {
		unsaid += lost
	}
	j.publish(written > 0)
	if was := j.failed; (err == nil) != (was == nil) {
		report := errors.New("journal: the disk takes events again")
		if err != nil {
			report = fmt.Errorf("journal: events are lost: %w", err)
		}
		j.config.Report(report)
	}
	j.failed = err
	return unsaid
}

// drop notes that a segment was removed.
func (j *Journal) drop(s segment) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.removed = s.first
}

// publish lets readers see what was written.
func (j *Journal) publish(grown bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.end = j.w.position()
	if grown {
		close(j.grown)
		j.grown = make(chan struct{})
	}
}

// notice returns an event of the journal itself.
func (j *Journal) notice(message string) source.Event {
	return source.Event{Severity: "error", Timestamp: j.config.Now().UTC().Truncate(time.Second), Message: message, Reason: ReasonLost, Controller: "headgate"}
}
