package index

import (
	"errors"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/chart/internal/yaml"
)

// versionLimit is how many versions a chart may have.
const versionLimit = 100_000

// errStop ends a walk early.
var errStop = errors.New("stopped")

// A document is an index that is read.
type document struct {
	src  *input
	in   *yaml.Reader
	line func(int) int // of the index, for a line that in tells of

	apiVersion, entries bool // they were there
	record              record
}

// A visitor is told what there is. What its functions are given is valid until
// they return; an error of theirs ends the walk.
type visitor struct {
	field   func(key []byte, value *record) error   // of the index, but for entries; nil passes over all
	chart   func(name []byte) (wanted bool)         // a list of versions begins
	version func(chart []byte, value *record) error // one of a chart that is wanted
	oddity  func(chart []byte, line int, problem error)
}

// walk reads the document to its end.
func (d *document) walk(v visitor) error {
	err := d.root(v)
	switch {
	case err == nil, errors.Is(err, errStop):
		return err
	case d.src.err != nil:
		return d.src.err
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	if at, ok := errors.AsType[*yaml.Error](err); ok {
		err = &yaml.Error{Line: d.line(at.Line), Problem: at.Problem}
	}
	if d.apiVersion || d.entries {
		return fmt.Errorf("not a chart repository index: %w", err)
	}
	return fmt.Errorf("not a chart repository index: %w; it begins with %s", err, quote(d.src.head))
}

func (d *document) root(v visitor) error {
	e, err := d.in.Next()
	switch {
	case err == io.EOF:
		return errors.New("it is empty")
	case err != nil:
		return err
	case e.Kind != yaml.MapStart:
		return errors.New("it is no mapping")
	}
	err = d.pairs(func(key yaml.Event) error {
		name, line := string(key.Value), d.line(key.Line)
		e, err := d.in.Next()
		if err != nil {
			return err
		}
		if name == "entries" {
			d.entries = true
			return d.charts(e, v)
		}
		return d.field(name, line, e, v)
	})
	if err != nil {
		return err
	}
	if _, err := d.in.Next(); err != io.EOF {
		return err
	}
	if !d.apiVersion {
		return errors.New("field apiVersion is missing")
	}
	return nil
}

// field reads a field of the index, whose name is on the line and whose first
// event is e.
func (d *document) field(name string, line int, e yaml.Event, v visitor) error {
	if name == "apiVersion" {
		if e.Kind != yaml.Scalar || len(e.Value) == 0 || e.Plain && isNull(e.Value) {
			return fmt.Errorf("line %d: field apiVersion must be a text", line)
		}
		d.apiVersion = true
	}
	if v.field == nil {
		return d.pass(e)
	}
	if err := d.record.read(d.in, e, entrySize); err != nil {
		return err
	}
	if d.record.big {
		return fmt.Errorf("line %d: field %s is larger than %d bytes", line, quote([]byte(name)), entrySize)
	}
	return v.field([]byte(name), &d.record)
}

// charts reads the field entries, whose first event is e.
func (d *document) charts(e yaml.Event, v visitor) error {
	switch {
	case e.Kind == yaml.Null, e.Kind == yaml.Scalar && e.Plain && isNull(e.Value):
		return nil
	case e.Kind != yaml.MapStart:
		return fmt.Errorf("line %d: field entries must be a mapping of names to versions", d.line(e.Line))
	}
	var name []byte // the memory of one for the next
	return d.pairs(func(key yaml.Event) error {
		name = append(name[:0], key.Value...)
		d.line(key.Line) // those before are not asked for any more
		wanted := v.chart(name)
		e, err := d.in.Next()
		if err != nil {
			return err
		}
		if !wanted {
			return d.pass(e)
		}
		return d.versions(name, e, v)
	})
}

// versions reads those of one chart.
func (d *document) versions(chart []byte, e yaml.Event, v visitor) error {
	switch {
	case e.Kind == yaml.Null, e.Kind == yaml.Scalar && e.Plain && isNull(e.Value):
		return nil
	case e.Kind != yaml.SeqStart:
		v.oddity(chart, d.line(e.Line), errors.New("its versions are no list"))
		return d.pass(e)
	}
	for count := 0; ; count++ {
		e, err := d.in.Next()
		switch {
		case err != nil:
			return err
		case e.Kind == yaml.SeqEnd:
			return nil
		case count == versionLimit:
			return fmt.Errorf("line %d: chart %s has more than %d versions", d.line(e.Line), quote(chart), versionLimit)
		}
		if err := d.record.read(d.in, e, entrySize); err != nil {
			return err
		}
		for i := range d.record.nodes {
			d.record.nodes[i].line = d.line(d.record.nodes[i].line)
		}
		if err := v.version(chart, &d.record); err != nil {
			return err
		}
	}
}

// pairs calls value with each key of a mapping that has begun, and expects it
// to read the value.
func (d *document) pairs(value func(key yaml.Event) error) error {
	for {
		e, err := d.in.Next()
		switch {
		case err != nil:
			return err
		case e.Kind == yaml.MapEnd:
			return nil
		case e.Kind != yaml.Scalar && e.Kind != yaml.Null:
			return fmt.Errorf("line %d: a key must be a text", d.line(e.Line))
		case e.Plain && string(e.Value) == "<<":
			return fmt.Errorf("line %d: mappings can be merged (<<) within an entry only", d.line(e.Line))
		}
		if err := value(e); err != nil {
			return err
		}
	}
}

// pass passes over the node whose first event is e.
func (d *document) pass(e yaml.Event) error {
	if e.Kind == yaml.MapStart || e.Kind == yaml.SeqStart {
		return d.in.Skip()
	}
	return nil
}

// An input remembers how a reader begins and why it ended.
type input struct {
	r    io.Reader
	head []byte
	err  error // other than io.EOF
}

func (i *input) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if room := 80 - len(i.head); room > 0 {
		i.head = append(i.head, p[:min(n, room)]...)
	}
	if err != nil && err != io.EOF {
		i.err = err
	}
	return n, err
}
