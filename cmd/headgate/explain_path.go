package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/headgate-io/headgate/internal/redact"
)

// An explanation says what becomes of one path.
type explanation struct {
	Path      string `json:"path"`
	Exists    bool   `json:"exists"`
	Directory bool   `json:"directory"`
	Included  bool   `json:"included"`          // in the artifact; it would be, if it existed
	Pattern   string `json:"pattern,omitempty"` // the one that decides; "" when none does
	Source    string `json:"source,omitempty"`  // the file that Pattern stands in, spec.ignore or default
	Line      int    `json:"line,omitempty"`
	Note      string `json:"note,omitempty"`
}

// treePath returns the path inside a source that a user means, if it is one.
func treePath(arg string) (name string, ok bool) {
	name = path.Clean(filepath.ToSlash(arg))
	return name, arg != "" && fs.ValidPath(name)
}

// explain says what becomes of the path that arg names.
func (r ruled) explain(ctx context.Context, arg string) (explanation, error) {
	name, _ := treePath(arg)
	e := explanation{Path: name}
	mode, err := modeOf(r.tree, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Directory, e.Note = strings.HasSuffix(filepath.ToSlash(arg), "/"), "does not exist"
	case err != nil:
		return e, err
	default:
		e.Exists, e.Directory = true, mode.IsDir()
	}
	rule, ignored, err := r.rules.Match(ctx, name, e.Directory)
	if err != nil {
		return e, err
	}
	e.Included = !ignored
	e.Pattern, e.Source, e.Line = rule.Pattern, rule.Source, rule.Line
	switch {
	case e.Exists && !mode.IsDir() && !mode.IsRegular():
		e.Included, e.Note = false, "is "+kindOfFile(mode)+", which no artifact holds"
	case e.Exists && mode.IsDir() && ignored && r.reveals(ctx, name):
		e.Note = "a pattern includes something below it again"
	}
	return e, nil
}

// reveals reports whether something below an ignored directory may be included.
func (r ruled) reveals(ctx context.Context, dir string) bool {
	below, err := fs.ReadDir(r.rules.View(ctx, r.tree), dir)
	return err == nil && len(below) > 0
}

// modeOf returns the type of what is at a path, without following a link. It
// reads directories only: the files need not be at hand.
func modeOf(tree fs.FS, name string) (fs.FileMode, error) {
	mode := fs.ModeDir
	if name == "." {
		return mode, nil
	}
	at := "."
	for base := range strings.SplitSeq(name, "/") {
		if !mode.IsDir() {
			return 0, fs.ErrNotExist
		}
		entries, err := fs.ReadDir(tree, at)
		if err != nil {
			return 0, err
		}
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == base })
		if i < 0 {
			return 0, fs.ErrNotExist
		}
		mode, at = entries[i].Type(), path.Join(at, base)
	}
	return mode, nil
}

// printExplanations writes a line for each path.
func printExplanations(w io.Writer, list []explanation) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tINCLUDED\tDECIDED BY\tNOTE")
	for _, e := range list {
		included, by := "no", "no pattern"
		if e.Included {
			included = "yes"
		}
		switch {
		case e.Pattern != "" && e.Line > 0:
			by = fmt.Sprintf("%s:%d: %s", e.Source, e.Line, e.Pattern)
		case e.Pattern != "":
			by = e.Source + ": " + e.Pattern
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", redact.String(e.Path), included, redact.String(by), cmp.Or(e.Note, "-"))
	}
	return t.Flush()
}
