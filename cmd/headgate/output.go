package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// finish prints what became of the objects in their order, in the command's own
// way, and returns the error that carries the exit code.
func (p *program) finish(s *session, rows []*row, detailed bool, print func(format string, rows []*row) error) error {
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.Index, b.Index) })
	for _, r := range rows {
		p.remarks(s, r)
	}
	if s.flags.output == "name" {
		print = p.printNames
	}
	if s.flags.prints() {
		if err := print(s.flags.output, rows); err != nil {
			return failed(err)
		}
	}
	code, bad := exitReady, false
	for _, r := range rows {
		bad = bad || r.err != nil
		code = worse(code, r.code(detailed))
	}
	switch {
	case s.bad != nil:
		return &exitError{worse(exitUsage, code), s.bad}
	case code != exitReady:
		return &exitError{code, nil}
	}
	return nil
}

// code returns the exit code that one object asks for.
func (r *row) code(detailed bool) int {
	_, refused := errors.AsType[*exitError](r.err) // an --out that changed during the fetch
	switch {
	case refused:
		return exitUsage
	case errors.Is(r.err, source.ErrVerification):
		return exitVerify
	case errors.Is(r.err, source.ErrInvalid):
		return exitUsage
	case r.err != nil:
		return exitFailed
	case detailed && r.Changed:
		return exitChanged
	}
	return exitReady
}

// worse returns the exit code that says more: a refused signature before an
// invalid object, before a failure, before a change.
func worse(a, b int) int {
	rank := map[int]int{exitReady: 0, exitChanged: 1, exitFailed: 2, exitUsage: 3, exitVerify: 4}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// remarks prints what went wrong with an object and, unless it is to be quiet,
// what its user should know.
func (p *program) remarks(s *session, r *row) {
	name := r.Object.Head().String()
	if r.err != nil {
		text := strings.TrimPrefix(redact.String(r.err.Error()), addressOf(r.Object)+": ")
		if s.typed {
			text = byFlag.Replace(text)
		}
		fmt.Fprintf(p.stderr, "%s: %s\n", name, text)
	}
	if s.flags.quiet {
		return
	}
	for _, note := range r.Report.Notes {
		fmt.Fprintf(p.stderr, "%s: note: %s\n", name, redact.String(note))
	}
	p.leftOut(name, r.Report.Report)
}

// leftOut tells what is not in the archive of what name says.
func (p *program) leftOut(name string, r artifact.Report) {
	const most = 10
	for i, l := range r.LeftOut {
		if i == most {
			fmt.Fprintf(p.stderr, "%s: note: and %d more left out\n", name, len(r.LeftOut)-most)
			break
		}
		fmt.Fprintf(p.stderr, "%s: note: left out %s: %s\n", name, redact.String(l.Name), kindOfFile(l.Mode))
	}
}

// printNames prints one name a line, as other commands take it.
func (p *program) printNames(_ string, rows []*row) error {
	for _, r := range rows {
		if _, err := fmt.Fprintln(p.stdout, argumentOf(r.Object)); err != nil {
			return err
		}
	}
	return nil
}

// printObjects prints the objects with their status and what became of them.
func (p *program) printObjects(format string, rows []*row) error {
	if format == "table" || format == "wide" {
		return printTable(p.stdout, rows, format == "wide")
	}
	objects := make([]source.Object, len(rows))
	for i, r := range rows {
		objects[i] = r.document()
	}
	return printDocuments(p.stdout, format, objects)
}

// The annotations of printed documents that say what this run did and why. They
// are not saved.
const (
	outcomeAnnotation = source.Group + "/outcome"
	whyAnnotation     = source.Group + "/why"
)

// document returns what is printed of the object: a copy, with annotations.
func (r *row) document() source.Object {
	obj := source.Masked(r.Object)
	m := &obj.Head().Metadata
	m.Annotations = maps.Clone(m.Annotations)
	for key, value := range map[string]string{outcomeAnnotation: string(r.Outcome), whyAnnotation: redact.String(r.Why)} {
		switch {
		case value == "":
			delete(m.Annotations, key) // of the run before
		case m.Annotations == nil:
			m.Annotations = map[string]string{key: value}
		default:
			m.Annotations[key] = value
		}
	}
	return obj
}

// printDocuments writes documents: YAML as a stream of them, JSON as one List.
func printDocuments(w io.Writer, format string, objects []source.Object) error {
	if format == "yaml" {
		for i, obj := range objects {
			text, err := source.EncodeYAML(obj)
			if err != nil {
				return err
			}
			if i > 0 {
				text = append([]byte("---\n"), text...)
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
		}
		return nil
	}
	list := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}{"v1", "List", make([]json.RawMessage, len(objects))}
	for i, obj := range objects {
		text, err := source.EncodeJSON(obj)
		if err != nil {
			return err
		}
		list.Items[i] = bytes.TrimSpace(text)
	}
	return printJSON(w, list)
}

// printValue writes v as JSON or YAML.
func printValue(w io.Writer, format string, v any) error {
	if format == "json" {
		return printJSON(w, v)
	}
	text, err := yaml.Marshal(v)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable writes one line for each object, when wide with the reason of its outcome.
func printTable(w io.Writer, rows []*row, wide bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(cells []string, why string) {
		if wide {
			cells = append(cells, why)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	line([]string{"OBJECT", "READY", "OUTCOME", "REVISION", "SIZE", "DIGEST"}, "WHY")
	for _, r := range rows {
		revision, size, digest := r.Revision.ID, "-", "-"
		if a := r.Object.Artifact(); a != nil {
			revision, size, digest = cmp.Or(revision, a.Revision), humanSize(a.Size), shortDigest(a.Digest)
		}
		line([]string{
			r.Object.Head().String(), r.ready(), cmp.Or(string(r.Outcome), "-"), redact.String(cmp.Or(revision, "-")), size, redact.String(digest),
		}, redact.String(cmp.Or(r.Why, "-")))
	}
	return t.Flush()
}

// ready tells whether what the object asked for was done, True or False; of one that
// is suspended, or that a server refused to look at, what its status says.
func (r *row) ready() string {
	switch {
	case r.refused || r.Outcome == source.Suspended:
		return cmp.Or(r.Object.Common().Condition(source.ReadyCondition).Status, "Unknown")
	case r.err != nil:
		return "False"
	}
	return "True"
}

// shortDigest abbreviates ALGORITHM:HEX for people.
func shortDigest(digest string) string {
	const most = 12
	algorithm, hex, found := strings.Cut(digest, ":")
	if !found || len(hex) <= most {
		return cmp.Or(digest, "-")
	}
	return algorithm + ":" + hex[:most]
}

// humanSize writes a number of bytes with a binary unit.
func humanSize(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size /= 1024; size < 1024 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

// printLine writes v as one line of JSON.
func printLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
