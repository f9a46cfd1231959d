package git

import (
	"context"
	"io/fs"
)

// lean reports whether much of the tree is likely to be left out, so that it
// pays to ask for the trees first.
func (o *Origin) lean() bool { return false }

// sparse returns the directories of tree that spec.sparseCheckout lists.
func (c *content) sparse(ctx context.Context, tree fs.FS) (fs.FS, error) { return tree, nil }

// supply fetches the blobs of view that a lean fetch left out.
func (c *content) supply(ctx context.Context, view fs.FS) error { return nil }
