package bucket

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A content is the content of one revision.
type content struct {
	origin   *Origin
	rev      source.Revision
	snapshot *snapshot
}

func newContent(o *Origin, rev source.Revision, s *snapshot) *content {
	return &content{origin: o, rev: rev, snapshot: s}
}

// Verify implements [source.Content]: buckets have no signatures.
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content].
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	return source.Report{}, errors.ErrUnsupported
}

// Explain implements [source.Explainer].
func (c *content) Explain(ctx context.Context) (fs.FS, *artifact.Rules, error) {
	return nil, nil, errors.ErrUnsupported
}

// Close implements [source.Content].
func (c *content) Close() error {
	c.snapshot.access.close()
	return nil
}
