package main

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
)

// A comparison is what diff found.
type comparison struct {
	Before  string       `json:"before"`
	After   string       `json:"after"`
	Same    bool         `json:"same"`
	Changes []difference `json:"changes"`

	trees   [2]fs.FS
	changes []artifact.Change
}

// A difference is one change as it is printed.
type difference struct {
	Path   string   `json:"path"`
	Change string   `json:"change"`         // added, removed or changed
	What   []string `json:"what,omitempty"` // of what changed: type, mode, content
	Before *side    `json:"before,omitempty"`
	After  *side    `json:"after,omitempty"`
}

// A side is an entry of one of the artifacts.
type side struct {
	Type       string `json:"type"` // file or directory
	Executable bool   `json:"executable,omitempty"`
	Size       int64  `json:"size,omitempty"` // bytes of a file
}

func sideOf(s artifact.Side) *side {
	switch {
	case s.Mode == 0:
		return nil
	case s.Mode.IsDir():
		return &side{Type: "directory"}
	}
	return &side{Type: "file", Executable: s.Mode&0o111 != 0, Size: s.Size}
}

func (s *side) String() string {
	switch {
	case s == nil:
		return "-"
	case s.Type != "file":
		return s.Type
	case s.Executable:
		return humanSize(s.Size) + ", executable"
	}
	return humanSize(s.Size)
}

func differenceOf(c artifact.Change) difference {
	d := difference{Path: c.Path, Change: "changed", Before: sideOf(c.Old), After: sideOf(c.New)}
	switch {
	case d.Before == nil:
		d.Change = "added"
	case d.After == nil:
		d.Change = "removed"
	case d.Before.Type != d.After.Type:
		d.What = []string{"type"}
	default:
		if c.Old.Mode != c.New.Mode {
			d.What = append(d.What, "mode")
		}
		if c.Content {
			d.What = append(d.What, "content")
		}
	}
	return d
}

// print writes the comparison in a format of -o.
func (c *comparison) print(w io.Writer, format string) error {
	switch format {
	case "patch":
		return c.printPatch(w)
	case "name":
		for _, change := range c.changes {
			if _, err := fmt.Fprintln(w, redact.String(change.Path)); err != nil {
				return err
			}
		}
		return nil
	case "table":
		return c.printTable(w)
	}
	c.Same, c.Changes = len(c.changes) == 0, make([]difference, len(c.changes))
	for i, change := range c.changes {
		c.Changes[i] = differenceOf(change)
	}
	return printValue(w, format, c)
}

// printTable writes a line for each change, and nothing when there is none.
func (c *comparison) printTable(w io.Writer) error {
	if len(c.changes) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tCHANGE\tWHAT\tBEFORE\tAFTER")
	for _, change := range c.changes {
		d := differenceOf(change)
		what := strings.Join(d.What, ", ")
		if what == "" {
			what = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", redact.String(d.Path), d.Change, what, d.Before, d.After)
	}
	return t.Flush()
}
