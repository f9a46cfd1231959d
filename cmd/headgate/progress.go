package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"github.com/headgate-io/headgate/source"
)

// A meter shows how far the work on each object is: bars on a terminal,
// nothing elsewhere, where the result lines are enough.
type meter struct {
	bars  progress.Writer // nil when nothing is shown
	ended chan struct{}

	mu       sync.Mutex
	trackers map[string]*progress.Tracker
}

// newMeter starts a meter on w.
func newMeter(w io.Writer, quiet bool) *meter {
	m := &meter{trackers: map[string]*progress.Tracker{}, ended: make(chan struct{})}
	f, ok := w.(*os.File)
	if quiet || !ok || !term.IsTerminal(int(f.Fd())) {
		close(m.ended)
		return m
	}
	m.bars = progress.NewWriter()
	m.bars.SetOutputWriter(f)
	m.bars.SetStyle(progress.StyleBlocks)
	m.bars.SetTrackerPosition(progress.PositionRight)
	m.bars.SetUpdateFrequency(100 * time.Millisecond)
	m.bars.SetAutoStop(false)
	go func() {
		defer close(m.ended)
		m.bars.Render()
	}()
	return m
}

// show is a [source.Env] Progress function.
func (m *meter) show(p source.Progress) {
	if m.bars == nil {
		return
	}
	t := m.tracker(p.Object)
	t.UpdateMessage(p.Object + " " + p.Phase)
	if p.Total > 0 {
		t.UpdateTotal(p.Total)
	}
	t.SetValue(p.Done)
}

func (m *meter) tracker(object string) *progress.Tracker {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.trackers[object]
	if t == nil {
		t = &progress.Tracker{Message: object}
		m.trackers[object] = t
		m.bars.AppendTracker(t)
	}
	return t
}

// done ends the bar of one object.
func (m *meter) done(object string, err error) {
	if m.bars == nil {
		return
	}
	if t := m.tracker(object); err != nil {
		t.MarkAsErrored()
	} else {
		t.MarkAsDone()
	}
}

// stop ends the meter and leaves the terminal as it was.
func (m *meter) stop() {
	if m.bars != nil {
		m.bars.Stop()
	}
	<-m.ended
}
