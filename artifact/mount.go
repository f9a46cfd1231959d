package artifact

import "io/fs"

// Mount returns tree with sub appearing at dir.
func Mount(tree fs.FS, dir string, sub fs.FS) fs.FS { return tree }
