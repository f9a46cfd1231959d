package run

import (
	"errors"
	"fmt"
	"time"

	bberrors "go.etcd.io/bbolt/errors"
)

// A history writes what happens to runs to disk, behind their backs. A nil one
// keeps nothing. The desk's lock guards it, except for the file.
type history struct {
	desk    *Desk
	file    *file
	changed map[string]*entry // to be written
	removed []string          // to be removed
	trouble error             // why nothing is written
	wake    chan struct{}
	quit    chan struct{}
	done    chan struct{}
}

func newHistory(d *Desk, f *file) *history {
	return &history{desk: d, file: f, changed: map[string]*entry{}, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

// put and remove say what is to be written.
func (h *history) put(e *entry) {
	if h != nil {
		h.changed[e.run.ID] = e
		h.nudge()
	}
}

func (h *history) remove(e *entry) {
	if h != nil {
		delete(h.changed, e.run.ID)
		if e.written {
			h.removed = append(h.removed, e.run.ID)
			h.nudge()
		}
	}
}

func (h *history) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// The pause after a write that failed doubles between these.
const (
	shortestPause = time.Second
	longestPause  = time.Minute
)

// keep writes until the desk is shut down. After a failure it tries again.
func (h *history) keep() {
	defer close(h.done)
	pause := shortestPause
	for {
		select {
		case <-h.wake:
		case <-h.quit:
			h.flush()
			return
		}
		if h.flush() {
			pause = shortestPause
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			h.nudge()
		case <-h.quit:
		}
		timer.Stop()
		pause = min(2*pause, longestPause)
	}
}

// flush writes what there is, in one transaction.
func (h *history) flush() bool {
	d := h.desk
	d.mu.Lock()
	batch, removed := make([]stored, 0, len(h.changed)), h.removed
	entries := make([]*entry, 0, len(h.changed))
	for _, e := range h.changed {
		entries, batch = append(entries, e), append(batch, e.stored())
	}
	h.changed, h.removed = map[string]*entry{}, nil
	d.mu.Unlock()
	if len(batch) == 0 && len(removed) == 0 {
		return true
	}
	err := h.file.write(batch, removed)
	d.mu.Lock()
	defer d.mu.Unlock()
	h.report(err)
	for i, e := range entries {
		switch known := d.byID[e.run.ID] == e; {
		case err == nil:
			e.written = true
			if e.saved = e.saved || batch[i].output != nil; !known {
				h.remove(e)
			} else if e.saved {
				d.relax(e)
			}
		case known:
			h.changed[e.run.ID] = e
		}
	}
	if err != nil {
		h.removed = append(removed, h.removed...)
	}
	return err == nil
}

// report tells of trouble when it begins or changes.
func (h *history) report(err error) {
	if err != nil && (h.trouble == nil || h.trouble.Error() != err.Error()) {
		h.desk.config.Warn(fmt.Errorf("history of runs: %w", err))
	}
	h.trouble = err
}

// output returns what is on disk of the output of a run; "" when there is
// nothing, or after the end.
func (h *history) output(id string) string {
	if h == nil {
		return ""
	}
	text, err := h.file.output(id)
	if err != nil && !errors.Is(err, bberrors.ErrDatabaseNotOpen) {
		h.desk.config.Warn(fmt.Errorf("history of runs: output of %s: %w", id, err))
	}
	return text
}

// close writes what is left.
func (h *history) close() error {
	if h == nil {
		return nil
	}
	close(h.quit)
	<-h.done
	h.desk.mu.Lock()
	err := h.trouble
	h.desk.mu.Unlock()
	if err = errors.Join(err, h.file.close()); err != nil {
		err = fmt.Errorf("history of runs: %w", err)
	}
	return err
}

// Ready returns why the desk cannot take requests or record runs, nil when it can.
func (d *Desk) Ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return ErrClosed
	case d.history != nil && d.history.trouble != nil:
		return fmt.Errorf("history of runs: %w", d.history.trouble)
	}
	return nil
}
