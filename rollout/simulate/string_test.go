package simulate

import (
	"fmt"
	"strings"
	"time"
)

// String returns the tick on one line: number, time, phase, routes, counters, calls in
// order, and the gate that the canary waits on.
//
//	3 2m0s Progressing 60/40 failed 1 iteration 0 | load 500 halt; !rollout-failed
//
// A webhook is shown with its name, answer and verdict. Events start with "!" and have
// their alert in brackets.
func (t *Tick) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s %s failed %d iteration %d", t.Number, time.Duration(t.Elapsed), t.phases(), routesText(t.Routes), t.After.FailedChecks, t.After.Iterations)
	sep := " | "
	for _, c := range t.Calls {
		b.WriteString(sep + c.String())
		sep = "; "
	}
	if g := t.After.Gate; g != nil {
		fmt.Fprintf(&b, " | waits on %s", quoteUnprintable(g.Name))
	}
	if t.End != "" {
		fmt.Fprintf(&b, " | end: %s", quoteUnprintable(t.End))
	}
	return b.String()
}

// String returns a short form of the call.
func (c Call) String() string {
	switch c.Subject {
	case Hook:
		return quoteUnprintable(c.Name) + " " + c.Outcome + " " + c.Verdict
	case event:
		if c.Outcome != "" {
			return "!" + c.Name + "(" + c.Outcome + ")"
		}
		return "!" + c.Name
	case Metric:
		return quoteUnprintable(c.Name) + "=" + c.Outcome
	case Traffic:
		return strings.TrimSpace("routes " + c.Detail + errorSuffix(c.Outcome))
	case Target:
		return c.Name + errorSuffix(c.Outcome)
	}
	return string(c.Subject) + " " + c.Outcome
}

// String returns the form that ParseOutcome reads.
func (o Outcome) String() string {
	var b strings.Builder
	if o.Name != "" {
		b.WriteString(o.Name + "=")
	}
	for i, v := range o.Values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(v.Text)
		switch {
		case v.Default:
		case v.Last == maxTick:
			fmt.Fprintf(&b, "@%d-", v.First)
		case v.Last == v.First && o.Subject != Revision:
			fmt.Fprintf(&b, "@%d", v.First)
		default:
			fmt.Fprintf(&b, "@%d-%d", v.First, v.Last)
		}
	}
	return b.String()
}
