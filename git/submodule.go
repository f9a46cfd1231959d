package git

import (
	"context"
	"io/fs"
)

// submodules mounts the submodules of tree, at the commits it pins.
func (c *content) submodules(ctx context.Context, tree fs.FS) (fs.FS, error) { return tree, nil }
