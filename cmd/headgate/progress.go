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

	prettytext "github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/headgate-io/headgate/source"
)

// A meter shows how far the work on objects is. A terminal has a line that changes, and
// one that stays for each transfer. Elsewhere there is a line for each phase of a
// transfer, one for the end of each object, and one every ten seconds.
type meter struct {
	w      io.Writer
	width  int // of the terminal; 0 for none
	total  int
	names  map[string]string // address → how tables and errors name the object
	cancel chan struct{}     // closed at the end

	mu    sync.Mutex
	ended int
	open  map[string]*transfer
	drawn bool // there is a line that changes
}

// A transfer is an object that is worked on.
type transfer struct {
	source.Progress
	name  string
	since time.Time
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
		width, _, _ := term.GetSize(int(w.(*os.File).Fd()))
		m.width, every = cmp.Or(width, 80), time.Second/4
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

// tick tells what is waited for.
func (m *meter) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.open) == 0 {
		return
	}
	var all []string
	for _, t := range m.open {
		all = append(all, t.String())
	}
	slices.Sort(all)
	const most = 3
	if more := len(all) - most; more > 0 {
		all = append(all[:most], fmt.Sprintf("and %d more", more))
	}
	waiting := fmt.Sprintf("%d of %d done; %s", m.ended, max(m.total, m.ended+len(m.open)), strings.Join(all, "; "))
	if m.width == 0 {
		fmt.Fprintln(m.w, waiting)
		return
	}
	m.drawn = true
	fmt.Fprint(m.w, "\r\x1b[K", prettytext.Snip(waiting, m.width-1, "…"))
}

// String says what is done, and how fast.
func (t *transfer) String() string {
	text := t.name + ": " + t.Phase
	if t.Done == 0 {
		return text
	}
	number := func(n int64) string { return fmt.Sprint(n) }
	unit := " " + t.Unit
	if t.Unit == "bytes" {
		number, unit = humanSize, ""
	}
	text += " " + number(t.Done)
	if t.Total > 0 {
		text += " of " + number(t.Total)
	}
	return text + unit + ", " + number(int64(float64(t.Done)/max(time.Since(t.since).Seconds(), 0.001))) + "/s"
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
		if m.width == 0 && p.Unit != "" {
			fmt.Fprintf(m.w, "%s: %s\n", t.name, p.Phase)
		}
	}
	t.Progress = p
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

// done shows that the work on an object has ended; one that was cut short has no outcome.
func (m *meter) done(address, name, outcome string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended++
	m.erase()
	if t := m.open[address]; m.width > 0 && t != nil && t.Unit != "" {
		fmt.Fprintln(m.w, t)
	} else if m.width == 0 && outcome != "" {
		fmt.Fprintf(m.w, "%s: %s\n", name, outcome)
	}
	delete(m.open, address)
}

// erase removes the line that changes. It is called with m.mu held.
func (m *meter) erase() {
	if m.drawn {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
	m.drawn = false
}

// stop ends the meter: what is printed from now on stands below its lines.
func (m *meter) stop() {
	close(m.cancel)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.erase()
	clear(m.open) // or a tick that waits would draw again
}
