package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

func (p *program) diff() *cobra.Command {
	f := new(sourceFlags)
	c := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two artifacts entry by entry",
		Long: `Diff lists the files and directories that were added, removed or changed between BEFORE and AFTER: their content, their
type, or whether they are executable. BEFORE and AFTER are objects of the store (KIND/NAME or KIND/NAMESPACE/NAME), paths
in the store, archives, directories, or URLs as fetch takes them, which are fetched but not stored. Of a directory the
files that push would publish are compared.

-o patch prints the changes of text files of up to 1 MiB as input for patch; lines that begin with # describe the others.

Exit codes: 0 the artifacts are the same, 4 they differ, 1 something failed, 2 usage.`,
		Example: `  headgate diff gitrepository/app ./checkout
  headgate diff oci://registry.example.org/app ./manifests -q || headgate push ./manifests oci://registry.example.org/app`,
		Args:              rangeArgs(2, 2),
		ValidArgsFunction: completeStored(&f.store),
		RunE:              func(c *cobra.Command, args []string) error { return p.runDiff(c.Context(), f, args) },
	}
	registerStore(c, &f.store)
	f.registerAccess(c, false)
	registerLimit(c, &f.maxBytes)
	f.outputFlags.register(c, "table", "json", "yaml", "name", "patch")
	return c
}

func (p *program) runDiff(ctx context.Context, f *sourceFlags, args []string) error {
	s, err := p.openSession(f)
	if err != nil {
		return err
	}
	defer s.close()
	c := comparison{Before: redactArgument(args[0]), After: redactArgument(args[1]), Changes: []difference{}}
	for i, arg := range args {
		if c.trees[i], err = s.openTree(ctx, arg); err != nil {
			return s.prefixError(arg, err)
		}
	}
	var names []string
	lines := [][]string{{"PATH", "CHANGE", "WHAT", "BEFORE", "AFTER"}}
	for change, err := range artifact.Diff(ctx, c.trees[0], c.trees[1]) {
		if err != nil {
			return err
		}
		d := differenceOf(change)
		c.Changes, names = append(c.Changes, d), append(names, d.Path)
		lines = append(lines, []string{d.Path, d.Change, strings.Join(d.What, ", "), d.Before.String(), d.After.String()})
		if !f.prints() {
			break // one change determines the exit code
		}
	}
	c.Same = len(c.Changes) == 0
	switch {
	case f.output == "patch" && f.prints():
		err = c.patch(p.stdout)
	case !c.Same || f.output != "table": // a table without changes is not printed
		err = p.printResult(&f.outputFlags, c, names, lines)
	}
	if err == nil && !c.Same {
		err = &exitError{exitChanged, nil}
	}
	return err
}

// redactArgument returns an argument. If it is a URL, credentials are removed.
func redactArgument(arg string) string {
	if strings.Contains(arg, "://") {
		return redact.RedactIfQuery(redact.WithoutPassword(arg))
	}
	return arg
}

// prefixError prefixes an error with its subject and keeps its exit code. Without -f
// the text names flags instead of fields.
func (s *session) prefixError(arg string, err error) error {
	text := err.Error()
	if len(s.flags.files) == 0 {
		text = fieldsToFlags(text)
	}
	return &exitError{codeOf(err), fmt.Errorf("%s: %s%s", redact.String(arg), text, unreachableHint(err))}
}

// openTree opens an argument of diff: a URL, a directory, or else an archive or
// artifact.
func (s *session) openTree(ctx context.Context, arg string) (fs.FS, error) {
	var r sourceTree
	var err error
	switch {
	case strings.Contains(arg, "://"):
		var obj source.Object
		if obj, err = s.objectOf(ctx, arg); err == nil {
			r, err = s.openContent(ctx, obj)
		}
	case isDir(arg):
		r, err = s.openDir(ctx, arg)
	default:
		lookup := artifactLookup{store: s.flags.store, maxBytes: s.flags.maxBytes}
		file, err := lookup.open(ctx, arg)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		tree, err := lookup.tree(file)
		if err == nil {
			s.opened = append(s.opened, tree)
		}
		return tree, err
	}
	if err != nil {
		return nil, err
	}
	return r.rules.View(ctx, r.tree), nil
}

// A comparison is the result of diff.
type comparison struct {
	Before  string       `json:"before"`
	After   string       `json:"after"`
	Same    bool         `json:"same"`
	Changes []difference `json:"changes"`

	trees [2]fs.FS
}

// A difference is one change as it is printed.
type difference struct {
	Path   string   `json:"path"`
	Change string   `json:"change"`         // added, removed or changed
	What   []string `json:"what,omitempty"` // type, mode or content, if it was changed
	Before *side    `json:"before,omitempty"`
	After  *side    `json:"after,omitempty"`
}

// A side is a file or directory in one of the two artifacts.
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

// patch writes a unified diff of each text file, and a comment line for every
// other change.
func (c *comparison) patch(w io.Writer) error {
	for _, d := range c.Changes {
		before, beforeName, textBefore, err := c.readFile(0, d.Before, d.Path)
		after, afterName, textAfter, err2 := c.readFile(1, d.After, d.Path)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		var hunks []byte
		if textBefore && textAfter && redact.String(d.Path) == d.Path {
			hunks = diff.Diff(beforeName, before, afterName, after)
		}
		if what := strings.Join(d.What, ", "); hunks == nil || what != "" && what != "content" {
			if what != "" {
				what = " (" + what + ")"
			}
			fmt.Fprintf(w, "# %s: %s%s: %s → %s\n", redact.String(d.Path), d.Change, what, d.Before, d.After)
		}
		if _, err := w.Write(hunks); err != nil {
			return err
		}
	}
	return nil
}

// readFile returns the content of a path in tree i, its name in the patch, and
// whether a terminal can show it.
func (c *comparison) readFile(i int, s *side, path string) (text []byte, name string, shown bool, err error) {
	const most = 1 << 20 // bytes
	if s == nil || s.Type != "file" {
		return nil, "/dev/null", true, nil
	}
	if name = [2]string{"a/", "b/"}[i] + path; strings.Contains(path, " ") {
		name += "\t" // marks the end of a name with spaces for patch
	}
	if s.Size > most {
		return nil, name, false, nil
	}
	text, err = fs.ReadFile(c.trees[i], path)
	shown = utf8.Valid(text) && !bytes.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r)
	})
	return text, name, shown, err
}
