package simulate

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// phases returns the phases before and after the tick, or one if they are equal.
func (t *Tick) phases() string {
	before, after := cmp.Or(t.Before.Phase, "none"), cmp.Or(t.After.Phase, "none")
	if before == after {
		return string(after)
	}
	return string(before + ">" + after)
}

func errorSuffix(outcome string) string {
	if outcome == "ok" {
		return ""
	}
	return " " + outcome
}

// WriteTrace writes ticks as text: one line for each tick, its calls below it, and
// finally why the simulation ends. The error is that of the ticks or of w.
func WriteTrace(w io.Writer, ticks iter.Seq2[*Tick, error]) error {
	if _, err := fmt.Fprintf(w, "%4s  %-8s  %-26s  %-12s  %6s  %9s\n", "TICK", "TIME", "PHASE", "ROUTES", "FAILED", "ITERATION"); err != nil {
		return err
	}
	for t, err := range ticks {
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, t.text()); err != nil {
			return err
		}
	}
	return nil
}

// text returns the tick as [WriteTrace] writes it.
func (t *Tick) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%4d  %-8s  %-26s  %-12s  %6d  %9d\n", t.Number, time.Duration(t.Elapsed), t.phases(), routesText(t.Routes), t.After.FailedChecks, t.After.Iterations)
	for _, c := range t.Calls {
		kind, detail := string(c.Subject), c.Name
		switch c.Subject {
		case Hook:
			kind, detail = string(c.Type), quoteUnprintable(c.Name)+": "+c.Outcome+", "+c.Verdict
		case Metric:
			detail = quoteUnprintable(c.Name) + ": " + c.Outcome
		case event:
			if detail = quoteUnprintable(c.Detail); c.Outcome != "" {
				detail = "(" + c.Outcome + ") " + detail
			}
		case Traffic:
			detail = c.Detail + errorSuffix(c.Outcome)
		case Target:
			detail += errorSuffix(c.Outcome)
		default:
			detail = c.Outcome
		}
		fmt.Fprintf(&b, "%14s  %-24s  %s\n", "", kind, strings.TrimSpace(detail))
	}
	if g := t.After.Gate; g != nil {
		fmt.Fprintf(&b, "%14s  %-24s  %s gate %s\n", "", "waits on", g.Type, quoteUnprintable(g.Name))
	}
	if t.End != "" {
		fmt.Fprintf(&b, "end: %s\n", quoteUnprintable(t.End))
	}
	return b.String()
}

func routesText(r rollout.Routes) string {
	s := strconv.Itoa(r.Primary) + "/" + strconv.Itoa(r.Canary)
	if r.Mirrored {
		s += " mirrored"
	}
	return s
}

// quoteUnprintable returns text of a manifest on one line, quoted if it has control characters.
func quoteUnprintable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
