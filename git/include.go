package git

import (
	"context"
	"io/fs"

	"github.com/headgate-io/headgate/artifact"
)

// inputs returns the artifacts that spec.include names, in its order.
func (o *Origin) inputs(ctx context.Context) ([]artifact.Artifact, error) { return nil, nil }

// include mounts the included artifacts, those of c.rev.Inputs, in tree.
func (c *content) include(ctx context.Context, tree fs.FS) (fs.FS, error) { return tree, nil }
