package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/drive"
)

// A view shows a rollout: events as lines or as documents and, on a terminal,
// below them one line with where it is.
type view struct {
	*program
	*runFlags
	stop func() // ends the drawing of the line; nil without a terminal

	mu       sync.Mutex
	status   rollout.Status
	shown    time.Time // of the last line
	checksum string    // that was printed last
}

// silence is how long a log stays without a line before one says that the
// rollout goes on.
const silence = 5 * time.Minute

func newView(p *program, f *runFlags) *view {
	v := &view{program: p, runFlags: f, shown: time.Now()}
	if !f.quiet && isTerminal(p.stderr) {
		var ctx context.Context
		ctx, v.stop = context.WithCancel(context.Background())
		go func() { // the time that a gate is closed for goes on
			for retry.Sleep(ctx, time.Second) == nil {
				v.mu.Lock()
				v.draw()
				v.mu.Unlock()
			}
		}()
	}
	return v
}

// end takes the line off the terminal.
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
	defer v.mu.Unlock()
	v.status = s
	v.draw()
	if v.stop == nil && !v.quiet && !v.documents() && time.Since(v.shown) >= silence {
		v.line(time.Now(), progressOf(v.Canary, s))
	}
}

// Emit shows an event.
func (v *view) Emit(_ context.Context, e rollout.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.documents() {
		e.Message, e.Reason = redact.String(e.Message), redact.String(e.Reason)
		_ = printItem(v.stdout, v.output, e) // a reader that left is noticed when the result is printed
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
	switch at := webhookAt(v.Canary, e.Hook); e.Code {
	case rollout.EventRolloutWaits, rollout.EventTrafficWaits, rollout.EventPromotionWaits:
		if !strings.Contains(text, strings.Trim(at, " ()")) {
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
	fmt.Fprintf(v.stderr, "%s %s\n", instant(at), redact.String(text))
	v.shown = time.Now()
	v.draw()
}

// draw writes the line with where the rollout is, as much of it as fits: a
// terminal that went on below could not erase it. It is called with v.mu held.
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

// result prints what became of a rollout, and how to go on. An error is told
// with the exit code.
func (v *view) result(r drive.Result) error {
	switch {
	case r.Settled && r.Outcome == drive.Promoted:
		v.Say("nothing to do: the primary has revision " + r.Revision)
	case r.Settled:
		v.Say("nothing to do: the rollout of revision " + r.Revision + " has ended: --again starts it once more")
	}
	if v.documents() {
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
func progressOf(c *rollout.Canary, s rollout.Status) string {
	bar := func(part, whole int) string {
		n := min(max(part, 0)*10/max(whole, 1), 10)
		return "[" + strings.Repeat("#", n) + strings.Repeat(".", 10-n) + "]"
	}
	text := nameOf(c) + "  " + cmp.Or(string(s.Phase), "new")
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
