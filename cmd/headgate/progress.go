package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	prettytext "github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/drive"
	"github.com/headgate-io/headgate/source"
)

// A meter shows the progress of the objects. On a terminal one line changes, and each transfer
// leaves a line. Elsewhere there is a line for each phase of a transfer, for the end of each
// object, and every ten seconds.
type meter struct {
	w      io.Writer
	width  int // of the terminal; 0 if there is none
	total  int
	names  map[string]string // address → name of the object in tables and errors
	cancel func()            // stops the ticks

	mu    sync.Mutex
	ended int
	open  map[string]*transfer
	drawn bool // the changing line is on the terminal
}

// A transfer is the progress of an object that is being processed.
type transfer struct {
	source.Progress
	name  string
	since time.Time
}

// newMeter returns a meter for objects that writes to w. The caller must call stop.
func newMeter(w io.Writer, quiet bool, objects []source.Object) *meter {
	m := &meter{w: w, names: map[string]string{}, open: map[string]*transfer{}}
	if quiet {
		m.w = io.Discard
	}
	for _, obj := range objects {
		m.names[addressOf(obj)] = obj.Head().String()
	}
	m.total = len(m.names)
	interval := 10 * time.Second
	if isTerminal(m.w) {
		width, _, _ := term.GetSize(int(w.(*os.File).Fd()))
		m.width, interval = cmp.Or(width, 80), time.Second/4
	}
	m.cancel = startTicker(interval, m.tick)
	return m
}

// startTicker calls do repeatedly at an interval until stop is called.
func startTicker(interval time.Duration, do func()) (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for retry.Sleep(ctx, interval) == nil {
			do()
		}
	}()
	return stop
}

// tick shows the objects in progress.
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

