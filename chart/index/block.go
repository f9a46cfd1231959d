package index

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// A blockScanner reads an index in YAML that has each element of a collection on lines of
// its own, as helm and chartmuseum write it:
//
//	apiVersion: v1
//	entries:
//	  alpine:
//	  - version: 1.2.3
//
// It finds where entries begin and end, and decodes those of the wanted charts with the
// YAML library. Anything that it does not certainly understand is a [layoutError].
type blockScanner struct {
	*visitor
	in     *bufio.Reader
	number int // of the last line read
	lines  lineParser

	part      part
	field     string // of the index
	recording recording

	nameAt   int    // column of the names of charts, -1 before the first
	entryAt  int    // column of the dashes of this chart's entries, -1 before the first
	chart    string // whose entries are read
	wanted   bool
	empty    bool // nothing but the name of the chart was read yet
	versions int  // of the chart

	keyAt    int  // column of the keys of the entry, -1 before the first
	skipping bool // the lines belong to a field of the entry that is not needed
}

// A part is the part of an index that the current lines belong to.
type part uint8

const (
	noPart      part = iota // nothing was read yet
	skippedPart             // content that is not needed
	fieldPart               // a field of the index
	chartPart               // the name of a chart, and a value that is not a list
	versionPart             // an entry
)

func (b *blockScanner) scan() error {
	for {
		line, err := b.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		c, ok := b.lines.read(line[:len(line)-1])
		if !ok || oddBreak(line) {
			return b.newLayoutError()
		}
		if c.starts {
			if err := b.begin(c); err != nil {
				return err
			}
		}
		if err := b.record(line, c); err != nil {
			return err
		}
	}
	if b.lines.quote != 0 {
		return b.newLayoutError()
	}
	if err := b.end(); err != nil {
		return err
	}
	if !b.apiVersion {
		return b.newLayoutError()
	}
	return nil
}

// next returns the next line with its line break, valid until the next call.
func (b *blockScanner) next() ([]byte, error) {
	b.number++
	line, err := b.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		long := bytes.Clone(line)
		for err == bufio.ErrBufferFull {
			if len(long) > entrySize {
				return nil, fmt.Errorf("line %d is longer than %d bytes", b.number, entrySize)
			}
			line, err = b.in.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	if err == io.EOF && len(line) > 0 {
		return append(bytes.Clone(line), '\n'), nil
	}
	return line, err
}

func (b *blockScanner) newLayoutError() error { return &layoutError{b.number} }

// begin ends the current part and begins another, if the line begins one.
func (b *blockScanner) begin(c lineInfo) error {
	switch {
	case c.column == 0 && !c.dash:
		return b.beginField(c)
	case b.field != "entries" && b.part != noPart:
		return nil
	case b.part == noPart:
		return b.newLayoutError()
	}
	if b.nameAt < 0 && !c.dash {
		b.nameAt = c.column
	}
	switch {
	case c.column < b.nameAt || b.nameAt < 0:
		return b.newLayoutError()
	case c.column == b.nameAt && !c.dash:
		return b.beginChart(c)
	case b.entryAt >= 0 && c.dash && c.column == b.entryAt:
		return b.beginVersion()
	case b.entryAt >= 0 && c.column <= b.entryAt:
		return b.newLayoutError()
	case b.entryAt < 0 && c.dash && b.empty:
		b.entryAt, b.part = c.column, skippedPart
		return b.beginVersion()
	}
	b.empty = false
	return nil
}

func (b *blockScanner) beginField(c lineInfo) error {
	if err := b.end(); err != nil {
		return err
	}
	if b.field = string(c.key); c.key == nil || b.field == "<<" || b.field == "entries" && !c.empty {
		return b.newLayoutError()
	}
	b.nameAt, b.part = -1, skippedPart
	if b.field == "apiVersion" || b.sum != nil && b.field != "entries" && b.field != "generated" {
		b.part = fieldPart
		b.recording.start(b.number)
	}
	return nil
}

func (b *blockScanner) beginChart(c lineInfo) error {
	if err := b.end(); err != nil {
		return err
	}
	b.chart, b.entryAt, b.empty, b.versions = string(c.key), -1, c.empty, 0
	if c.key == nil || b.chart == "<<" {
		return b.newLayoutError()
	}
	b.part = skippedPart
	if b.wanted = b.visitor.chart(b.chart); b.wanted {
		b.part = chartPart
		b.recording.start(b.number)
	}
	return nil
}

func (b *blockScanner) beginVersion() error {
	if err := b.end(); err != nil || !b.wanted {
		return err
	}
	if b.versions++; b.versions > versionLimit {
		return tooManyVersions(b.number, b.chart)
	}
	b.part, b.keyAt, b.skipping = versionPart, -1, false
	b.recording.start(b.number)
	return nil
}

// record adds a line to the recording of the part. Fields of an entry that are not needed
// are left out.
func (b *blockScanner) record(line []byte, c lineInfo) error {
	switch b.part {
	case noPart, skippedPart:
		return nil
	case versionPart:
	default:
		b.recording.add(line, line)
		return nil
	}
	needed := line
	first := b.keyAt < 0 && c.key != nil
	if first {
		b.keyAt = c.keyAt
	}
	switch {
	case c.starts && c.column < b.keyAt && !first:
		return b.newLayoutError()
	case first || c.starts && !c.dash && c.column == b.keyAt:
		b.skipping = c.key != nil && !neededFields[string(c.key)]
	}
	switch {
	case b.skipping && first: // the kept key makes the entry a mapping
		needed = append(line[:c.value:c.value], '\n')
	case b.skipping:
		needed = nil
	}
	b.recording.add(line, needed)
	return nil
}

// end checks the part that was read and passes it to the visitor.
func (b *blockScanner) end() error {
	part := b.part
	b.part = skippedPart
	switch part {
	case fieldPart:
		b.recording.addTo(b.sum, "field")
		pair := b.decode(yaml.MappingNode)
		if len(pair) != 2 || b.field == "apiVersion" && !isText(pair[1]) {
			return b.newLayoutError()
		}
		b.apiVersion = b.apiVersion || b.field == "apiVersion"
	case chartPart:
		if b.empty {
			return nil
		}
		b.recording.addTo(b.sum, b.chart)
		pair := b.decode(yaml.MappingNode)
		if len(pair) != 2 || pair[0].Value != b.chart || len(pair[1].Content) > 0 && pair[1].Kind == yaml.SequenceNode {
			return b.newLayoutError()
		}
		if pair[1].Kind != yaml.SequenceNode && !isNull(pair[1]) {
			b.malformed(b.chart, b.recording.line, errNoList)
		}
	case versionPart:
		b.recording.addTo(b.sum, b.chart)
		v := version{line: b.recording.line}
		if b.recording.big() {
			v.problem = errBig
			return b.version(b.chart, v)
		}
		list := b.decode(yaml.SequenceNode)
		if len(list) != 1 {
			return b.newLayoutError()
		}
		left := wholeValues
		v.read(list[0], &left)
		v.line += list[0].Line - 1
		return b.version(b.chart, v)
	}
	return nil
}

// decode returns the content of the recorded collection, nil if the recording is anything
// else.
func (b *blockScanner) decode(kind yaml.Kind) []*yaml.Node {
	var doc yaml.Node
	if b.recording.big() || yaml.Unmarshal(b.recording.kept, &doc) != nil || len(doc.Content) != 1 || doc.Content[0].Kind != kind {
		return nil
	}
	return doc.Content[0].Content
}
