package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"github.com/headgate-io/headgate/source"
)

// A meter shows how far the work on objects is. A terminal has a bar for each
// transfer, and below how many objects have ended and what is waited for.
// Elsewhere there is a line for each phase of a transfer, one for the end of each
// object, and one every ten seconds.
type meter struct {
	w     io.Writer
	total int
	names map[string]string // address → how tables and errors name the object

	mu     sync.Mutex
	ended  int
	open   map[string]*transfer
	bars   progress.Writer // nil where w is no terminal
	drawn  chan struct{}   // closed when the bars are drawn for the last time; nil before the first
	cancel chan struct{}   // closed at the end
}

// A transfer is an object that is worked on.
type transfer struct {
	source.Progress
	name  string
	since time.Time
	bar   *progress.Tracker // nil before the transfer
}

// newMeter returns a meter of objects on w.
func newMeter(w io.Writer, quiet bool, objects []source.Object) *meter {
	m := &meter{w: w, names: map[string]string{}, open: map[string]*transfer{}, cancel: make(chan struct{})}
	if quiet {
		m.w = io.Discard
	}
	for _, obj := range objects {
		m.names[addressOf(obj)] = obj.Head().String()
	}
	m.total = len(m.names)
	every := 10 * time.Second
	if isTerminal(m.w) {
		m.bars, every = newBars(w.(*os.File)), time.Second
	}
	ticks := time.NewTicker(every)
	go func() {
		defer ticks.Stop()
		for {
			select {
			case <-m.cancel:
				return
			case <-ticks.C:
				m.tick()
			}
		}
	}()
	return m
}

func newBars(f *os.File) progress.Writer {
	bars := progress.NewWriter()
	bars.SetOutputWriter(f)
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		bars.SetTerminalWidth(width) // or it asks standard output, which need not be a terminal
	}
	bars.SetStyle(progress.StyleBlocks)
	style := bars.Style()
	style.Options.Separator = " "
	style.Options.DoneString = "received"
	style.Options.ErrorString = "failed"
	style.Options.PercentFormat = "%3.0f%%"
	style.Options.TimeDonePrecision = 100 * time.Millisecond
	style.Options.TimeInProgressPrecision = 100 * time.Millisecond
	style.Visibility.Speed = true
	bars.SetTrackerPosition(progress.PositionRight)
	bars.SetUpdateFrequency(100 * time.Millisecond)
	return bars
}

// tick tells what is waited for.
func (m *meter) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case len(m.open) == 0:
	case m.bars != nil:
		m.draw()
		m.bars.SetPinnedMessages(m.waiting())
	default:
		fmt.Fprintln(m.w, m.waiting())
	}
}

// waiting says how many objects have ended, and what the others do. It is called
// with m.mu held.
func (m *meter) waiting() string {
	var all []string
	for _, t := range m.open {
		text := t.name + ": " + t.Phase
		if t.Done > 0 {
			rate := int64(float64(t.Done) / max(time.Since(t.since).Seconds(), 0.001))
			if t.Unit == "bytes" {
				text += fmt.Sprintf(" %s, %s/s", humanSize(t.Done), humanSize(rate))
			} else {
				text += fmt.Sprintf(" %d %s, %d/s", t.Done, t.Unit, rate)
			}
		}
		all = append(all, text)
	}
	slices.Sort(all)
	const most = 3
	if more := len(all) - most; more > 0 {
		all = append(all[:most], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d of %d done; %s", m.ended, max(m.total, m.ended+len(m.open)), strings.Join(all, "; "))
}

// draw begins to draw the bars. It is called with m.mu held.
func (m *meter) draw() {
	if m.drawn != nil {
		return
	}
	drawn := make(chan struct{})
	m.drawn = drawn
	go func() {
		defer close(drawn)
		m.bars.Render()
	}()
}

// show is a [source.Env] Progress function. A phase without a unit is none of a transfer.
func (m *meter) show(p source.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.open[p.Object]
	if t == nil {
		t = &transfer{name: cmp.Or(m.names[p.Object], p.Object)}
		m.open[p.Object] = t
	}
	if t.Phase != p.Phase {
		t.since = time.Now()
		if m.bars == nil && p.Unit != "" {
			fmt.Fprintf(m.w, "%s: %s\n", t.name, p.Phase)
		}
	}
	t.Progress = p
	if m.bars == nil || p.Unit == "" {
		return
	}
	if t.bar == nil {
		units := progress.UnitsBytes
		if p.Unit != "bytes" {
			units = progress.Units{Notation: " " + p.Unit, NotationPosition: progress.UnitsNotationPositionAfter, Formatter: progress.FormatNumber}
		}
		t.bar = &progress.Tracker{Message: t.name, AutoStopDisabled: true, Units: units}
		m.bars.AppendTracker(t.bar)
		m.draw()
	}
	if p.Total > 0 {
		t.bar.UpdateTotal(p.Total)
	}
	t.bar.SetValue(p.Done)
}

// doing returns what is done for the object at an address.
func (m *meter) doing(address string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.open[address]; t != nil {
		return t.Phase
	}
	return "working on it"
}

// done shows that the work on an object has ended.
func (m *meter) done(r *row) {
	if m.bars == nil && r.Outcome != "" { // what is cut short has only an error
		fmt.Fprintf(m.w, "%s: %s\n", r.Object.Head(), r.Outcome)
	}
	m.end(addressOf(r.Object), r.err)
}

// end shows that the work on the object at an address has ended.
func (m *meter) end(address string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended++
	if t := m.open[address]; t != nil && t.bar != nil {
		if err != nil {
			t.bar.MarkAsErrored()
		} else {
			t.bar.MarkAsDone()
		}
	}
	delete(m.open, address)
}

// stop ends the meter: what is printed from now on stands below the bars.
func (m *meter) stop() {
	close(m.cancel)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drawn == nil {
		return
	}
	m.bars.SetPinnedMessages()
	again := time.NewTicker(5 * time.Millisecond) // a Stop before Render has begun is lost
	defer again.Stop()
	for {
		m.bars.Stop()
		select {
		case <-m.drawn:
			return
		case <-again.C:
		}
	}
}
