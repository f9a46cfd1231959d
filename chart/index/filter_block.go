package index

import "bytes"

// A blockStyle is an index in YAML whose collections have their elements on
// lines of their own:
//
//	apiVersion: v1
//	entries:
//	  alpine:
//	  - version: 1.2.3
type blockStyle struct {
	lines  lines
	level  level
	name   int  // columns before the names of charts
	entry  int  // columns before the dash of each entry of this chart, -1 when there was none
	others bool // this chart is not asked for
	large  bool // the entry that is read is let through all the same
}

// A level is where in an index the lines are.
type level uint8

const (
	aboveEntries level = iota // fields of the index
	inEntries                 // behind the line "entries:"
	inCharts                  // behind the name of a chart
)

// A turn is what a line means for those before it.
type turn uint8

const (
	goesOn    turn = iota // it belongs to them
	newEntry              // an entry begins
	newChart              // the versions of a chart begin behind it
	noEntries             // there are no more entries
	unclear
)

// step implements [style].
func (b *blockStyle) step(f *filter) bool {
	for {
		n := bytes.IndexByte(f.buf[f.scan:f.end], '\n')
		if n < 0 {
			if !b.others || b.large {
				f.keep()
			}
			return false
		}
		c, sure := b.lines.read(f.buf[f.scan : f.scan+n])
		if !sure || f.odd && oddBreak(f.buf[f.scan:f.scan+n+1]) {
			return f.give()
		}
		next := f.scan + n + 1
		switch b.turn(c) {
		case unclear:
			return f.give()
		case noEntries:
			b.settle(f)
			return f.give()
		case newEntry:
			b.settle(f)
		case newChart:
			b.settle(f)
			f.scan = next
			f.keep()
			b.others = c.empty && !c.is(f.name)
			return true
		}
		f.scan = next
		if f.start < f.ok {
			return true
		}
	}
}

// settle decides on the entry that was read.
func (b *blockStyle) settle(f *filter) {
	if b.others && !b.large {
		f.drop()
	} else {
		f.keep()
	}
	b.large = false
}

// long implements [style].
func (b *blockStyle) long(f *filter) {
	if f.scan == f.ok { // it is a line that does not fit
		f.through = true
		return
	}
	b.large = true
	f.keep()
}

// turn tells what a line means.
func (b *blockStyle) turn(c content) turn {
	if !c.starts {
		return goesOn
	}
	switch b.level {
	case aboveEntries:
		if c.column > 0 || c.dash || !c.is("entries") {
			return goesOn
		}
		if !c.empty {
			return unclear
		}
		b.level = inEntries
		return goesOn
	case inEntries:
		if c.column == 0 {
			return unclear
		}
		b.name, b.level = c.column, inCharts
	}
	return b.chartTurn(c)
}

// chartTurn is turn below entries.
func (b *blockStyle) chartTurn(c content) turn {
	switch {
	case c.column < b.name:
		return noEntries
	case c.column == b.name && !c.dash:
		if c.key == nil {
			return unclear
		}
		b.entry = -1
		return newChart
	case !c.dash && b.entry < 0, c.column < b.entry:
		return unclear
	case c.dash && b.entry < 0:
		b.entry = c.column
		return newEntry
	case c.dash && c.column == b.entry:
		return newEntry
	}
	return goesOn
}
