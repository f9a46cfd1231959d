package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// A view shows a rollout: events as lines and, on a terminal, below them one
// line with where it is. It is a sink of events.
type view struct {
	canary *rollout.Canary
	name   string
	quiet  bool
	events *json.Encoder // nil for text

	mu    sync.Mutex
	w     io.Writer // of text
	width int       // of the terminal when it was drawn on last; 0 when it is none
	live  string    // the line that is on the terminal
	s     rollout.Status
	shown time.Time     // of the last line
	over  chan struct{} // ends the line
	idle  sync.WaitGroup
	last  rollout.Event // what people were alerted to last, as a warning
	fault rollout.Event // the last check that failed

	checksum string // that was printed last
}

// silence is how long a log stays without a line before one says that the
// rollout goes on.
const silence = 5 * time.Minute

func (d *drive) newView(s rollout.Status) *view {
	v := &view{canary: d.canary, name: nameOf(d.canary), quiet: d.flags.quiet, w: d.stderr, s: s, over: make(chan struct{}), shown: time.Now()}
	if d.flags.output == "json" {
		v.events = json.NewEncoder(d.stdout)
		v.events.SetEscapeHTML(false)
	}
	if f, ok := d.stderr.(*os.File); ok && !d.flags.quiet && term.IsTerminal(int(f.Fd())) {
		v.width = 80
	}
	return v
}

// measure finds the width of the terminal, which may have changed: a line that
// is too long could not be erased.
func (v *view) measure() {
	if f, ok := v.w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			v.width = width
		}
	}
}

// begin shows where a rollout begins, or goes on.
func (v *view) begin(s rollout.Status, resumed bool) {
	if resumed {
		v.say("going on: " + v.state(s, time.Now()))
	}
	v.show(s)
	if v.width == 0 {
		return
	}
	v.idle.Go(func() { // the time that a gate is closed for goes on
		again := time.NewTicker(time.Second)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				v.mu.Lock()
				v.draw()
				v.mu.Unlock()
			case <-v.over:
				return
			}
		}
	})
}

// end takes the line off the terminal.
func (v *view) end() {
	v.mu.Lock()
	select {
	case <-v.over:
	default:
		close(v.over)
	}
	v.erase()
	v.width = 0
	v.mu.Unlock()
	v.idle.Wait()
}

// show shows a status.
func (v *view) show(s rollout.Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s = s
	v.draw()
	if v.width == 0 && !v.quiet && v.events == nil && time.Since(v.shown) >= silence {
		v.line(time.Now(), v.state(s, time.Now()))
	}
}

// Emit shows an event.
func (v *view) Emit(_ context.Context, e rollout.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case e.Warning && (e.Alert == rollout.Warn || e.Alert == rollout.Error):
		v.last = e
	case e.Warning && e.Reason != "":
		v.fault = e
	}
	if v.events != nil {
		e.Message, e.Reason = redact.String(e.Message), redact.String(e.Reason)
		v.events.Encode(e) // a reader that left is noticed when the result is printed
		return
	}
	if v.quiet {
		return
	}
	if e.Checksum != "" && e.Checksum != v.checksum {
		v.checksum = e.Checksum
		v.line(e.Time, "webhooks are told the checksum "+e.Checksum)
	}
	text := e.Message
	if e.Code == rollout.EventRolloutWaits || e.Code == rollout.EventTrafficWaits || e.Code == rollout.EventPromotionWaits {
		if at := v.address(e.Hook); !strings.Contains(text, strings.Trim(at, " ()")) {
			text += at
		}
	}
	if e.Warning {
		text = "warning: " + text
	}
	v.line(e.Time, text)
}

// address is where a webhook is, in brackets.
func (v *view) address(name string) string {
	for _, h := range v.canary.Spec.Analysis.Webhooks {
		if h.Name == name {
			return " (" + redact.String(h.URL) + ")"
		}
	}
	return ""
}

// say shows what is no event.
func (v *view) say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.quiet {
		v.line(time.Now(), text)
	}
}

// warn shows an error that does not end the rollout.
func (v *view) warn(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.line(time.Now(), "warning: "+err.Error())
}

// line writes a line. It is called with v.mu held.
func (v *view) line(at time.Time, text string) {
	v.erase()
	fmt.Fprintf(v.w, "%s %s\n", at.UTC().Format(time.RFC3339), redact.String(text))
	v.shown = time.Now()
	v.draw()
}

// draw writes the line with where the rollout is. It is called with v.mu held.
func (v *view) draw() {
	if v.width == 0 {
		return
	}
	v.measure()
	text := fit(v.state(v.s, time.Now()), v.width-1)
	if text != v.live {
		fmt.Fprintf(v.w, "\r\x1b[K%s", text)
		v.live = text
	}
}

func (v *view) erase() {
	if v.live != "" {
		fmt.Fprint(v.w, "\r\x1b[K")
		v.live = ""
	}
}

// fit cuts text to so many characters.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// state is where a rollout is, on one line.
func (v *view) state(s rollout.Status, now time.Time) string {
	a := v.canary.Spec.Analysis
	parts := []string{v.name, cmp.Or(string(s.Phase), "new")}
	if a.Iterations > 0 {
		parts = append(parts, fmt.Sprintf("%s %d/%d iterations", bar(s.Iterations, a.Iterations), s.Iterations, a.Iterations))
	} else {
		parts = append(parts, fmt.Sprintf("%s %d%% of the traffic", bar(s.CanaryWeight, 100), s.CanaryWeight))
	}
	if s.Mirrored {
		parts = append(parts, "mirrored to the canary")
	}
	if s.FailedChecks > 0 {
		parts = append(parts, fmt.Sprintf("failed checks %d/%d", s.FailedChecks, v.canary.Threshold()))
	}
	if g := s.Gate; g != nil {
		parts = append(parts, fmt.Sprintf("waits on %s%s for %s", g.Name, v.address(g.Name), now.Sub(g.Since).Round(time.Second)))
	}
	return redact.String(strings.Join(parts, "  "))
}

// bar draws a part of a whole in ten characters.
func bar(part, whole int) string {
	n := min(max(part, 0)*10/max(whole, 1), 10)
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", 10-n) + "]"
}
