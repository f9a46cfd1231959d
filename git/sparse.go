package git

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
)

// sparseView returns a view of tree with the directories that spec.sparseCheckout
// lists, each of which must exist. It shows no files beside or above them, not even
// ignore files, as in the worktree of a sparse checkout.
func (o *Origin) sparseView(ctx context.Context, tree fs.FS) (fs.FS, error) {
	spec := &o.repo.Spec
	dirs, err := spec.Directories()
	if err != nil {
		return nil, specError(err)
	}
	if dirs == nil {
		return tree, nil
	}
	for i, dir := range dirs {
		if err := checkDir(tree, dir, spec.RecurseSubmodules); err != nil {
			return nil, fmt.Errorf("spec.sparseCheckout[%d]: %w", i, err)
		}
	}
	rules, err := artifact.Ignore{Extra: coneRules(dirs)}.Compile(ctx, nil)
	if err != nil {
		return nil, specError(fmt.Errorf("spec.sparseCheckout: %w", err))
	}
	return rules.View(context.WithoutCancel(ctx), tree), nil
}

// coneRules returns ignore rules that keep only dirs and their content, in git's own form
// of a sparse checkout. For a/b they are
//
//	/*
//	!/a
//	/a/*
//	!/a/b
//
// A directory must come after those above it, because their rules would undo its own.
func coneRules(dirs []string) string {
	sorted := slices.Clone(dirs)
	slices.SortFunc(sorted, func(a, b string) int { // by elements: a directory comes right before those below it
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	var rules strings.Builder
	rules.WriteString("/*\n")
	opened := map[string]bool{}
	last := ""
	for _, dir := range sorted {
		if last != "" && (dir == last || strings.HasPrefix(dir, last+"/")) {
			continue // already included with a directory above
		}
		last = dir
		for i, c := range dir + "/" {
			above := dir[:i]
			if c != '/' || opened[above] {
				continue
			}
			opened[above] = true
			fmt.Fprintf(&rules, "!/%s\n", quoteGlob(above))
			if above != dir {
				fmt.Fprintf(&rules, "/%s/*\n", quoteGlob(above))
			}
		}
	}
	return rules.String()
}

// quoteGlob writes a path as a pattern that matches nothing else.
func quoteGlob(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if strings.IndexByte(`\*?[ `, name[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// checkDir checks that dir is a directory of tree. With modules it may be a
// submodule, which becomes a directory later. It reads no file.
func checkDir(tree fs.FS, dir string, modules bool) error {
	at := "."
	for rest, more := dir, true; more; {
		var base string
		base, rest, more = strings.Cut(rest, "/")
		entries, err := fs.ReadDir(tree, at)
		if err != nil {
			return err
		}
		at = path.Join(at, base)
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == base })
		switch {
		case i < 0:
			return notFound(fmt.Sprintf("directory %q does not exist at this revision%s", dir, caseHint(entries, base, at)))
		case entries[i].IsDir() || modules && !more && entries[i].Type()&fs.ModeIrregular != 0:
		default:
			return fmt.Errorf("%q is no directory at this revision: %q is %s", dir, at, kindOf(entries[i].Type()))
		}
	}
	return nil
}

// caseHint returns a hint if a name in entries differs from base in case only.
func caseHint(entries []fs.DirEntry, base, at string) string {
	for _, e := range entries {
		if strings.EqualFold(e.Name(), base) {
			return fmt.Sprintf("; there is %q: upper and lower case count", path.Join(path.Dir(at), e.Name()))
		}
	}
	return ""
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link, which is not followed"
	case mode&fs.ModeIrregular != 0:
		return "a submodule: set spec.recurseSubmodules, and list nothing below it"
	}
	return "a file: list the directory that holds it"
}
