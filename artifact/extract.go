package artifact

import (
	"context"
	"errors"
	"io/fs"
)

// Extract replaces dir by the content of tree.
func Extract(ctx context.Context, tree fs.FS, dir string) error { return errors.ErrUnsupported }
