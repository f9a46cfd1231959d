package sourcetest

import (
	"context"
	"errors"

	"github.com/headgate-io/headgate/source"
)

// late is an origin whose upstream is to stall. A step whose time is over
// before it does tells how slow the machine is, and is done again.
type late struct {
	source.Origin
	stalls func() (begun int, expected bool)
}

// Resolve implements [source.Origin].
func (o late) Resolve(ctx context.Context, last source.State) (rev source.Revision, now source.State, err error) {
	o.untilStalled(ctx, func() error {
		rev, now, err = o.Origin.Resolve(ctx, last)
		return err
	})
	return rev, now, err
}

// Open implements [source.Origin].
func (o late) Open(ctx context.Context, rev source.Revision) (c source.Content, err error) {
	o.untilStalled(ctx, func() error {
		c, err = o.Origin.Open(ctx, rev)
		return err
	})
	return c, err
}

// Secrets returns those of the origin.
func (o late) Secrets() []string {
	if from, ok := o.Origin.(interface{ Secrets() []string }); ok {
		return from.Secrets()
	}
	return nil
}

// untilStalled repeats do as long as its time is over before the upstream stalls.
func (o late) untilStalled(ctx context.Context, do func() error) {
	before, _ := o.stalls()
	for errors.Is(do(), context.DeadlineExceeded) && ctx.Err() == nil {
		if begun, expected := o.stalls(); !expected || begun > before {
			return
		}
	}
}
