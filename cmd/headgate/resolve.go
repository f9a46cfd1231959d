package main

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/source"
)

func (p *program) resolve() *cobra.Command {
	f := new(sourceFlags)
	c := &cobra.Command{
		Use:   "resolve {-f FILE|DIR|- [KIND/NAME]... | URL[@REF]}",
		Short: "Print the revision each origin is at, without fetching or storing",
		RunE: func(c *cobra.Command, args []string) error {
			return p.look(c.Context(), f, args, func(ctx context.Context, r *row, from source.Origin) {
				r.revision, _, r.err = from.Resolve(ctx, nil)
			})
		},
	}
	f.register(c)
	return c
}

func (p *program) verify() *cobra.Command {
	f := new(sourceFlags)
	c := &cobra.Command{
		Use:   "verify {-f FILE|DIR|- [KIND/NAME]...}",
		Short: "Fetch and check signatures, without storing",
		Long: `Verify fetches each source as its spec.verify demands and checks the signature. It stores nothing. A
source whose spec asks for no verification is reported as one that is not verified, with exit code 3.`,
		RunE: func(c *cobra.Command, args []string) error {
			return p.look(c.Context(), f, args, check)
		},
	}
	f.register(c)
	return c
}

// check resolves, fetches and verifies one object.
func check(ctx context.Context, r *row, from source.Origin) {
	if r.object.Plan().Verify == "" {
		r.err = fmt.Errorf("spec.verify is not set: nothing was verified: %w", source.ErrVerification)
		return
	}
	if r.revision, _, r.err = from.Resolve(ctx, nil); r.err != nil {
		return
	}
	content, err := from.Open(ctx, r.revision)
	if err != nil {
		r.err = err
		return
	}
	defer content.Close()
	r.verified, r.err = content.Verify(ctx)
}

// look does something with the origins of objects that leaves no trace. Each
// object is bounded by its own spec.timeout.
func (p *program) look(ctx context.Context, f *sourceFlags, args []string, do func(context.Context, *row, source.Origin)) error {
	s, objects, err := p.prepare(ctx, f, args)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	rows := s.each(ctx, objects, func(ctx context.Context, r *row) {
		from, err := s.origin(r.object)
		if err != nil {
			r.err = err
			return
		}
		if t := r.object.Plan().Timeout; t > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, t, fmt.Errorf("not done within spec.timeout %s", time.Duration(t)))
			defer cancel()
		}
		do(ctx, r, from)
	})
	return p.finish(s, rows, false)
}

// kindOfFile names what an archive never holds.
func kindOfFile(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeIrregular != 0:
		return "a submodule"
	}
	return "no regular file"
}
