package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// printCall prints what came of a call.
func (p *program) printCall(format string, c *call) error {
	switch format {
	case "body":
		if c.err != nil && c.answer.Status == 0 {
			fmt.Fprintf(p.stderr, "headgate: %s\n", redact.String(c.err.Error()))
		}
		_, err := p.stdout.Write(c.answer.Body)
		return err
	case "json":
		return printJSON(p.stdout, c.document())
	}
	return c.text(p.stdout)
}

// text writes the call for people.
func (c *call) text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "webhook\t%s\n", redact.String(fmt.Sprintf("%s (%s) %s", c.hook.Name, typeOf(c.hook), c.hook.URL)))
	if c.answer.Status != 0 {
		fmt.Fprintf(t, "status\t%s\n", strings.TrimSpace(fmt.Sprintf("%d %s", c.answer.Status, http.StatusText(c.answer.Status))))
	}
	if c.answer.Attempts > 0 {
		fmt.Fprintf(t, "attempts\t%d in %s\n", c.answer.Attempts, c.took.Round(time.Millisecond))
	}
	verdict := typeOf(c.hook).Judge(c.err)
	fmt.Fprintf(t, "verdict\t%s: %s\n", verdict, meanings[verdict])
	if c.err != nil {
		fmt.Fprintf(t, "reason\t%s\n", redact.String(c.err.Error()))
	}
	if err := t.Flush(); err != nil || len(c.answer.Body) == 0 {
		return err
	}
	truncated := ""
	if c.answer.Truncated {
		truncated = "\n(and more)"
	}
	_, err := fmt.Fprintf(w, "\n%s%s\n", strings.TrimRight(printable(string(c.answer.Body)), "\n"), truncated)
	return err
}

// meanings say what a verdict does to a rollout.
var meanings = map[rollout.Verdict]string{
	rollout.Pass:     "the rollout goes on",
	rollout.Halt:     "the rollout does not go on, and a failed check is counted",
	rollout.Pause:    "the rollout waits until it passes",
	rollout.Fire:     "the rollout is rolled back",
	rollout.NoFire:   "no rollback is asked for",
	rollout.LogError: "the rollout goes on; the error is logged",
}

// A callDocument is a call as -o json prints it.
type callDocument struct {
	Name     string           `json:"name"`
	Type     rollout.HookType `json:"type"`
	URL      string           `json:"url"`
	Accepted bool             `json:"accepted"`
	Verdict  string           `json:"verdict"`
	Status   int              `json:"status,omitempty"`
	Attempts int              `json:"attempts,omitempty"`
	Seconds  float64          `json:"seconds"`
	Error    string           `json:"error,omitempty"`

	Body      *string `json:"body,omitempty"`
	Base64    string  `json:"bodyBase64,omitempty"` // of a body that is no UTF-8
	Truncated bool    `json:"bodyTruncated,omitempty"`
}

func (c *call) document() callDocument {
	d := callDocument{
		Name: c.hook.Name, Type: typeOf(c.hook), URL: redact.String(c.hook.URL), Accepted: c.accepted(), Verdict: typeOf(c.hook).Judge(c.err).String(),
		Status: c.answer.Status, Attempts: c.answer.Attempts, Seconds: c.took.Round(time.Millisecond).Seconds(), Truncated: c.answer.Truncated,
	}
	if c.err != nil {
		d.Error = redact.String(c.err.Error())
	}
	switch {
	case c.answer.Status == 0:
	case utf8.Valid(c.answer.Body):
		d.Body = ptr(string(c.answer.Body))
	default:
		d.Base64 = base64.StdEncoding.EncodeToString(c.answer.Body)
	}
	return d
}

// printable returns text whose characters a terminal shows and does not obey:
// lines stay lines.
func printable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, string(utf8.RuneError)), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) || unicode.IsSpace(r) && !unicode.IsControl(r) && r != '\u2028' && r != '\u2029' {
			return r
		}
		return utf8.RuneError
	}, text)
}
