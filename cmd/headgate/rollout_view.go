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

	"golang.org/x/term"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// A view shows a rollout: events as lines and, on a terminal, below them one
// line with where it is.
type view struct {
	canary *rollout.Canary
	quiet  bool
	events *json.Encoder // nil for text

	mu       sync.Mutex
	w        io.Writer // of text
	terminal *os.File  // w, when it is one
	live     string    // the line that is on the terminal
	status   rollout.Status
	shown    time.Time     // of the last line
	over     chan struct{} // closed when the line is no longer drawn
	checksum string        // that was printed last
}

// silence is how long a log stays without a line before one says that the
// rollout goes on.
const silence = 5 * time.Minute

func (p *program) newView(c *rollout.Canary, f *runFlags) *view {
	v := &view{canary: c, quiet: f.quiet, w: p.stderr, shown: time.Now()}
	if f.output == "json" {
		v.events = json.NewEncoder(p.stdout)
		v.events.SetEscapeHTML(false)
	}
	if file, ok := p.stderr.(*os.File); ok && !v.quiet && term.IsTerminal(int(file.Fd())) {
		v.terminal, v.over = file, make(chan struct{})
		go func() { // the time that a gate is closed for goes on
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
		}()
	}
	return v
}

// end takes the line off the terminal.
func (v *view) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.terminal != nil {
		close(v.over)
		v.erase()
		v.terminal = nil
	}
}

// Show shows a status.
func (v *view) Show(s rollout.Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status = s
	v.draw()
	if v.terminal == nil && !v.quiet && v.events == nil && time.Since(v.shown) >= silence {
		v.line(time.Now(), progressOf(v.canary, s, time.Now()))
	}
}

// Emit shows an event.
func (v *view) Emit(_ context.Context, e rollout.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
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
		if at := webhookAt(v.canary, e.Hook); !strings.Contains(text, strings.Trim(at, " ()")) {
			text += at
		}
	}
	if e.Warning {
		text = "warning: " + text
	}
	v.line(e.Time, text)
}

// Say shows what is no event.
func (v *view) Say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.quiet {
		v.line(time.Now(), text)
	}
}

// Warn shows an error that does not end the rollout.
func (v *view) Warn(err error) {
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

// draw writes the line with where the rollout is, no wider than the terminal is
// now: a longer one could not be erased. It is called with v.mu held.
func (v *view) draw() {
	if v.terminal == nil {
		return
	}
	width, _, err := term.GetSize(int(v.terminal.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	text := []rune(progressOf(v.canary, v.status, time.Now()))
	if len(text) >= width {
		text = append(text[:max(width-2, 0)], '…')
	}
	if string(text) != v.live {
		v.live = string(text)
		fmt.Fprintf(v.w, "\r\x1b[K%s", v.live)
	}
}

func (v *view) erase() {
	if v.live != "" {
		fmt.Fprint(v.w, "\r\x1b[K")
		v.live = ""
	}
}

// webhookAt is where a webhook of a canary is, in brackets.
func webhookAt(c *rollout.Canary, hook string) string {
	for _, h := range c.Spec.Analysis.Webhooks {
		if h.Name == hook {
			return " (" + redact.String(h.URL) + ")"
		}
	}
	return ""
}

// progressOf is where a rollout is, on one line. Of the canary no more than its
// name need be known.
func progressOf(c *rollout.Canary, s rollout.Status, now time.Time) string {
	parts := []string{nameOf(c), cmp.Or(string(s.Phase), "new")}
	if all := c.Spec.Analysis.Iterations; all > 0 {
		parts = append(parts, fmt.Sprintf("%s %d/%d iterations", bar(s.Iterations, all), s.Iterations, all))
	} else {
		parts = append(parts, fmt.Sprintf("%s %d%% of the traffic", bar(s.CanaryWeight, 100), s.CanaryWeight))
	}
	if s.Mirrored {
		parts = append(parts, "mirrored to the canary")
	}
	if s.FailedChecks > 0 {
		text := fmt.Sprintf("failed checks %d", s.FailedChecks)
		if c.Kind != "" {
			text += fmt.Sprintf("/%d", c.Threshold())
		}
		parts = append(parts, text)
	}
	if g := s.Gate; g != nil {
		parts = append(parts, fmt.Sprintf("waits on %s%s for %s", g.Name, webhookAt(c, g.Name), now.Sub(g.Since).Round(time.Second)))
	}
	return redact.String(strings.Join(parts, "  "))
}

// bar draws a part of a whole in ten characters.
func bar(part, whole int) string {
	n := min(max(part, 0)*10/max(whole, 1), 10)
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", 10-n) + "]"
}
