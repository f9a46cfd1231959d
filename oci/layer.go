package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/readahead"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// maxBytes is the default limit of a layer in bytes, both for the blob and for the
// content that is extracted from it.
const maxBytes = 16 << 30

// The reasons of a failure of the layer (reference A2).
const (
	pullFailed  = "OCIArtifactPullFailed"
	layerFailed = "OCIArtifactLayerOperationFailed"
)

// WriteTo implements [source.Content]. It writes the layer unchanged if the spec asks for
// that, otherwise the files in it in the normal form of package artifact.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	write := c.extract
	if c.copies() {
		write = c.copy
	}
	report, err := write(ctx, w)
	return source.Report{Report: report, Message: c.message(), Notes: c.notes, Emptied: c.rules.Emptied(report), Copied: c.copies()}, err
}

// copies reports whether the spec asks for the unchanged layer.
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

// message returns the message of the event about the artifact (reference A3).
func (c *content) message() string {
	s := fmt.Sprintf("stored artifact with revision '%s' from '%s'", c.rev.ID, c.origin.repo.Spec.URL)
	for _, a := range []struct{ key, name string }{{ocispec.AnnotationSource, "source"}, {ocispec.AnnotationRevision, "revision"}} {
		if v := c.rev.Metadata[a.key]; v != "" {
			s += fmt.Sprintf(", origin %s '%s'", a.name, v)
		}
	}
	return s
}

// limits returns the limits with their defaults. A single file may be as large as all
// the content.
func (c *content) limits() artifact.Limits {
	l := c.origin.env.Limits
	l.Bytes = cmp.Or(l.Bytes, maxBytes)
	l.FileBytes = cmp.Or(l.FileBytes, l.Bytes)
	return l
}

// pull calls use with a reader that downloads the layer, with the timeout spec.timeout.
// If hashed is false, use must verify the digest.
func (c *content) pull(ctx context.Context, hashed bool, use func(io.Reader) error) error {
	if c.origin.repo.Spec.Verify != nil && !c.passed {
		return transport.VerificationError(fmt.Errorf("%s has not been verified: %w", c.rev.ID, source.ErrVerification))
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
		received, err := readahead.NewReaderSize(&layerReader{reader: blob, content: c, progress: progress}, 4, 256<<10)
		if err != nil {
			return err
		}
		defer received.Close()
		defer cancel() // before Close, which would wait for a registry that stalls
		return use(received)
	})
}

// A layerReader reports progress, and wraps errors of the transfer with their reason.
type layerReader struct {
	reader   io.Reader
	content  *content
	done     int64
	progress func(done int64)
}

func (r *layerReader) Read(p []byte) (int, error) {
	n, err := r.reader.Read(p)
	r.done += int64(n)
	r.progress(r.done)
	if err != nil && err != io.EOF {
		err = stepError(source.StepFetch, pullFailed, r.transferError(err))
	}
	return n, err
}

// transferError adds to err the position and the layer at which the transfer failed.
func (r *layerReader) transferError(err error) error {
	if !is[*ContentError](err) { // a ContentError contains the position already
		err = fmt.Errorf("after %d of %d bytes: %w", r.done, r.content.layer.Size, err)
	}
	return fmt.Errorf("receive layer %s of %s: %w", r.content.layer.Digest, r.content.repo.Name(), err)
}

// progress returns a function that reports how many of size bytes were transferred.
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

// failed wraps an error about the content of the layer.
func (c *content) failed(err error) error {
	return &source.StepError{Step: source.StepFetch, Reason: layerFailed, Err: fmt.Errorf("layer %s: %w", c.layer.Digest, err)}
}

