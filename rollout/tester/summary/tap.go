package summary

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// tap reads the Test Anything Protocol. Only what starts in the first column
// counts: subtests and what is said about a failure are indented.
type tap struct {
	total tally
	found bool
	doc   document
}

// A document is one stream with one plan, at its beginning or at its end.
type document struct {
	tally
	version, planned, bailed bool
	numbered                 bool // at least one test
	plan                     int
}

type tally struct {
	seen, failed, skipped int
	failures              names
}

func (t *tap) look(line []byte) {
	switch line[0] {
	case 'o', 'n':
		t.point(line)
	case '1':
		t.plan(line)
	case 'T':
		if bytes.HasPrefix(line, []byte("TAP version ")) {
			t.finish()
			t.doc.version = true
		}
	case 'B':
		if bytes.HasPrefix(line, []byte("Bail out!")) {
			t.doc.bailed = true
			t.doc.failures = t.doc.failures.add(string(line))
		}
	}
}

func (t *tap) plan(line []byte) {
	count, rest, _ := strings.Cut(string(line), " ")
	count, ok := strings.CutPrefix(count, "1..")
	if !ok || len(count) == 0 || len(count) > 9 || rest != "" && !strings.HasPrefix(strings.TrimSpace(rest), "#") {
		return
	}
	n, err := strconv.ParseUint(count, 10, 31)
	if err != nil {
		return
	}
	if t.doc.planned {
		t.finish()
	}
	if !t.doc.numbered && t.doc.seen != int(n) {
		t.doc = document{version: t.doc.version} // what came before was no test
	}
	t.doc.planned, t.doc.plan = true, int(n)
}

// point looks at what may be the line of a test: ok 3 - description # directive.
func (t *tap) point(line []byte) {
	rest, not := bytes.CutPrefix(line, []byte("not "))
	rest, ok := bytes.CutPrefix(rest, []byte("ok"))
	if !ok || len(rest) > 0 && rest[0] != ' ' {
		return
	}
	text := strings.TrimLeft(string(rest), " ")
	number, after, _ := strings.Cut(text, " ")
	if n, err := strconv.ParseUint(number, 10, 31); err == nil {
		text = after
		if n == 1 && t.doc.seen > 0 {
			t.finish() // another stream, whose plan comes at its end
		}
		t.doc.numbered = true
	}
	if text == "" && t.doc.planned && t.doc.numbered && t.doc.seen >= t.doc.plan && len(rest) == 0 && !not {
		return // prove tells so that the stream was good
	}
	t.doc.seen++
	name, directive := describe(text)
	switch {
	case directive:
		t.doc.skipped++
	case not:
		t.doc.failed++
		if len(t.total.failures) < maxNames {
			t.doc.failures = t.doc.failures.add(name)
		}
	}
}

var escapes = strings.NewReplacer(`\\`, `\`, `\#`, `#`)

// describe returns the name of a test, and whether it was skipped or is to do.
func describe(text string) (name string, directive bool) {
	text = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(text), "-"), " ")
	for from := 0; ; {
		i := strings.IndexByte(text[from:], '#')
		if i < 0 {
			break
		}
		i += from
		from = i + 1
		if escaped := i > 0 && text[i-1] == '\\'; escaped {
			continue
		}
		word := strings.TrimLeft(text[from:], " ")
		word, _, _ = strings.Cut(word[:min(len(word), len("skipped: "))], " ")
		switch strings.ToLower(strings.TrimSuffix(word, ":")) {
		case "skip", "skipped", "todo":
			return "", true
		}
	}
	return untimed(escapes.Replace(text)), false
}

// untimed takes off what bats says about time: "in 6ms", "# in 6 ms" and
// "# timeout after 1s"; the last is told in brackets.
func untimed(name string) string {
	name, timeout, _ := strings.Cut(name, " # timeout after ")
	if i := strings.LastIndex(name, " in "); i >= 0 {
		number, ms := strings.CutSuffix(name[i+len(" in "):], "ms")
		if _, err := strconv.ParseUint(strings.TrimSpace(number), 10, 63); ms && err == nil {
			name = strings.TrimSuffix(name[:i], " #")
		}
	}
	if timeout != "" {
		name += " (timeout after " + timeout + ")"
	}
	return name
}

// finish ends the stream that was read so far. Without a plan, or a line that
// says that it is TAP, it was something else.
func (t *tap) finish() {
	d := t.doc
	t.doc = document{}
	if !d.planned && !d.version {
		return
	}
	t.found = true
	missing := d.plan - d.seen
	switch {
	case missing > 0:
		d.seen = d.plan
		d.failed += missing
		d.failures = d.failures.add(fmt.Sprintf("%d of %d tests did not run", missing, d.plan))
	case d.bailed:
		d.seen++
		d.failed++
	case !d.planned:
		d.seen++
		d.failed++
		d.failures = d.failures.add("the output ended before the number of tests was said")
	}
	t.total.seen += d.seen
	t.total.failed += d.failed
	t.total.skipped += d.skipped
	t.total.failures = t.total.failures.join(d.failures)
}

func (t tap) summary() *api.Summary {
	t.finish()
	if !t.found {
		return nil
	}
	return t.total.summary("tap")
}

func (t tally) summary(format string) *api.Summary {
	return &api.Summary{
		Format: format, Total: t.seen, Passed: t.seen - t.failed - t.skipped, Failed: t.failed, Skipped: t.skipped,
		Failures: t.failures,
	}
}
