package oci

import (
	"context"
	"errors"
	"io"

	"github.com/headgate-io/headgate/source"
)

// WriteTo implements [source.Content].
func (c *content) WriteTo(context.Context, io.Writer) (source.Report, error) {
	return source.Report{}, errors.ErrUnsupported
}

// Close implements [source.Content].
func (c *content) Close() error { return nil }
