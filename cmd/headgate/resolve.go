package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
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
			return p.look(c.Context(), f, args, source.StepResolve, p.printRevisions)
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
			return p.look(c.Context(), f, args, source.StepVerify, p.printFindings)
		},
	}
	f.register(c)
	registerLimit(c, &f.maxBytes)
	return c
}

// look finds out about objects until a step, without leaving a trace.
func (p *program) look(ctx context.Context, f *sourceFlags, args []string, until source.Step, print func(string, []*row) error) error {
	s, named, err := p.prepare(ctx, f, args)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	options := s.options(named)
	options.Until = until
	var rows []*row
	for result, err := range headgate.Fetch(ctx, s.set, options) {
		if result.Object == nil {
			return failed(err)
		}
		rows = append(rows, newRow(result, err))
	}
	return p.finish(s, rows, false, print)
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
		o := source.Involved(r.Object)
		findings[i] = finding{
			Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Suspended: r.Object.Plan().Suspend,
			Revision: r.Revision.ID, Mode: r.Verification.Mode, Signer: r.Verification.Signer, Level: r.Verification.Level,
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
