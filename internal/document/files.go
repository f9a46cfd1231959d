package document

import (
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
)

// Files yields the paths of the files of documents below root, in lexical order: those
// that end in .yaml, .yml or .json. Directories whose names begin with a dot are passed
// over, links to directories as well. A root that is a file is yielded whatever its name.
// An error is about the path beside it, and others follow.
func Files(fsys fs.FS, root string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		fs.WalkDir(fsys, root, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
			case entry.IsDir() && name != root && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case entry.IsDir() || name != root && !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name))):
				return nil
			}
			if !yield(name, err) {
				return fs.SkipAll
			}
			return nil
		})
	}
}
