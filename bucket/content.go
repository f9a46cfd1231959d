package bucket

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A content is the content of one revision.
type content struct {
	origin   *Origin
	rev      source.Revision
	snapshot *snapshot
	ctx      context.Context // of what Explain returns, until end is called
	end      context.CancelFunc
}

func newContent(ctx context.Context, o *Origin, rev source.Revision, s *snapshot) *content {
	c := &content{origin: o, rev: rev, snapshot: s}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

var _ source.Explainer = (*content)(nil)

// Verify implements [source.Content]: buckets have no signatures.
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content]. Objects that are unchanged since the
// published artifact was made are copied from it. The error wraps
// [source.ErrMoved] when an object is not what was listed any more, and when the
// published artifact turns out to be damaged.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	out := &output{Writer: w}
	report := source.Report{Notes: c.snapshot.notes[:len(c.snapshot.notes):len(c.snapshot.notes)]}
	err := c.origin.within(ctx, "fetch", func(ctx context.Context) error { return c.pack(ctx, out, &report) })
	if err != nil && out.err == nil { // the bucket is at fault, not the storage
		err = c.origin.failed(source.StepFetch, err)
	}
	report.Emptied = c.snapshot.rules.Emptied(report.Report)
	files := report.Files
	if c.snapshot.state.Ignore != nil {
		files-- // which is no part of the revision
	}
	report.Message = fmt.Sprintf("stored artifact with %d fetched files from '%s' bucket", files, c.origin.bucket.Spec.BucketName)
	return report, err
}

// pack fetches the objects and packs them while they arrive.
func (c *content) pack(ctx context.Context, out *output, report *source.Report) error {
	total := len(c.snapshot.files)
	if c.snapshot.state.Ignore != nil {
		total--
	}
	progress, err := c.origin.progress("receiving objects", total)
	if err != nil {
		return err
	}
	arrived := 0
	var mu sync.Mutex
	count := func() {
		mu.Lock()
		defer mu.Unlock()
		arrived++
		if arrived%(total/maxReports+1) == 0 || arrived == total {
			progress(arrived)
		}
	}
	previous := c.openPrevious(ctx)
	if previous != nil {
		report.Notes = append(report.Notes, fmt.Sprintf("%d of %d objects are unchanged and were copied from the artifact before", len(previous.same), total))
	}
	f := newFetch(ctx, c.snapshot, previous, count)
	out.failed = f.cancel
	report.Report, err = c.origin.env.Cache.Pack(f.ctx, out, f.tree)
	if err == nil {
		f.running.Wait()
		err = f.copied
	}
	f.close()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%d of %d objects arrived: %w", arrived, total, err)
	case err != nil:
		return err
	}
	c.remember(out.Writer)
	return nil
}

// maxReports is how often progress is reported, about.
const maxReports = 100

// An output notes that writing failed, and ends what produces its content.
type output struct {
	io.Writer
	err    error
	failed context.CancelCauseFunc
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.err = err
		o.failed(err)
	}
	return n, err
}

// Explain implements [source.Explainer].
func (c *content) Explain(context.Context) (fs.FS, *artifact.Rules, error) {
	s := c.snapshot
	t := newTree(s.all(), s.state.Ignore.text(), func(o Object, _ int) (io.ReadCloser, error) { return newObjectReader(c.ctx, s.driver, o), nil })
	return t, s.rules, nil
}

// Close implements [source.Content].
func (c *content) Close() error {
	c.end()
	c.snapshot.access.close()
	return nil
}