// String describes the phase, the amount and the rate.
func (t *transfer) String() string {
	text := t.name + ": " + t.phaseText()
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

// phaseText describes the phase, without the amount.
func (t *transfer) phaseText() string {
	if t.Asked != nil {
		return t.Phase + " " + source.OriginOf(t.Asked)
	}
	return t.Phase
}

// show is a [source.Env] Progress function. A phase with a unit is a transfer.
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

// phaseOf describes the current phase of the object with this address.
func (m *meter) phaseOf(address string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.open[address]; t != nil {
		return t.phaseText()
	}
	return "working on it"
}

// done shows that an object has ended. The outcome is "" if it was interrupted.
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

// erase removes the changing line. The caller holds m.mu.
func (m *meter) erase() {
	if m.drawn {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
	m.drawn = false
}

// stop ends the meter. Later output starts on an empty line.
func (m *meter) stop() {
	m.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.erase()
	clear(m.open) // a pending tick draws nothing
}

// A view shows a rollout: events as lines or documents and, on a terminal, a status line below
// them.
type view struct {
	*program
	*runFlags
	stop func() // stops redrawing the status line; nil without a terminal

	mu       sync.Mutex
	status   rollout.Status
	shown    time.Time // time of the last line
	checksum string    // the last checksum printed
}

// silence is the time without output after which the view prints a line that the rollout is still
// running.
const silence = 5 * time.Minute

func newView(p *program, f *runFlags) *view {
	v := &view{program: p, runFlags: f, shown: time.Now()}
	if !f.quiet && isTerminal(p.stderr) {
		v.stop = startTicker(time.Second, func() { // the line has a running time
			v.mu.Lock()
			defer v.mu.Unlock()
			v.draw()
		})
	}
	return v
}

// end removes the status line from the terminal and stops redrawing it.
func (v *view) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stop != nil {
		v.stop()
		v.erase()
		v.stop = nil
	}
}

// Show shows a status.
func (v *view) Show(s rollout.Status) {
	v.mu.Lock()
	v.status = s
	v.draw()
	silent := v.stop == nil && time.Since(v.shown) >= silence
	v.mu.Unlock()
	if silent && !v.quiet && !v.machineReadable() {
		v.printLine(time.Now(), progressOf(v.Canary, s))
	}
}

// Emit shows an event.
func (v *view) Emit(_ context.Context, e rollout.Event) {
	if v.machineReadable() {
		e.Message, e.Reason = redact.String(e.Message), redact.String(e.Reason)
		_ = printItem(v.stdout, v.output, e) // printing the result reports a closed pipe
		return
	}
	if v.quiet {
		return
	}
	if e.Checksum != "" && e.Checksum != v.checksum {
		v.checksum = e.Checksum
		v.printLine(e.Time, "webhooks are told the checksum "+e.Checksum)
	}
	text := e.Message
	switch at := webhookAt(v.Canary, e.Hook); e.Code {
	case rollout.EventRolloutWaits, rollout.EventTrafficWaits, rollout.EventPromotionWaits:
		if !strings.Contains(text, strings.Trim(at, " ()")) {
			text += at
		}
	}
	if e.Warning {
		text = "warning: " + text
	}
	v.printLine(e.Time, text)
}

// Say shows a message that is not an event.
func (v *view) Say(text string) {
	if !v.quiet {
		v.printLine(time.Now(), text)
	}
}

// Warn shows an error that does not end the rollout.
func (v *view) Warn(err error) { v.printLine(time.Now(), "warning: "+err.Error()) }

// printLine writes a line.
func (v *view) printLine(at time.Time, text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	fmt.Fprintf(v.stderr, "%s %s\n", formatTime(at), redact.String(text))
	v.shown = time.Now()
	v.draw()
}

// draw writes the status line without line wrapping, because a wrapped line could not be erased.
// The caller holds v.mu.
func (v *view) draw() {
	if v.stop != nil {
		fmt.Fprintf(v.stderr, "\r\x1b[K\x1b[?7l%s\x1b[?7h", progressOf(v.Canary, v.status))
	}
}

func (v *view) erase() {
	if v.stop != nil {
		io.WriteString(v.stderr, "\r\x1b[K")
	}
}

// printOutcome prints the result of a rollout and how to continue. It does not print an error, which run
// prints.
func (v *view) printOutcome(r drive.Result) error {
	switch {
	case r.Settled && r.Outcome == drive.Promoted:
		v.Say("nothing to do: the primary has revision " + r.Revision)
	case r.Settled:
		v.Say("nothing to do: the rollout of revision " + r.Revision + " has ended: --again starts it once more")
	}
	if v.machineReadable() {
		return printItem(v.stdout, v.output, r)
	}
	w := v.stdout
	switch {
	case r.Outcome == drive.Failed || !v.prints() && r.Outcome != drive.RolledBack:
		return nil
	case !v.prints():
		w = v.stderr
	}
	text := r.Namespace + "/" + r.Name + " " + string(r.Outcome)
	if r.Revision != "" {
		text += ": revision " + redact.String(r.Revision)
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	_, err := fmt.Fprintln(w, text)
	if err == nil && r.Outcome == drive.NotOver && !v.quiet {
		_, err = fmt.Fprintf(v.stderr, "%s; run the same command again to go on (status: %s)\n", progressOf(v.Canary, r.Status), v.File.Path)
	}
	return err
}

// webhookAt returns the URL of a webhook of a canary in parentheses, or "".
func webhookAt(c *rollout.Canary, hook string) string {
	for _, h := range c.Spec.Analysis.Webhooks {
		if h.Name == hook {
			return " (" + redact.String(h.URL) + ")"
		}
	}
	return ""
}

// progressOf describes the state of a rollout on one line. Only the name of the canary must be
// known.
func progressOf(c *rollout.Canary, s rollout.Status) string {
	bar := func(part, total int) string {
		n := min(max(part, 0)*10/max(total, 1), 10)
		return "[" + strings.Repeat("#", n) + strings.Repeat(".", 10-n) + "]"
	}
	text := canaryName(c) + "  " + cmp.Or(string(s.Phase), "new")
	if all := c.Spec.Analysis.Iterations; all > 0 {
		text += fmt.Sprintf("  %s %d/%d iterations", bar(s.Iterations, all), s.Iterations, all)
	} else {
		text += fmt.Sprintf("  %s %d%% of the traffic", bar(s.CanaryWeight, 100), s.CanaryWeight)
	}
	if s.Mirrored {
		text += "  mirrored to the canary"
	}
	if s.FailedChecks > 0 {
		text += fmt.Sprintf("  failed checks %d", s.FailedChecks)
		if c.Kind != "" {
			text += fmt.Sprintf("/%d", c.Threshold())
		}
	}
	if g := s.Gate; g != nil {
		text += fmt.Sprintf("  waits on %s%s for %s", g.Name, webhookAt(c, g.Name), time.Since(g.Since).Round(time.Second))
	}
	return redact.String(text)
}
