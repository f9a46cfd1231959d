package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"github.com/headgate-io/headgate/source"
)

// A meter shows how far the work on each object is: a bar for each transfer on
// a terminal, a line for each of its phases and one for the end of each object
// elsewhere. An object that needs no transfer has no bar.
type meter struct {
	w     io.Writer
	quiet bool
	names map[string]string // address → how tables and errors name the object

	mu    sync.Mutex
	bars  progress.Writer // nil where w is no terminal
	open  map[string]*progress.Tracker
	phase map[string]string // that was shown last
	ended chan struct{}     // closed when the bars are drawn for the last time; nil before the first
}

// newMeter returns a meter of objects on w.
func newMeter(w io.Writer, quiet bool, objects []source.Object) *meter {
	m := &meter{w: w, quiet: quiet, names: map[string]string{}, open: map[string]*progress.Tracker{}, phase: map[string]string{}}
	for _, obj := range objects {
		m.names[addressOf(obj)] = obj.Head().String()
	}
	if f, ok := w.(*os.File); ok && !quiet && term.IsTerminal(int(f.Fd())) {
		m.bars = newBars(f)
	}
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
	bars.SetTrackerPosition(progress.PositionRight)
	bars.SetUpdateFrequency(100 * time.Millisecond)
	return bars
}

// show is a [source.Env] Progress function.
func (m *meter) show(p source.Progress) {
	if m.quiet {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.open[p.Object]
	if t == nil {
		t = m.begin(p)
	}
	if m.bars == nil {
		if m.phase[p.Object] != p.Phase {
			m.phase[p.Object] = p.Phase
			fmt.Fprintf(m.w, "%s: %s\n", t.Message, p.Phase)
		}
		return
	}
	if p.Total > 0 {
		t.UpdateTotal(p.Total)
	}
	t.SetValue(p.Done)
}

// begin shows that a transfer has begun. It is called with m.mu held.
func (m *meter) begin(p source.Progress) *progress.Tracker {
	name := cmp.Or(m.names[p.Object], p.Object)
	t := &progress.Tracker{Message: name, AutoStopDisabled: true, Units: progress.Units{
		Notation: " " + p.Unit, NotationPosition: progress.UnitsNotationPositionAfter, Formatter: progress.FormatNumber,
	}}
	m.open[p.Object] = t
	if m.bars == nil {
		return t
	}
	m.bars.AppendTracker(t)
	if m.ended == nil {
		ended := make(chan struct{})
		m.ended = ended
		go func() {
			defer close(ended)
			m.bars.Render()
		}()
	}
	return t
}

// done shows that the work on an object has ended.
func (m *meter) done(r *row) {
	if m.quiet {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bars == nil {
		if r.Outcome != "" { // what is cut short has only an error
			fmt.Fprintf(m.w, "%s: %s\n", r.Object.Head(), r.Outcome)
		}
		return
	}
	m.end(addressOf(r.Object), r.err)
}

// end shows that a transfer has ended. It is called with m.mu held.
func (m *meter) end(address string, err error) {
	switch t := m.open[address]; {
	case t == nil:
	case err != nil:
		t.MarkAsErrored()
	default:
		t.MarkAsDone()
	}
}

// newSender returns a meter of what is sent to repo.
func newSender(w io.Writer, quiet bool, repo *source.OCIRepository) *meter {
	m := newMeter(w, quiet, nil)
	m.names[addressOf(repo)] = repo.Spec.URL
	if m.bars != nil {
		m.bars.Style().Options.DoneString = "sent"
	}
	return m
}

// sent shows that everything was sent to repo, unless err is not nil.
func (m *meter) sent(repo *source.OCIRepository, err error) {
	m.mu.Lock()
	m.end(addressOf(repo), err)
	m.mu.Unlock()
	m.stop()
}

// stop ends the meter: what is printed from now on stands below the bars.
func (m *meter) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended == nil {
		return
	}
	again := time.NewTicker(5 * time.Millisecond) // a Stop before Render has begun is lost
	defer again.Stop()
	for {
		m.bars.Stop()
		select {
		case <-m.ended:
			return
		case <-again.C:
		}
	}
}

// addressOf returns the address of obj; one that has none is refused later, by name.
func addressOf(obj source.Object) string {
	address, err := source.Address(obj)
	if err != nil {
		return obj.Head().Metadata.Name
	}
	return address
}
