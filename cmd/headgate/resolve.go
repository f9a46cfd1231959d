package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

func (p *program) resolve() *cobra.Command {
	f := new(sourceFlags)
	c := &cobra.Command{
		Use:   "resolve {-f FILE|DIR|- [KIND/NAME]... | URL[@REF] | --chart NAME URL}",
		Short: "Print the revision each origin is at, without fetching or storing",
		Long: `Resolve asks each origin for its revision and prints it; it stores nothing. The revision of a chart is the
version that would be chosen. It is in the index of its repository, or in the source that holds the chart,
which is fetched for it and forgotten, unless it is suspended.`,
		Example: `  headgate resolve -f sources.yaml
  headgate resolve --chart app --version "^1.2" https://charts.example.org`,
		RunE: func(c *cobra.Command, args []string) error {
			return p.look(c.Context(), f, args, p.printRevisions, func(ctx context.Context, r *row, from source.Origin) {
				if r.revision.ID == "" { // not told yet by fetching it for a chart
					r.revision, _, r.err = from.Resolve(ctx, nil)
				}
			})
		},
	}
	f.register(c)
	f.chartFlags.register(c)
	return c
}

func (p *program) verify() *cobra.Command {
	f := new(sourceFlags)
	c := &cobra.Command{
		Use:   "verify {-f FILE|DIR|- [KIND/NAME]...}",
		Short: "Fetch and check signatures, without storing",
		Long: `Verify fetches each source as its spec.verify demands and checks the signature. It stores nothing. A
source whose spec asks for no verification is reported as one that is not verified, with exit code 3.

A chart is verified as its own spec.verify asks, or that of its PkgRepository.`,
		RunE: func(c *cobra.Command, args []string) error {
			return p.look(c.Context(), f, args, p.printFindings, check)
		},
	}
	f.register(c)
	registerLimit(c, &f.maxBytes)
	return c
}

// check resolves, fetches and verifies one object.
func check(ctx context.Context, r *row, from source.Origin) {
	if r.err = unsigned(r.object); r.err != nil {
		return
	}
	if r.revision, _, r.err = from.Resolve(ctx, nil); r.err != nil {
		return
	}
	if r.object.Plan().Verify == "" && r.revision.Verify == "" {
		r.err = errNotAsked
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

var errNotAsked = fmt.Errorf("spec.verify is not set: nothing was verified: %w", source.ErrVerification)

// unsigned returns why nothing of obj can be verified, nil when something may be.
func unsigned(obj source.Object) error {
	switch o := obj.(type) {
	case *source.Bucket:
		return fmt.Errorf("buckets have no signatures: nothing was verified: %w", source.ErrVerification)
	case *source.PkgRepository:
		if o.Spec.Verify != nil {
			return fmt.Errorf("spec.verify is about the charts of a repository, its index has no signature: verify a PkgChart: %w", source.ErrVerification)
		}
		return fmt.Errorf("indexes have no signatures: nothing was verified: %w", source.ErrVerification)
	case *source.PkgChart:
		return nil // its repository may ask for it
	}
	if obj.Plan().Verify == "" {
		return errNotAsked
	}
	return nil
}

// look does something with the origins of objects that leaves no trace. Each
// object is bounded by its own spec.timeout.
func (p *program) look(ctx context.Context, f *sourceFlags, args []string, print func(string, []*row) error, do func(context.Context, *row, source.Origin)) error {
	s, named, err := p.prepare(ctx, f, args)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	objects, goods, err := s.supply(ctx, named)
	if err != nil {
		return failed(err)
	}
	defer goods.end()
	rows := s.each(ctx, objects, func(ctx context.Context, r *row) {
		if goods.fetch(ctx, r, s); r.err != nil || !slices.Contains(named, r.object) {
			return
		}
		s.ask(ctx, r, do)
	})
	rows = slices.DeleteFunc(rows, func(r *row) bool { return r.err == nil && !slices.Contains(named, r.object) })
	return p.finish(s, rows, false, print)
}

// ask does something with the origin of an object.
func (s *session) ask(ctx context.Context, r *row, do func(context.Context, *row, source.Origin)) {
	source.AssignGeneration(r.object, nil) // it is part of the version of a chart, as a first fetch would make it
	obj, err := s.alone(ctx, r.object)
	if err != nil {
		r.err = err
		return
	}
	from, err := s.origin(obj)
	if err != nil {
		r.err = err
		return
	}
	ctx, cancel := withinTimeout(ctx, r.object)
	defer cancel()
	do(ctx, r, from)
	r.err = concealed(r.err, from)
}

// withinTimeout bounds ctx by the spec.timeout of obj.
func withinTimeout(ctx context.Context, obj source.Object) (context.Context, context.CancelFunc) {
	t := obj.Plan().Timeout
	if t <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, t, fmt.Errorf("not done within spec.timeout %s", t))
}

// A finding is what resolve and verify print of one object.
type finding struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Ready     bool   `json:"ready"` // it was found out, and the object is not suspended
	Suspended bool   `json:"suspended,omitempty"`
	Revision  string `json:"revision,omitempty"`
	Mode      string `json:"verificationMode,omitempty"`
	Signer    string `json:"signer,omitempty"`
	Level     string `json:"level,omitempty"`
	Error     string `json:"error,omitempty"`
}

// printRevisions prints what resolve found out about the objects.
func (p *program) printRevisions(format string, rows []*row) error {
	return p.print(format, rows, func(t io.Writer, findings []finding) {
		fmt.Fprintln(t, "OBJECT\tREVISION")
		for _, f := range findings {
			fmt.Fprintf(t, "%s/%s/%s\t%s\n", f.Kind, f.Namespace, f.Name, cmp.Or(redact.String(f.Revision), "-"))
		}
	})
}

// printFindings prints what verify found out about the objects.
func (p *program) printFindings(format string, rows []*row) error {
	return p.print(format, rows, func(t io.Writer, findings []finding) {
		fmt.Fprintln(t, "OBJECT\tREVISION\tMODE\tSIGNER")
		for _, f := range findings {
			fmt.Fprintf(t, "%s/%s/%s\t%s\t%s\t%s\n", f.Kind, f.Namespace, f.Name,
				cmp.Or(redact.String(f.Revision), "-"), cmp.Or(f.Mode, "-"), cmp.Or(redact.String(f.Signer), "-"))
		}
	})
}

// print prints findings as documents, or as a table.
func (p *program) print(format string, rows []*row, table func(io.Writer, []finding)) error {
	findings := make([]finding, len(rows))
	for i, r := range rows {
		o := source.Involved(r.object)
		findings[i] = finding{
			Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Suspended: r.object.Plan().Suspend,
			Revision: r.revision.ID, Mode: r.verified.Mode, Signer: r.verified.Signer, Level: r.verified.Level,
		}
		findings[i].Ready = r.err == nil && !findings[i].Suspended
		if r.err != nil {
			findings[i].Error = redact.Error(r.err).Error()
		}
	}
	if format == "json" || format == "yaml" {
		return printValue(p.stdout, format, findings)
	}
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	table(t, findings)
	return t.Flush()
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
