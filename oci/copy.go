package oci

import (
	"context"
	"io"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// copy writes the layer as it is. What was written is the layer only if it
// succeeds: the digest is known at the end.
func (c *content) copy(ctx context.Context, w io.Writer) (artifact.Report, error) {
	report := artifact.Report{Files: 1}
	sum := summer(w, c.layer.Digest)
	err := c.pull(ctx, sum == nil, func(layer io.Reader) (err error) {
		report.Bytes, err = io.Copy(w, layer)
		if err != nil || sum == nil {
			return err
		}
		if got := digest.Digest(sum()); got != c.layer.Digest {
			return stepError(source.StepFetch, pullFailed, &ContentError{Digest: c.layer.Digest, Size: c.layer.Size, Got: got, Read: report.Bytes})
		}
		return nil
	})
	return report, err
}

// summer returns what tells the digest of what was written to w, where that
// takes it in the algorithm of d, as the store does by default: hashing twice
// would take longer than writing.
func summer(w io.Writer, d digest.Digest) func() string {
	s, ok := w.(interface{ Sum() string })
	if !ok || !strings.HasPrefix(s.Sum(), string(d.Algorithm())+":") {
		return nil
	}
	return s.Sum
}
