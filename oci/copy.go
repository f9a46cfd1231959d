package oci

import (
	"context"
	"io"

	"github.com/headgate-io/headgate/artifact"
)

// copy writes the layer as it is. What was written is the layer only if it
// succeeds: the digest is known at the end.
func (c *content) copy(ctx context.Context, w io.Writer) (artifact.Report, error) {
	report := artifact.Report{Files: 1}
	err := c.pull(ctx, func(layer io.Reader) (err error) {
		report.Bytes, err = io.Copy(w, layer)
		return err
	})
	return report, err
}
