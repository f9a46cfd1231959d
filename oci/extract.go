package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// extract writes the files of the layer that the ignore rules leave.
func (c *content) extract(ctx context.Context, w io.Writer) (artifact.Report, error) {
	if err := c.open(ctx); err != nil {
		return artifact.Report{}, err
	}
	var report artifact.Report
	err := c.origin.within(ctx, "pack", func(ctx context.Context) (err error) {
		report, err = c.origin.env.Cache.Pack(ctx, w, c.rules.View(ctx, c.tree))
		return err
	})
	links := c.tree.Report() // an artifact never holds them
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

// undecided is how much more of a layer is read to find out why it is no archive.
const undecided = 64 << 20

// unreadable tells failures of the layer from those of the spool and of the
// transfer. What arrived in another form than it was pushed in is no archive
// either, so rest, what was not read of it, decides, unless there is much of it.
func (c *content) unreadable(err error, rest io.Reader) error {
	var limit *artifact.LimitError
	switch {
	case errors.Is(err, artifact.ErrFormat):
		if _, failed := io.CopyN(io.Discard, rest, undecided); failed != nil && failed != io.EOF {
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
