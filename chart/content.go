package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// content is one version of a chart: nothing of it is opened before WriteTo.
type content struct {
	shelf
	rev      source.Revision
	upstream upstream // nil when the chart lies in the tree of another source
	offer    offer
}

// Verify implements [source.Content]. What is fetched is what was verified.
func (c *content) Verify(ctx context.Context) (v source.Verification, err error) {
	if c.upstream == nil {
		return v, nil
	}
	trust := c.origin.chart.Spec.Verify
	if trust == nil && c.sources.verification() == "" {
		return v, nil
	}
	print, err := c.upstream.trusts(ctx, trust)
	if err == nil {
		err = c.origin.trusted.Check(print)
	}
	if err == nil {
		v, err = c.upstream.verify(ctx, c.offer, trust)
	}
	switch {
	case errors.Is(err, source.ErrVerification):
		return v, &source.StepError{Step: source.StepVerify, Reason: source.RefusedChart, Err: err}
	case err != nil && !is[*source.StepError](err):
		return v, transport.Unverified(err)
	case err == nil && v != (source.Verification{}) && v.Message == "":
		v.Message = fmt.Sprintf("verified signature of version %s", c.offer.version)
	}
	return v, err
}

// WriteTo implements [source.Content]: the archive as it came, or one that is
// built.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	to := &sink{w: w}
	report, err := c.write(ctx, to)
	switch {
	case to.err != nil:
		return source.Report{}, to.err // the store is to blame
	case err != nil:
		return source.Report{}, stepError(source.StepFetch, pullFailed, err)
	}
	return report, nil
}

// A sink remembers that writing failed.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

func (c *content) write(ctx context.Context, w io.Writer) (report source.Report, err error) {
	b, err := c.load(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, b.chart.close()) }()
	values, used, err := c.merged(ctx, b.own)
	if err != nil {
		return report, err
	}
	stamp := c.origin.stamp(c.sources)
	if a := b.chart.archive; a != nil && stamp == "" && values == nil {
		report.Files = 1
		report.Bytes, err = a.WriteTo(w)
		report.Reason, report.Ready = "ChartPullSucceeded", "pulled"
	} else {
		report.Report, err = c.build(ctx, w, b, values, stamp != "")
		report.Reason, report.Ready = "ChartPackageSucceeded", "packaged"
	}
	report.Ready += fmt.Sprintf(" '%s' chart with version '%s'", b.chart.Metadata.Name, c.rev.ID)
	if values != nil {
		report.Ready += fmt.Sprintf(" and merged values files %v", used)
	}
	report.Message, report.Found = report.Ready, append([]string{}, used...)
	return report, err
}

// A base is what a chart is built from.
type base struct {
	chart *openedChart
	own   fs.FS // where values files are looked up
	tree  fs.FS // that chart is the directory dir of, nil for an archive
	dir   string
}

// load opens the chart.
func (c *content) load(ctx context.Context) (*base, error) {
	if c.upstream != nil {
		a, err := c.upstream.fetch(ctx, c.offer)
		if err != nil {
			return nil, err
		}
		return &base{chart: &openedChart{a.Chart, a}, own: a.Files}, nil
	}
	dir, err := c.origin.path()
	if err != nil {
		return nil, err
	}
	tree, err := c.tree(ctx, c.sources.ref)
	if err != nil {
		return nil, c.origin.unpacked(c.sources, err)
	}
	b := &base{own: tree}
	if c.sources.copies && alone(tree, dir) {
		b.chart, err = c.whole(ctx)
	} else {
		b.chart, err = openChart(tree, dir, c.origin.env.Limits)
	}
	if err != nil {
		return nil, c.origin.notChart(c.sources, err)
	}
	if b.chart.archive == nil {
		b.tree, b.dir = tree, dir
	}
	return b, nil
}

// alone reports whether dir is all that tree has, as in the archive of a chart.
func alone(tree fs.FS, dir string) bool {
	top, err := fs.ReadDir(tree, ".")
	return err == nil && len(top) == 1 && top[0].IsDir() && top[0].Name() == dir
}

// whole reads the artifact of the source itself, which is the archive of a chart.
func (c *content) whole(ctx context.Context) (*openedChart, error) {
	var a *bundle.Archive
	err := c.sources.within(ctx, "read the artifact of "+c.sources.spell(c.sources.ref), func(ctx context.Context) error {
		r, err := source.OpenArtifact(ctx, c.origin.env.Sources, c.sources.inputs[0])
		if err != nil {
			return err
		}
		defer r.Close()
		a, err = bundle.ReadArchive(r, bundle.Limits(c.origin.env.Limits))
		return err
	})
	if err != nil {
		return nil, err
	}
	return &openedChart{a.Chart, a}, nil
}

// build writes the archive of a chart with what is to be different in it.
func (c *content) build(ctx context.Context, w io.Writer, b *base, values []byte, stamped bool) (report artifact.Report, err error) {
	edit := bundle.Edit{Values: values, Limits: bundle.Limits(c.origin.env.Limits)}
	if stamped {
		edit.Version = c.rev.ID
	}
	if values != nil {
		if err := replaceable(b.chart.Chart); err != nil {
			return report, err
		}
	}
	if b.tree != nil {
		charts, end, err := c.origin.supply().complete(ctx, b.tree, b.dir, b.chart.Chart)
		if err != nil {
			return report, stepError(source.StepBuild, "DependencyBuildError", err)
		}
		defer end()
		edit.Charts = charts
	}
	err = c.sources.within(ctx, "package the chart", func(ctx context.Context) (err error) {
		report, err = b.chart.Pack(ctx, w, edit)
		return err
	})
	switch {
	case errors.Is(err, bundle.ErrVersion):
		return report, &source.StepError{Step: source.StepBuild, Reason: "MetadataPatchError", Err: invalid(err)}
	case err != nil:
		return report, &source.StepError{Step: source.StepBuild, Reason: "ChartPackageError", Err: err}
	}
	return report, nil
}

// replaceable fails when there are no values that others can replace (reference A14).
func replaceable(c *bundle.Chart) error {
	own, err := c.Values()
	if err == nil && own == nil {
		err = errors.New("the chart has no values.yaml that spec.valuesFiles could replace: add an empty one to it")
	}
	if err != nil {
		return badValues(err)
	}
	return nil
}

// Close implements [source.Content].
func (c *content) Close() error {
	if c.upstream != nil {
		c.upstream.close()
	}
	return c.shelf.close()
}
