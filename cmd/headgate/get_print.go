package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source/serve/api"
)

// A sourceTable is a table that lines can be added to later. A column grows with
// what is in it and does not shrink.
type sourceTable struct {
	w      io.Writer
	wide   bool
	now    func() time.Time
	widths []int
}

func newSourceTable(w io.Writer, wide bool) *sourceTable {
	return &sourceTable{w: w, wide: wide, now: time.Now}
}

// A sourceColumn is a column of the table of sources.
type sourceColumn struct {
	title string
	wide  bool // only in wide tables
	cell  func(*sourceTable, api.Source) string
	moves bool // with time alone
}

var sourceColumns = []sourceColumn{
	{"OBJECT", false, func(_ *sourceTable, s api.Source) string { return s.Kind + "/" + s.Namespace + "/" + s.Name }, false},
	{"READY", false, func(_ *sourceTable, s api.Source) string { return s.Ready }, false},
	{"REVISION", false, func(_ *sourceTable, s api.Source) string { return s.Revision }, false},
	{"AGE", false, func(t *sourceTable, s api.Source) string {
		if s.Artifact == nil {
			return ""
		}
		return t.since(s.Artifact.LastUpdateTime)
	}, true},
	{"SUSPENDED", false, func(_ *sourceTable, s api.Source) string {
		if s.Suspended {
			return "True"
		}
		return "False"
	}, false},
	{"PHASE", true, func(_ *sourceTable, s api.Source) string { return s.Phase }, false},
	{"CHECKED", true, func(t *sourceTable, s api.Source) string { return t.since(s.Checked) }, true},
	{"NEXT", true, func(t *sourceTable, s api.Source) string { return t.until(s.Next) }, true},
	{"DIGEST", true, func(_ *sourceTable, s api.Source) string {
		if s.Artifact == nil {
			return ""
		}
		return shortDigest(s.Artifact.Digest)
	}, false},
	{"ORIGIN", true, func(_ *sourceTable, s api.Source) string { return s.Origin }, false},
	{"MESSAGE", false, func(t *sourceTable, s api.Source) string { return shortened(lastWord(s), t.wide) }, false},
}

// lastWord says why a source is not ready, or who suspended it and why.
func lastWord(s api.Source) string {
	hold := s.Suspension
	switch {
	case hold != nil && hold.Reason != "":
		return "suspended by " + cmp.Or(hold.By, "a command") + ": " + hold.Reason
	case hold != nil:
		return "suspended by " + cmp.Or(hold.By, "a command")
	case s.Suspended:
		return "suspended by its spec"
	case len(s.Blockers) > 0:
		return "waits for " + strings.ToLower(strings.Join(s.Blockers, ", "))
	case s.Phase == "removed":
		return "removed: its document is no more"
	case s.Last != nil && s.Last.Error != "":
		return s.Last.Error
	case s.Ready != "True":
		return s.Message
	}
	return ""
}

// shortened cuts a text for a line on a terminal.
func shortened(text string, whole bool) string {
	const most = 100
	if whole || utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// cells returns a line of the table; without what moves with time alone if it is
// to be compared.
func (t *sourceTable) cells(s api.Source, compared bool) (cells []string) {
	for _, column := range sourceColumns {
		if column.wide && !t.wide || column.moves && compared {
			continue
		}
		cells = append(cells, cmp.Or(redact.String(column.cell(t, s)), "-"))
	}
	return cells
}

// key is what differs between two sources that look different.
func (t *sourceTable) key(s api.Source) string {
	key := strings.Join(t.cells(s, true), "\t")
	if s.Artifact != nil {
		key += "\t" + s.Artifact.Digest
	}
	return key
}

// print prints the titles and a line for each source.
func (t *sourceTable) print(found []api.Source) error {
	var titles []string
	for _, column := range sourceColumns {
		if t.wide || !column.wide {
			titles = append(titles, column.title)
		}
	}
	lines := [][]string{titles}
	for _, s := range found {
		lines = append(lines, t.cells(s, false))
	}
	return t.lines(lines)
}

// row prints one line.
func (t *sourceTable) row(s api.Source) error { return t.lines([][]string{t.cells(s, false)}) }

func (t *sourceTable) lines(lines [][]string) error {
	for _, cells := range lines {
		for i, cell := range cells {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, cells := range lines {
		for i, cell := range cells {
			out.WriteString(cell)
			if i < len(cells)-1 {
				out.WriteString(strings.Repeat(" ", t.widths[i]+2-utf8.RuneCountInString(cell)))
			}
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(t.w, out.String())
	return err
}

// since writes how long ago something was, "" for the zero time.
func (t *sourceTable) since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return span(t.now().Sub(at))
}

// until writes in how long something will be.
func (t *sourceTable) until(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return span(at.Sub(t.now()))
}

// span writes a time in its largest unit.
func span(d time.Duration) string {
	for _, unit := range []struct {
		name string
		of   time.Duration
		from int64
	}{{"d", 24 * time.Hour, 2}, {"h", time.Hour, 2}, {"m", time.Minute, 2}} {
		if n := int64(d / unit.of); n >= unit.from {
			return fmt.Sprintf("%d%s", n, unit.name)
		}
	}
	return fmt.Sprintf("%ds", max(int64(d/time.Second), 0))
}
