package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/artifact"
)

// An Edit is what is to be different in the archive of a chart.
type Edit struct {
	Version string   // in Chart.yaml, "" for what it has
	Values  []byte   // values.yaml, which the chart must have already (reference A14); nil for what it has
	Charts  []*Chart // further ones in charts/
	// Limits of the archive, and of the charts in charts/; zero ones are those of [Limits].
	Limits artifact.Limits
}

// Pack writes the archive of c with e: NAME/…, in the normal form of
// [artifact.Pack]: what [Chart.With] returns. The same files make the same bytes, in
// whatever order e.Charts are.
//
// What is written is read again on its way: what [ReadArchive] with e.Limits would
// refuse is an error here, after a part of it has been written. Errors wrap
// [ErrChart], or are those of w, of the trees, or the cause of ctx.
func (c *Chart) Pack(ctx context.Context, w io.Writer, e Edit) (artifact.Report, error) {
	report, err := c.pack(ctx, w, e)
	if err != nil {
		return report, fmt.Errorf("pack chart %q: %w", c.Metadata.Name, err)
	}
	return report, nil
}

func (c *Chart) pack(ctx context.Context, w io.Writer, e Edit) (artifact.Report, error) {
	tree, err := c.with(e)
	if err != nil {
		return artifact.Report{}, err
	}
	return checked(w, e.Limits, func(w io.Writer) (artifact.Report, error) {
		return artifact.Pack(ctx, w, artifact.Mount(memory(nil), c.Metadata.Name, tree))
	})
}

// checked lets pack write to w, unless what it writes is an archive that
// [ReadArchive] refuses.
func checked(w io.Writer, l artifact.Limits, pack func(io.Writer) (artifact.Report, error)) (artifact.Report, error) {
	r, pipe := io.Pipe()
	read := make(chan error, 1)
	go func() {
		a, err := readArchive(r, Limits(l))
		if err == nil {
			err = a.Close()
		}
		r.CloseWithError(err)
		read <- err
	}()
	report, err := pack(io.MultiWriter(w, pipe))
	if err == nil && len(report.LeftOut) > 0 {
		err = irregular(report.LeftOut[0].Name, report.LeftOut[0].Mode)
	}
	pipe.CloseWithError(err)
	if refused := <-read; refused != nil && !errors.Is(err, refused) {
		err = refused
	}
	return report, err
}
