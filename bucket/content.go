package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A content is the content of one revision.
type content struct {
	origin   *Origin
	rev      source.Revision
	snapshot *snapshot

	mu  sync.Mutex
	end func() // of what Explain gave away
}

var _ source.Explainer = (*content)(nil)

func newContent(o *Origin, rev source.Revision, s *snapshot) *content {
	return &content{origin: o, rev: rev, snapshot: s, end: func() {}}
}

// Verify implements [source.Content]: buckets have no signatures.
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content]. Objects that are unchanged since the
// published artifact was made are copied from it. The error wraps
// [source.ErrMoved] when an object is not what was listed any more, and when the
// published artifact turns out to be damaged.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	published := c.origin.bucket.Status.Artifact
	report := source.Report{Notes: slices.Clone(c.snapshot.notes)}
	if published != nil {
		if why := c.origin.spoiledBy(published.Digest); why != "" {
			report.Notes = append(report.Notes, why)
		}
	}
	out := &sink{w: w}
	err := c.origin.within(ctx, "fetch", func(ctx context.Context) (err error) {
		return c.pack(ctx, out, &report)
	})
	if spoiled, ok := errors.AsType[*spoiledError](err); ok {
		c.origin.forget(*published, spoiled)
	}
	if err != nil && out.err == nil { // the bucket is at fault, not the storage
		err = c.origin.failed(source.StepFetch, err)
	}
	report.Emptied = c.snapshot.rules.Emptied(report.Report)
	files := report.Files
	if c.snapshot.ignore != nil {
		files-- // which is no part of the revision
	}
	report.Message = fmt.Sprintf("stored artifact with %d fetched files from '%s' bucket", files, c.origin.bucket.Spec.BucketName)
	return report, err
}

// pack fetches the objects and packs them while they arrive.
func (c *content) pack(ctx context.Context, out *sink, report *source.Report) error {
	p, err := c.progress()
	if err != nil {
		return err
	}
	copies := c.openPrevious(ctx)
	if copies != nil {
		report.Notes = append(report.Notes, fmt.Sprintf("%d of %d objects are unchanged and were copied from the artifact before", copies.count, p.total))
	}
	f := newFetch(ctx, c.snapshot, copies, p.count)
	defer f.close()
	out.failed = f.cancel
	report.Report, err = c.origin.env.Cache.Pack(f.ctx, out, f.tree)
	if err == nil {
		err = f.wait()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%d of %d objects arrived: %w", p.arrived(), p.total, err)
	case err != nil:
		return err
	}
	c.remember(out.w)
	return nil
}

// A sink remembers whether writing failed.
type sink struct {
	w      io.Writer
	err    error
	failed func(error) // called when it has
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.err = err
		s.failed(err)
	}
	return n, err
}

// A progress counts objects that arrived.
type progress struct {
	report func(source.Progress)
	object string // whose objects they are
	total  int

	mu   sync.Mutex
	done int
}

// reports is how often progress is reported, about.
const reports = 100

func (c *content) progress() (*progress, error) {
	p := &progress{report: c.origin.env.Progress}
	for i := range c.snapshot.list.len() {
		if c.snapshot.list.kept(i) {
			p.total++
		}
	}
	var err error
	if p.report != nil {
		p.object, err = source.Address(c.origin.bucket)
	}
	return p, err
}

// count takes one more into account.
func (p *progress) count() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.report != nil && (p.done%(p.total/reports+1) == 0 || p.done == p.total) {
		p.report(source.Progress{Object: p.object, Phase: "receiving objects", Done: int64(p.done), Total: int64(p.total), Unit: "objects"})
	}
}

func (p *progress) arrived() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Explain implements [source.Explainer].
func (c *content) Explain(ctx context.Context) (fs.FS, *artifact.Rules, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	before := c.end
	c.end = func() { cancel(); before() }
	return c.snapshot.plain(ctx), c.snapshot.rules, nil
}

// Close implements [source.Content].
func (c *content) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	c.snapshot.access.close()
	return nil
}
