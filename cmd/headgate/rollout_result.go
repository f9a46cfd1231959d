package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// A result is what became of a rollout, as -o json prints it last.
type result struct {
	Outcome   string         `json:"outcome"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Revision  string         `json:"revision,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	Status    rollout.Status `json:"status"`
}

// The outcomes.
const (
	outcomePromoted   = "promoted"
	outcomeRolledBack = "rolled back"
	outcomeNotOver    = "not over"
	outcomeError      = "error"
)

// outcomes are the exit codes.
var outcomes = map[string]int{outcomePromoted: exitPromoted, outcomeRolledBack: exitRolledBack, outcomeError: exitUsage, outcomeNotOver: exitNotOver}

// result is what became of a rollout that err ended, if that is not nil, with s.
func (d *drive) result(s rollout.Status, err error) result {
	r := result{Name: d.canary.Metadata.Name, Namespace: d.canary.Namespace(), Revision: s.AppliedSpec, Status: s}
	var over notOverError
	switch {
	case errors.As(err, &over):
		r.Outcome, r.Reason = outcomeNotOver, string(over)
	case err != nil:
		r.Outcome, r.Reason = outcomeError, err.Error()
	case d.settled != "" && d.settled == s.PromotedSpec:
		r.Outcome, r.Revision = outcomePromoted, d.settled
	case s.Phase == rollout.Failed:
		r.Outcome, r.Reason = outcomeRolledBack, d.view.why()
		if d.settled == "" {
			r.Reason = cmp.Or(r.Reason, s.Reason) // it was decided by the run before
		}
	default:
		r.Outcome = outcomePromoted
	}
	r.Reason = redact.String(r.Reason)
	return r
}

// print prints the result, and how to go on.
func (d *drive) print(r result) error {
	if d.flags.output == "json" {
		return d.view.events.Encode(r)
	}
	if r.Outcome == outcomeError {
		return nil // which is told with the exit code
	}
	text := fmt.Sprintf("%s %s", nameOf(d.canary), r.Outcome)
	if r.Revision != "" {
		text += ": revision " + redact.String(r.Revision)
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	if d.flags.quiet && !d.flags.asked() {
		if r.Outcome == outcomeRolledBack {
			fmt.Fprintln(d.stderr, text)
		}
		return nil
	}
	if _, err := fmt.Fprintln(d.stdout, text); err != nil || r.Outcome != outcomeNotOver || d.flags.quiet {
		return err
	}
	_, err := fmt.Fprintf(d.stderr, "%s; run the same command again to go on (status: %s)\n", d.view.state(r.Status, time.Now()), d.file.Path())
	return err
}

// why is what people were alerted to last, with the check that it came of.
func (v *view) why() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last.Reason != "" || v.fault.Reason == "" {
		return v.last.Message
	}
	return v.last.Message + "; " + v.fault.Message
}

// unchanged says why nothing is done.
func (v *view) unchanged(s rollout.Status, revision string) {
	text := "nothing to do: the primary has revision " + revision
	if s.Phase == rollout.Failed && revision == s.AppliedSpec {
		text = "nothing to do: the rollout of revision " + revision + " has ended: --again starts it once more"
	}
	v.say(text)
}
