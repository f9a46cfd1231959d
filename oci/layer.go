package oci

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/klauspost/readahead"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// maxBytes bounds a layer where [source.Env] sets no limit: as it is, and what
// is extracted from it.
const maxBytes = 16 << 30

// The reasons of a failure of the layer (reference A2).
const (
	pullFailed  = "OCIArtifactPullFailed"
	layerFailed = "OCIArtifactLayerOperationFailed"
)

// WriteTo implements [source.Content]: the layer as it is, or, unless the spec
// asks for that, the files in it in the normal form of package artifact.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	write := c.extract
	if c.copies() {
		write = c.copy
	}
	report, err := write(ctx, w)
	return source.Report{Report: report, Message: c.message(), Notes: c.notes, Emptied: c.rules.Emptied(report)}, err
}

// copies reports whether the layer is wanted as it is.
func (c *content) copies() bool {
	s := c.origin.repo.Spec.LayerSelector
	return s != nil && s.Operation == source.LayerCopy
}

// Close implements [source.Content].
func (c *content) Close() error {
	c.repo.Close()
	if c.tree == nil {
		return nil
	}
	return c.tree.Close()
}

// message is that of the event about the artifact (reference A3).
func (c *content) message() string {
	s := fmt.Sprintf("stored artifact with revision '%s' from '%s'", c.rev.ID, c.origin.repo.Spec.URL)
	for _, a := range []struct{ key, name string }{{ocispec.AnnotationSource, "source"}, {ocispec.AnnotationRevision, "revision"}} {
		if v := c.rev.Metadata[a.key]; v != "" {
			s += fmt.Sprintf(", origin %s '%s'", a.name, v)
		}
	}
	return s
}

// limits bound the content. A file of it may be as large as all of it.
func (c *content) limits() artifact.Limits {
	l := c.origin.env.Limits
	l.Bytes = cmp.Or(l.Bytes, maxBytes)
	l.FileBytes = cmp.Or(l.FileBytes, l.Bytes)
	return l
}

// pull gives use the layer, received while it is used, within spec.timeout.
// Unless hashed, use compares its digest.
func (c *content) pull(ctx context.Context, hashed bool, use func(io.Reader) error) error {
	if c.origin.repo.Spec.Verify != nil && !c.passed {
		return transport.Unverified(fmt.Errorf("%s has not been verified: %w", c.rev.ID, source.ErrVerification))
	}
	if limit := c.limits().Bytes; limit > 0 && c.layer.Size > limit {
		return c.failed(&artifact.LimitError{What: "bytes", Limit: limit})
	}
	progress, err := c.origin.progress("receiving layer", c.layer.Size)
	if err != nil {
		return err
	}
	return c.origin.within(ctx, "pull layer", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		blob, err := c.repo.blob(ctx, c.layer, hashed)
		if err != nil {
			return stepError(source.StepFetch, pullFailed, err)
		}
		defer blob.Close()
		received, err := readahead.NewReaderSize(&incoming{from: blob, of: c, progress: progress}, 4, 256<<10)
		if err != nil {
			return err
		}
		defer received.Close()
		defer cancel() // or Close would wait for a registry that stalls
		return use(received)
	})
}

// An incoming layer reports how much of it is there, and whose fault it is
// when reading fails.
type incoming struct {
	from     io.Reader
	of       *content
	done     int64
	progress func(done int64)
}

func (in *incoming) Read(p []byte) (int, error) {
	n, err := in.from.Read(p)
	in.done += int64(n)
	in.progress(in.done)
	if err != nil && err != io.EOF {
		err = stepError(source.StepFetch, pullFailed, in.told(err))
	}
	return n, err
}

// told says where the transfer failed.
func (in *incoming) told(err error) error {
	if !is[*ContentError](err) { // which says how much there was itself
		err = fmt.Errorf("after %d of %d bytes: %w", in.done, in.of.layer.Size, err)
	}
	return fmt.Errorf("receive layer %s of %s: %w", in.of.layer.Digest, in.of.repo.Name(), err)
}

// progress returns what reports how much of size bytes was transferred.
func (o *Origin) progress(phase string, size int64) (func(done int64), error) {
	p := source.Progress{Phase: phase, Total: size, Unit: "bytes"}
	report, err := o.env.Progress, error(nil)
	if report == nil {
		return func(int64) {}, nil
	}
	p.Object, err = source.Address(o.repo)
	return func(done int64) {
		p.Done = done
		report(p)
	}, err
}

// failed is about what the layer holds.
func (c *content) failed(err error) error {
	return &source.StepError{Step: source.StepFetch, Reason: layerFailed, Err: fmt.Errorf("layer %s: %w", c.layer.Digest, err)}
}