// extract writes the files of the layer that ignore rules do not exclude. It does not
// cache compressed blocks for the next layer: that would take a tenth of the time and as
// much disk space as the artifact.
func (c *content) extract(ctx context.Context, w io.Writer) (artifact.Report, error) {
	if err := c.open(ctx); err != nil {
		return artifact.Report{}, err
	}
	var report artifact.Report
	err := c.origin.within(ctx, "pack", func(ctx context.Context) (err error) {
		report, err = artifact.Pack(ctx, w, c.rules.View(ctx, c.tree))
		return err
	})
	links := c.tree.Report() // an artifact never contains links
	if errors.Is(err, artifact.ErrIgnore) {
		err = &source.StepError{Step: source.StepFetch, Reason: "SourceIgnoreError", Err: err}
	}
	report.LeftOut, report.LeftOutTotal = links.LeftOut, links.LeftOutTotal
	return report, err
}

// open spools the layer's files, once, and compiles the ignore rules.
func (c *content) open(ctx context.Context) error {
	if c.tree != nil {
		return nil
	}
	var tree *artifact.Tree
	err := c.pull(ctx, true, func(layer io.Reader) (err error) {
		tree, err = artifact.Read(layer, c.limits())
		return c.unreadable(err, layer)
	})
	if err != nil {
		return err
	}
	rules, err := ignoreOf(c.origin.repo).Compile(ctx, tree)
	if err != nil {
		return errors.Join(&source.StepError{Step: source.StepFetch, Reason: "SourceIgnoreError", Err: err}, tree.Close())
	}
	c.tree, c.rules = tree, rules
	return nil
}

// maxRest limits the bytes that are read from the rest of a layer that is not an archive,
// to detect a transfer error.
const maxRest = 64 << 20

// unreadable wraps err if it is about the layer, not the spool or the transfer. A layer
// that was corrupted in transfer is not a valid archive either, so unreadable reads
// up to maxRest bytes of rest, the unread part: an error there is returned instead.
func (c *content) unreadable(err error, rest io.Reader) error {
	var limit *artifact.LimitError
	switch {
	case errors.Is(err, artifact.ErrFormat):
		if _, failed := io.CopyN(io.Discard, rest, maxRest); failed != nil && failed != io.EOF {
			return failed
		}
		return c.failed(fmt.Errorf("its media type is %q: %w: set spec.layerSelector.operation to copy if it is not to be extracted", c.layer.MediaType, err))
	case errors.As(err, &limit):
		return c.failed(err)
	}
	return err
}

func ignoreOf(r *source.OCIRepository) artifact.Ignore {
	ignore := artifact.DefaultIgnore()
	if r.Spec.Ignore != nil {
		ignore.Extra = *r.Spec.Ignore
	}
	return ignore
}

// Explain implements [source.Explainer].
func (c *content) Explain(ctx context.Context) (fs.FS, *artifact.Rules, error) {
	if c.copies() {
		return nil, nil, errors.New("spec.layerSelector.operation is copy: the layer is stored as it is, ignore rules do not apply")
	}
	if err := c.open(ctx); err != nil {
		return nil, nil, err
	}
	return c.tree, c.rules, nil
}

// copy writes the layer unchanged. The written content is valid only if copy succeeds,
// because the digest is verified at the end.
func (c *content) copy(ctx context.Context, w io.Writer) (artifact.Report, error) {
	report := artifact.Report{Files: 1}
	sum := digestFunc(w, c.layer.Digest)
	err := c.pull(ctx, sum == nil, func(layer io.Reader) (err error) {
		report.Bytes, err = io.Copy(w, layer)
		if err != nil || sum == nil {
			return err
		}
		if got := digest.Digest(sum()); got != c.layer.Digest {
			return stepError(source.StepFetch, pullFailed, wrongDigest(c.layer.Digest, got))
		}
		return nil
	})
	return report, err
}

// digestFunc returns a function that returns the digest of the data written to w, or nil if w
// does not compute one with the algorithm of d. The store does by default, and hashing
// twice would take longer than writing.
func digestFunc(w io.Writer, d digest.Digest) func() string {
	s, ok := w.(interface{ Sum() string })
	if !ok || !strings.HasPrefix(s.Sum(), string(d.Algorithm())+":") {
		return nil
	}
	return s.Sum
}
