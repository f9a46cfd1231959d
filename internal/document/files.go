package document

import (
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
)

// Files yields the paths of the document files below root, in lexical order: those that end
// in .yaml, .yml or .json. It skips directories whose names begin with a dot, and links to
// directories. A root that is a file is yielded whatever its name. An error is about the
// path yielded with it, and further paths may follow.
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
