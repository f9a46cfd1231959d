package bundle

import (
	"fmt"
	"io/fs"
	"path"

	"github.com/headgate-io/headgate/artifact"
)

// With returns the files of c with further charts in charts/, each in a directory
// of its name, or of name and version where there is something of that name.
// Names of charts must be names of directories.
func (c *Chart) With(charts ...*Chart) fs.FS {
	files := c.Files
	taken := map[string]bool{}
	for _, sub := range charts {
		dir := path.Join("charts", sub.Metadata.Name)
		for n, at := 1, dir; taken[dir] || exists(c.Files, dir); n++ {
			if dir = at + "-" + sub.Metadata.Version; n > 1 {
				dir = fmt.Sprintf("%s-%d", dir, n)
			}
		}
		taken[dir] = true
		files = artifact.Mount(files, dir, sub.Files)
	}
	return files
}

func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}
