package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
)

// maxPatched is the size in bytes of the files whose changes are shown.
const maxPatched = 1 << 20

// printPatch writes the changes of text files as unified diffs, and a comment
// about everything else.
func (c *comparison) printPatch(w io.Writer) error {
	for _, change := range c.changes {
		text, err := c.patch(change)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// patch returns what there is to say of one change.
func (c *comparison) patch(change artifact.Change) ([]byte, error) {
	d := differenceOf(change)
	before, err := c.text(0, d.Before, change.Path)
	if err != nil {
		return nil, err
	}
	after, err := c.text(1, d.After, change.Path)
	if err != nil {
		return nil, err
	}
	var hunks []byte
	if before.shown && after.shown && redact.String(change.Path) == change.Path {
		hunks = diff.Diff(before.name, before.text, after.name, after.text)
	}
	what := strings.Join(d.What, ", ")
	if hunks != nil && (what == "" || what == "content") {
		return hunks, nil
	}
	if what != "" {
		what = " (" + what + ")"
	}
	return append(fmt.Appendf(nil, "# %s: %s%s: %s → %s\n", redact.String(change.Path), d.Change, what, d.Before, d.After), hunks...), nil
}

// A version is a file before or after a change.
type version struct {
	name  string
	text  []byte
	shown bool // it is text, and short
}

// text returns the version of a path in tree i, where it is s.
func (c *comparison) text(i int, s *side, path string) (version, error) {
	if s == nil || s.Type != "file" {
		return version{name: "/dev/null", shown: true}, nil
	}
	v := version{name: [2]string{"a/", "b/"}[i] + path}
	if strings.Contains(path, " ") {
		v.name += "\t" // ends the name, for patch
	}
	if s.Size > maxPatched {
		return v, nil
	}
	var err error
	v.text, err = fs.ReadFile(c.trees[i], path)
	v.shown = isText(v.text)
	return v, err
}

// isText reports whether a terminal can show text.
func isText(text []byte) bool {
	return utf8.Valid(text) && !bytes.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r'
	})
}
