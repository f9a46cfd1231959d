package simulate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/rollout"
)

// A Subject is the part of a rollout that an outcome applies to.
type Subject string

// The subjects.
const (
	Hook     Subject = "hook"
	Metric   Subject = "metric"
	Target   Subject = "target"
	Canary   Subject = "canary"
	Primary  Subject = "primary"
	Traffic  Subject = "traffic"
	Revision Subject = "revision"
	Suspend  Subject = "suspend"
)

// A subject describes the outcomes that a Subject allows.
type subject struct {
	name  Subject
	named bool   // the outcome starts with a name
	want  string // description of the allowed values, for errors
	form  string // the pattern of a value
}

// subjects lists the values that the ports understand. Printable is as in [strconv.IsPrint].
var subjects = []subject{
	{Hook, true, "a status from 100 to 599, timeout or refused", `^([1-5][0-9][0-9]|timeout|refused)$`},
	{Metric, true, "a number, none or error", `^([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,2})?|none|error)$`},
	{Target, true, "ok or error", `^(ok|error)$`},
	{Canary, false, "ready, not-ready or stuck", `^(ready|not-ready|stuck)$`},
	{Primary, false, "ready, not-ready or stuck", `^(ready|not-ready|stuck)$`},
	{Traffic, false, "ok, error or set-error", `^(ok|error|set-error)$`},
	{Revision, false, "a text of printable characters", `^[\pL\pM\pN\pP\pS ]+$`},
	{Suspend, false, "on or off", `^(on|off)$`},
}

// methods lists the methods of a target that an outcome may name.
var methods = []string{"scale-up", "scale-down", "promote", "revision"}

// maxTick is the highest tick that a script may name.
const maxTick = 1_000_000

// A Value is the result in the ticks from First to Last.
type Value struct {
	Text        string
	First, Last int
	Default     bool // holds only in ticks without another value
}

// An Outcome lists the results of one operation or check.
type Outcome struct {
	Subject Subject
	Name    string // of a webhook or its type, of a metric, or of a method of the target
	Values  []Value
}

// A Script lists all outcomes. If several apply to the same operation, the last one counts.
type Script []Outcome

// ParseOutcome reads one outcome; see the package comment for its form.
func ParseOutcome(of Subject, text string) (Outcome, error) {
	i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == of })
	if i < 0 {
		return Outcome{}, fmt.Errorf("outcome %q: unknown subject %q", text, of)
	}
	s, o, values := subjects[i], Outcome{Subject: of}, text
	if s.named {
		at := strings.LastIndexByte(text, '=') // a name may contain it, values do not
		if at <= 0 {
			return Outcome{}, fmt.Errorf("%s %q: no name; write NAME=VALUE[@TICKS]", of, text)
		}
		o.Name, values = text[:at], text[at+1:]
	}
	for part := range strings.SplitSeq(values, ",") {
		v, err := parseValue(part, of)
		switch {
		case err != nil:
			return Outcome{}, fmt.Errorf("%s %q: %w", of, text, err)
		case !regexp.MustCompile(s.form).MatchString(v.Text):
			return Outcome{}, fmt.Errorf("%s %q: value %q is not %s", of, text, v.Text, s.want)
		}
		o.Values = append(o.Values, v)
	}
	return o, nil
}

// parseValue parses VALUE[@TICKS]. A revision without an end holds from its tick on.
func parseValue(text string, of Subject) (v Value, err error) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return Value{Text: text, Last: maxTick, Default: true}, nil
	}
	first, last, span := strings.Cut(text[at+1:], "-")
	v.Text, v.Last = text[:at], maxTick
	if v.First, err = parseTick(first); err == nil && last != "" {
		v.Last, err = parseTick(last)
	} else if !span && of != Revision {
		v.Last = v.First
	}
	if err == nil && v.Last < v.First {
		err = fmt.Errorf("ticks %q: the last is before the first", text[at+1:])
	}
	return v, err
}

func parseTick(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > maxTick {
		return 0, fmt.Errorf("tick %q: want a number from 0 to %d; ticks are N, N-M or N-", text, maxTick)
	}
	return int(n), nil
}

// Check returns an error for each name that the canary does not have, joined. The
// errors list the existing names.
func (s Script) Check(c *rollout.Canary) error {
	known := map[Subject][]string{Target: methods}
	for _, h := range c.Spec.Analysis.Webhooks {
		known[Hook] = append(known[Hook], h.Name, string(h.Kind()))
	}
	for _, m := range c.Spec.Analysis.Metrics {
		known[Metric] = append(known[Metric], m.Name)
	}
	var errs []error
	for _, o := range s {
		names, found := known[o.Subject]
		switch {
		case o.Name == "" || slices.Contains(names, o.Name):
		case !found:
			errs = append(errs, fmt.Errorf("%s %q: the canary has none", o.Subject, o.Name))
		default:
			errs = append(errs, fmt.Errorf("%s %q: no such name; there are %s", o.Subject, o.Name, list(names)))
		}
	}
	return errors.Join(errs...)
}

// valueAt returns the value for a subject with one of names in a tick, "" for none.
func (s Script) valueAt(tick int, of Subject, names ...string) string {
	text := ""
	for _, byDefault := range []bool{true, false} {
		for _, o := range s {
			if o.Subject != of || o.Name != "" && !slices.Contains(names, o.Name) {
				continue
			}
			for _, v := range o.Values {
				if v.Default == byDefault && v.First <= tick && tick <= v.Last {
					text = v.Text
				}
			}
		}
	}
	return text
}

// nextChange returns the first later tick at which the script changes a value of the given
// subjects, or of any if none is given; 0 for never.
func (s Script) nextChange(after int, of ...Subject) int {
	next := 0
	for _, o := range s {
		if len(of) > 0 && !slices.Contains(of, o.Subject) {
			continue
		}
		for _, v := range o.Values {
			for _, n := range []int{v.First, v.Last + 1} {
				if !v.Default && n > after && n <= maxTick && (next == 0 || n < next) {
					next = n
				}
			}
		}
	}
	return next
}

func list(names []string) string {
	var quoted []string
	for _, name := range names {
		if q := strconv.Quote(name); !slices.Contains(quoted, q) {
			quoted = append(quoted, q)
		}
	}
	return strings.Join(quoted, ", ")
}
